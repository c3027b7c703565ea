package database

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

func TestHintNamesTheModeForWhatPoolersDoToStatements(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		code, text string
		want       bool
	}{
		{"26000", `prepared statement "stmtcache_1" does not exist`, true},
		{"42P05", `prepared statement "stmtcache_1" already exists`, true},
		{"08P01", `bind message supplies 12 parameters, but prepared statement "" requires 9`, true},
		{"08P01", "unsupported startup parameter: search_path", false},
		{"08P01", "server login has been failing, cached error: connect failed", false},
		{"0A000", "cached plan must not change result type", true},
		{"0A000", "prepared statements are not supported", true},
		{"0A000", "cannot use subquery in check constraint", false},
		{"42P01", `relation "outbox_events" does not exist`, false},
	} {
		err := fmt.Errorf("claim batch: %w", &pgconn.PgError{Code: test.code, Message: test.text})
		if got := Hint(err); strings.Contains(got, "OUTBOX_DB_EXEC_MODE") != test.want || (got != "") != test.want {
			t.Errorf("%s %s: got %q, want the mode named: %t", test.code, test.text, got, test.want)
		}
	}
	if got := Hint(errors.New("no server's error")); got != "" {
		t.Errorf("got %q for an error that is no server's", got)
	}
}

// What PostgreSQL itself says when a table changes under a prepared statement, and that it says so once.
func TestChangedTableFailsAPreparedStatementOnce(t *testing.T) {
	t.Parallel()
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": postgrestest.URL(t)}))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec := func(sql string, args ...any) error {
		_, err := conn.Exec(t.Context(), sql, args...)
		return err
	}
	const read = "select * from changed where a = $1"
	err = errors.Join(exec("create temporary table changed (a int)"), exec(read, 1), exec("alter table changed add b int"))
	if err != nil {
		t.Fatal(err)
	}
	if err := exec(read, 1); !strings.Contains(Hint(err), "OUTBOX_DB_EXEC_MODE") {
		t.Errorf("got %v, want an error of the cached plan that the hint explains", err)
	}
	if err := exec(read, 1); err != nil {
		t.Errorf("the second time: %v, want it prepared anew", err)
	}
}
