//go:build soak

package limits_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openlup/outbox-dispatch/outbox"
	outboxpostgres "github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/sql"
)

// A queue in use is dumped and restored into another cluster. Every row is there as it was, the machinery works, and the
// queue goes on where it stood.
func TestSoakDumpAndRestoreIntoAnotherCluster(t *testing.T) {
	t.Parallel()
	from := server(t, 0)
	source := connect(t, from, nil)
	migrate(t, source)
	live(t, source)
	to := server(t, 0)
	restore(t, from, to)
	target := connect(t, to, nil)

	for what, sql := range map[string]string{
		"rows":        `select md5(string_agg(e::text, '|' order by position)) from outbox_events e`,
		"circuits":    `select md5(string_agg(c::text, '|' order by key)) from outbox_circuits c`,
		"dormant":     `select md5(string_agg(d::text, '|' order by event_type)) from outbox_dormant_event_types d`,
		"functions":   `select md5(string_agg(pg_get_functiondef(oid), '|' order by oid::regprocedure::text)) from pg_proc where proname like 'outbox%'`,
		"constraints": `select md5(string_agg(conname || pg_get_constraintdef(oid), '|' order by conname)) from pg_constraint where conname like 'outbox%'`,
		"indexes":     `select md5(string_agg(indexdef, '|' order by indexname)) from pg_indexes where tablename like 'outbox%'`,
		"columns": `select md5(string_agg(concat_ws(' ', attname, atttypid::regtype, attnotnull, attidentity, attgenerated, pg_get_expr(adbin, adrelid)), '|' order by attnum))
			from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum where attrelid = 'outbox_events'::regclass and attnum > 0`,
		"storage":  `select reloptions::text from pg_class where oid = 'outbox_events'::regclass`,
		"sequence": `select last_value::text from outbox_events_position_seq`,
	} {
		if got, want := scalar[string](t, target, sql), scalar[string](t, source, sql); got != want {
			t.Errorf("%s: %s in the other cluster, want %s", what, got, want)
		}
	}
	report, err := (&outboxpostgres.Migrator{Pool: target, Files: sql.Files}).Up(t.Context())
	if err != nil || len(report.Applied) > 0 {
		t.Errorf("migrating the other cluster applied %d files, error %v, want none: it is up to date", len(report.Applied), err)
	}
	goesOn(t, target)
	t.Logf("the ledger\n%s", scalar[string](t, source, `select string_agg(status || ' ' || n, ', ' order by status) || ' before; all rows alike after; all finished then'
		from (select status, count(*) n from outbox_events group by status) s`))
}

// live makes a queue in which each state occurs: processed, discarded, failed, snoozed behind an open circuit, leased by a
// process that died, fresh, delayed, held back by an operator, dormant.
func live(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	f := &fates{}
	enqueue(t, pool, "first", 200)
	execute(t, pool, `insert into outbox_dormant_event_types (event_type, owner, reason) values ('viewed', 'shop', 'retired')`)
	execute(t, pool, "select outbox_circuit_hold('hold', 'until Monday')")
	run(t, newWorker(t, pool, outbox.Config{Registry: f.registry()}))
	enqueue(t, pool, "second", 100)
	claim, err := (&outboxpostgres.Store{Pool: pool}).Claim(t.Context(), outbox.ClaimRequest{EventTypes: []string{"ok"}, BatchSize: 10})
	if err != nil || len(claim.Events) != 10 {
		t.Fatalf("claimed %d events, error %v, want 10", len(claim.Events), err)
	}
	enqueue(t, pool, "third", 100)
	for _, status := range []string{"pending", "processing", "failed", "processed", "discarded"} {
		if scalar[int](t, pool, "select count(*) from outbox_events where status = $1", status) == 0 {
			t.Fatalf("no event is %s: the case shows nothing", status)
		}
	}
}

// enqueue inserts n events of each type into as many aggregates as there are types, some of them for later.
func enqueue(t *testing.T, pool *pgxpool.Pool, key string, n int) {
	t.Helper()
	execute(t, pool, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, available_at)
		select 'order', md5(k || n % 20)::uuid, k, $1::text || n, jsonb_build_object('n', n, 'text', 'ä🙂\u2028', 'big', 1e30), 
		       case when n % 50 = 49 then now() + interval '1 hour' else now() end
		from generate_series(1, $2::int) n, unnest(array['ok', 'retry', 'snooze', 'discard', 'hold', 'viewed']) k order by n`, key, n)
}

// restore brings the database of one server to the other, by PostgreSQL's own tools.
func restore(t *testing.T, from, to string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dump")
	for _, args := range [][]string{
		{"pg_dump", "--format=custom", "--file", file, from}, {"pg_restore", "--exit-on-error", "--dbname", to, file},
	} {
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Fatalf("%v: install PostgreSQL's client programs (Debian: postgresql-client)", err)
		}
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "PGOPTIONS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", args[0], err, out)
		}
	}
}

// goesOn lets the queue in the other cluster go on: what is fresh at once, what was leased or delayed in its time, what is
// held back once it is released; old keys are still taken, new rows stand behind all others.
func goesOn(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	last := scalar[int64](t, pool, "select max(position) from outbox_events")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		events := []outboxpostgres.NewEvent{
			{AggregateType: "order", AggregateID: "00000000-0000-0000-0000-000000000001", Type: "ok", IdempotencyKey: "first1", Payload: []byte("{}")},
			{AggregateType: "order", AggregateID: "00000000-0000-0000-0000-000000000001", Type: "ok", IdempotencyKey: "new", Payload: []byte("{}")},
		}
		if n, err := outboxpostgres.Enqueue(context.WithoutCancel(t.Context()), tx, events...); n != 1 || err != nil {
			return errors.Join(err, errors.New("want 1 of 2 enqueued: the other's key is taken"))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := scalar[int64](t, pool, "select position from outbox_events where idempotency_key = 'new'"); got <= last {
		t.Errorf("a new row has position %d, want one behind %d", got, last)
	}
	const unfinished = "select count(*) from outbox_events where unfinished and event_type <> 'viewed'" // which is dormant
	waiting := scalar[int](t, pool, unfinished)
	f := &fates{healed: true}
	worker := newWorker(t, pool, outbox.Config{Registry: f.registry()})
	leases := func() int {
		return scalar[int](t, pool, "select count(*) from outbox_events where status = 'processing' and available_at > now()")
	}
	before := leases()
	run(t, worker)
	if got := leases(); got != before || before != 10 {
		t.Errorf("%d events are leased after the first pass, want 10 before and after", got)
	}
	execute(t, pool, "update outbox_events set available_at = now() - interval '1 millisecond' where status in ('pending', 'failed', 'processing')")
	execute(t, pool, "select outbox_circuit_reset(key) from outbox_circuits")
	for range 3 { // what was leased comes alone
		run(t, worker)
	}
	if left := scalar[int](t, pool, unfinished); left > 0 {
		t.Errorf("%d events are left, want none", left)
	}
	f.check(t, waiting)
}
