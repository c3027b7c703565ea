package connections_test

import (
	"crypto/rand"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// A backend that dies makes PostgreSQL end all sessions, and refuse new ones until it has recovered.
func TestServerCrashesAndRecoversInMidPass(t *testing.T) {
	t.Parallel()
	s := newScene(t, private(t))
	s.broken(func() {
		var pid int
		if err := s.Pool.QueryRow(t.Context(), "select pid from pg_stat_activity where application_name = 'test_function' limit 1").Scan(&pid); err != nil {
			t.Errorf("find a backend: %v", err)
		} else if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("kill the backend: %v", err)
		}
	})
	s.await()
	s.resumes()
}

func TestServerStopsAndStartsAroundAPass(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.broken(func() { s.terminate(); s.way.Stop() })
	r := s.Invoke(s.f)
	if !strings.Contains(r.ErrorMessage, "hint: the server was not reached") {
		t.Errorf("while it is down the answer is %s, want one that says so", r.Raw)
	}
	s.way.accept()
	s.resumes()
}

func TestConnectionsAreCutInMidPass(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.broken(s.way.cut)
	s.resumes()
}

// After a failover the old server may stay as a replica. The sessions that the pool has with it answer every ping, and
// nothing but writes tells them apart.
func TestFailoverToReadOnlyInMidPass(t *testing.T) {
	t.Parallel()
	s := shared(t)
	database := s.name()
	r := s.broken(func() {
		admin(t, alter(database, "set default_transaction_read_only = on"))
		s.terminate()
	})
	if r.ErrorType == "" { // the end of its sessions was all that the pass saw
		t.Fatalf("the pass answered %s, want an error", r.Raw)
	}
	if r = s.Invoke(s.f); !strings.Contains(r.ErrorMessage, "25006") || !strings.Contains(r.ErrorMessage, "hint: the server is read-only") {
		t.Errorf("on the replica the answer is %s, want 25006 and a hint", r.Raw)
	}
	admin(t, alter(database, "reset default_transaction_read_only"))
	s.resumes() // its sessions are still read-only: it must open others
}

func TestConnectionLimitIsReachedInMidPass(t *testing.T) {
	t.Parallel()
	role := "outbox_role_" + strings.ToLower(rand.Text()[:12])
	admin(t, "create role "+role+" login")
	t.Cleanup(func() { admin(t, "drop role "+role) }) // after its rights went with the database
	u, err := url.Parse(postgrestest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	direct := u.String()
	u.User = url.User(role)
	s := newScene(t, direct)
	s.Exec("grant all on all tables in schema public to " + role + "; grant all on all sequences in schema public to " + role)
	u.Host = s.way.Listen
	s.f = s.Function(timeout, "DATABASE_URL="+u.String())
	s.broken(func() {
		s.Exec("alter role " + role + " connection limit 0")
		s.terminate()
	})
	r := s.Invoke(s.f)
	if !strings.Contains(r.ErrorMessage, "53300") || !strings.Contains(r.ErrorMessage, "OUTBOX_DB_MAX_CONNS") {
		t.Errorf("at the limit the answer is %s, want 53300 and what to lower", r.Raw)
	}
	s.Exec("alter role " + role + " connection limit 10")
	s.resumes()
}

func TestNothingComesThroughAnyMoreInMidPass(t *testing.T) {
	t.Parallel()
	s := shared(t)
	r := s.broken(s.way.silence)
	if r.ErrorType != "StoreError" {
		t.Errorf("the answer is %s, want a StoreError", r.Raw)
	}
	s.way.speak()
	s.resumes()
}

// The way of the open connections is lost, as when a NAT gateway forgets them: no packet tells.
func TestOpenConnectionsAreLostInMidPass(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.broken(s.way.strand)
	s.resumes()
}
