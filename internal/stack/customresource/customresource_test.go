package customresource_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/cfn"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const (
	timeout = 20 * time.Second // of an invocation that need not hurry
	short   = 4 * time.Second  // of one that runs out: half of it is for the answer, room enough on a busy machine
)

func TestTheLifeOfAStack(t *testing.T) {
	t.Parallel()
	url := postgrestest.Empty(t)
	w := newWorld(t, timeout, "DATABASE_URL="+url)
	w.succeeded(w.play("create", nil), latest(t))
	conn := connect(t, url)
	execute(t, conn, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		values ('order', gen_random_uuid(), 'order.placed', 'kept', '{}')`)

	w.succeeded(w.play("update", nil), latest(t))
	w.succeeded(w.play("delete", nil), "")
	var events int
	if err := conn.QueryRow(t.Context(), "select count(*) from outbox_events").Scan(&events); err != nil || events != 1 {
		t.Errorf("%d events after Delete (%v), want the one that was there", events, err)
	}
	w.succeeded(w.play("create", nil), latest(t)) // a stack that is deployed anew finds its data
}

func TestAMigrationThatFailsFailsTheDeployment(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare      []string
		reason, part string
	}{
		"conflicting table":  {[]string{"create table outbox_events (id int)"}, "MigrationError: apply 0001_outbox.sql, ", "42P07"},
		"lock":               {[]string{"begin", "create table outbox_events (id int)"}, "MigrationError: apply 0001_outbox.sql, ", "gave up after 5 attempts"},
		"read-only database": {[]string{"do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$"}, "DatabaseError: database: ", "25006"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.Empty(t)
			conn := connect(t, url)
			for _, statement := range tc.prepare {
				execute(t, conn, statement)
			}
			w := newWorld(t, timeout, "DATABASE_URL="+url, "OUTBOX_MIGRATE_LOCK_TIMEOUT=10ms")
			w.failed(w.play("create", nil), tc.reason, tc.part)
			w.wantLog(`"level":"ERROR"`, "migrate failed", tc.part)
			w.succeeded(w.play("delete", nil), "") // what CloudFormation sends next
		})
	}
}

func TestADatabaseAheadOfTheFunctionSucceedsWithAWarning(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	execute(t, connect(t, url), "insert into outbox_schema_migrations values (9999, '9999_new.sql', '', now(), 1)")
	w := newWorld(t, timeout, "DATABASE_URL="+url)
	w.succeeded(w.play("update", nil), "9999")
	w.wantLog(`"level":"WARN"`, "ahead of the newest migration file")
}

func TestADatabaseOutOfReach(t *testing.T) {
	t.Parallel()
	w := newWorld(t, timeout, "DATABASE_URL="+unreachable)
	w.failed(w.play("create", nil), "DatabaseError: database: connect: ", "connection refused")
	w.failed(w.play("update", nil), "DatabaseError: database: connect: ", "connection refused")
	// What CloudFormation undoes an update with asks for nothing new; failing would only leave the stack stuck.
	back := func(e *cfn.Event) {
		e.ResourceProperties, e.OldResourceProperties = e.OldResourceProperties, e.ResourceProperties
	}
	w.succeeded(w.play("update", back), "1")
	w.wantLog(`"level":"WARN"`, "nothing new is asked for", "connection refused")
	again := func(e *cfn.Event) {
		e.ResourceProperties, e.OldResourceProperties = map[string]any{"Version": "2", "Run": "1"}, map[string]any{"Version": "2", "Run": ""}
	}
	w.failed(w.play("update", again), "DatabaseError: database: connect: ", "connection refused")
	w.succeeded(w.play("update", func(e *cfn.Event) { again(e); back(e) }), "2")
	w.succeeded(w.play("delete", nil), "")
}

func TestABrokenConfigurationLeavesTheStackDeletable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, timeout, "DATABASE_URL=", "DATABASE_SECRET_ARN=", "OUTBOX_DB_IAM_AUTH=", "OUTBOX_DB_MAX_CONNS=many")
	w.failed(w.play("create", nil), "ConfigError: bad configuration:", "OUTBOX_DB_MAX_CONNS")
	w.succeeded(w.play("delete", nil), "")
}

func TestTheAnswerComesBeforeTheTimeout(t *testing.T) {
	t.Parallel()
	t.Run("another migration holds the lock", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Empty(t)
		holder := connect(t, url)
		execute(t, holder, "select pg_advisory_lock(8031453476610927975)") // as outbox/postgres takes it
		w := newWorld(t, short, "DATABASE_URL="+url)
		w.failed(w.play("create", nil), "MigrationLockError: another migration run ", "stopped before the function's timeout")
		execute(t, holder, "select pg_advisory_unlock(8031453476610927975)")
		w.succeeded(w.play("create", nil), latest(t))
	})
	t.Run("the database is silent", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends with the test
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = silent.Close() })
		w := newWorld(t, short, "DATABASE_URL=postgres://user:verysecret@"+silent.Addr().String()+"/db?sslmode=disable")
		w.failed(w.play("create", nil), "DatabaseError: database: ", "stopped before the function's timeout")
	})
	t.Run("nobody takes the answer", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, short, "DATABASE_URL="+unreachable)
		w.release = make(chan struct{})
		t.Cleanup(func() { close(w.release) })
		_, reply, told := w.send("delete", nil)
		if len(told) == 0 || !strings.Contains(reply, `"errorType":"AnswerError"`) || strings.Contains(reply, "verysecret") {
			t.Errorf("reply %s after %d tries, want an AnswerError without the URL after some", reply, len(told))
		}
	})
}
