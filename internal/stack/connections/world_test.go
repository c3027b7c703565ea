// Package connections breaks the way between the function and PostgreSQL, each break in the middle of a pass or while the
// sandbox is frozen. The function must answer in its time, and the next invocation must go on with nothing lost.
package connections_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	outboxpostgres "github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
	"github.com/openlup/outbox-dispatch/sql"

	"github.com/openlup/outbox-dispatch/internal/stack/dispatchtest"
	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
)

const (
	// events of each test, and the one at whose delivery something breaks.
	events  = 300
	breakAt = 60
	// timeout of the function. It leaves a pass five seconds in which deliveries may start, also after a connection that
	// says nothing took two of them.
	timeout = 12 * time.Second
)

func TestMain(m *testing.M) {
	postgres.Helper()
	toxics.Register("strand", new(strandToxic))
	os.Exit(m.Run())
}

// scene is a function that reaches its database through a proxy.
type scene struct {
	*dispatchtest.World
	way *proxy
	f   *lambda.Function
}

// newScene plays on the database at url. Events wait.
func newScene(t *testing.T, url string) *scene {
	t.Helper()
	s := &scene{World: dispatchtest.New(t, url)}
	var through string
	s.way, through = newProxy(t, url)
	s.f = s.Function(timeout, "DATABASE_URL="+through, "OUTBOX_BATCH_SIZE=25")
	s.Insert(events, 100)
	return s
}

func shared(t *testing.T) *scene {
	t.Helper()
	return newScene(t, postgrestest.URL(t))
}

// broken runs the pass in which something breaks. It may end well or with the database's error, but it must answer.
func (s *scene) broken(breakNow func()) dispatchtest.Reply {
	s.Helper()
	s.Hook.At(breakAt, breakNow)
	r := s.Invoke(s.f)
	if got := s.Hook.Distinct(); got < breakAt {
		s.Fatalf("%d events arrived, so nothing broke; the reply is %s", got, r.Raw)
	}
	return r
}

// resumes runs the next pass, which must succeed and finish what there is.
func (s *scene) resumes() {
	s.Helper()
	s.later()
	s.Dispatch(s.f)
	if left := s.Count("status <> 'processed'"); left > 0 {
		s.Errorf("%d events are left after the pass that followed, want none", left)
	}
	s.Arrived(events)
	if got := s.Hook.Repeated(); got > s.inFlight() {
		s.Errorf("%d deliveries were repeated, want at most the %d that can be unsettled", got, s.inFlight())
	}
}

// later is when the leases of what the last pass left have ended. A statement that the server was still at when its client
// was gone may commit a claim, so that comes first.
func (s *scene) later() {
	s.Helper()
	for busy := 1; busy > 0; {
		if err := s.Pool.QueryRow(s.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and application_name = 'test_function' and state = 'active'`).Scan(&busy); err != nil {
			s.Fatalf("wait for the server: %v", err)
		}
	}
	s.AgeLeases()
}

// inFlight is how many events can have been delivered and not be settled when the way breaks: those being delivered, and
// those in the settle call under way or waiting for the next.
func (s *scene) inFlight() int { return 4*25 + 16 }

// terminate ends the function's sessions as an administrator's command, or a fast shutdown, does.
func (s *scene) terminate() {
	s.Helper()
	s.Exec(`select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and application_name = 'test_function'`)
}

// admin runs a statement that concerns the database or a role from another database of the server.
func admin(t *testing.T, sql string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also for what is left to do at the end of a test
	conn, err := pgx.Connect(ctx, os.Getenv("OUTBOX_TEST_DATABASE_URL"))
	if err == nil {
		_, err = conn.Exec(ctx, sql)
		err = errors.Join(err, conn.Close(ctx))
	}
	if err != nil {
		t.Errorf("%s: %v", sql, err)
	}
}

// private starts a server for one test, with the outbox in it.
func private(t *testing.T) string {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	pool, err := pgxpool.New(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := (&outboxpostgres.Migrator{Pool: pool, Files: sql.Files}).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return server.URL
}

// await waits until the database answers again.
func (s *scene) await() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s.Pool.Reset()
		if s.Pool.Ping(ctx) == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatal("the database does not answer any more")
		case <-tick.C:
		}
	}
}

func (s *scene) name() (database string) {
	s.Helper()
	if err := s.Pool.QueryRow(s.Context(), "select quote_ident(current_database())").Scan(&database); err != nil {
		s.Fatal(err)
	}
	return database
}

func alter(database, setting string) string {
	return fmt.Sprintf("alter database %s %s", database, setting)
}
