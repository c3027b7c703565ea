package plans

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is a connection whose statements are explained as they end, nested ones too.
type session struct {
	t     testing.TB
	conn  *pgx.Conn
	seen  []statement
	wrong error // the first notice that could not be read
}

// autoExplain makes the server send the plan of every statement, as it was executed. Timing is the expensive part of it.
const autoExplain = `
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_nested_statements = on;
set auto_explain.log_analyze = on;
set auto_explain.log_buffers = on;
set auto_explain.log_timing = off;
set auto_explain.log_format = json;
set auto_explain.log_level = notice;
set client_min_messages = notice;
set statement_timeout = '60s';`

// connect opens a connection; plans are seen once explain was called.
func connect(t testing.TB, url string) *session {
	t.Helper()
	s := &session{t: t}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatalf("parse the database's address: %v", err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { s.note(n.Message) }
	s.conn, err = pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = s.conn.Close(context.WithoutCancel(t.Context())) })
	return s
}

// explained is connect with plans.
func explained(t testing.TB, url string) *session {
	t.Helper()
	s := connect(t, url)
	s.explain()
	return s
}

// explain makes the server send the plans from now on.
func (s *session) explain() {
	s.t.Helper()
	if _, err := s.conn.PgConn().Exec(s.t.Context(), autoExplain).ReadAll(); err != nil {
		s.t.Fatalf("the plans of nested statements are seen by auto_explain alone; it is part of PostgreSQL (Debian: postgresql-NN, Fedora: postgresql-contrib) and needs a superuser: %v", err)
	}
}

func (s *session) note(message string) {
	found, ours, err := parse(message)
	if err != nil && s.wrong == nil {
		s.wrong = err
	}
	if ours && err == nil {
		s.seen = append(s.seen, found)
	}
}

// do runs statements, whose rows are dropped.
func (s *session) do(statements ...string) {
	s.t.Helper()
	for _, sql := range statements {
		if _, err := s.conn.PgConn().Exec(s.t.Context(), sql).ReadAll(); err != nil {
			s.t.Fatalf("%v\n%s", err, sql)
		}
	}
}

// plans answers those statements seen since it was last called that read the table themselves: others are calls
// of functions, whose statements are there as well.
func (s *session) plans() (found []statement) {
	s.t.Helper()
	if s.wrong != nil {
		s.t.Fatal(s.wrong)
	}
	for _, each := range s.seen {
		if each.Plan.reads() && !strings.Contains(each.Query, ownMark) {
			found = append(found, each)
		}
	}
	s.seen = nil
	return found
}

// ownMark stands in statements of the test itself.
const ownMark = "/* not judged */"
