package postgrestest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
	"github.com/openlup/outbox-dispatch/sql"
)

func TestNewGivesEachTestItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	names := make([]string, 4)
	var group sync.WaitGroup
	for i := range names {
		group.Go(func() {
			pool := postgrestest.New(t)
			var rows int
			err := pool.QueryRow(t.Context(), "select current_database(), (select count(*) from outbox_events)").Scan(&names[i], &rows)
			if err != nil || rows != 0 {
				t.Errorf("outbox_events: %d rows, %v; want an empty table", rows, err)
			}
			if _, err := (&postgres.Migrator{Pool: pool, Files: sql.Files}).Verify(t.Context()); err != nil {
				t.Errorf("verify: %v", err)
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			t.Errorf("database %s was given twice", name)
		}
		seen[name] = true
	}
}

func TestEmptyHasNoTables(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), postgrestest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var found bool
	if err := conn.QueryRow(t.Context(), "select to_regclass('public.outbox_events') is not null").Scan(&found); err != nil || found {
		t.Errorf("outbox_events found: %t, %v; want none", found, err)
	}
}

func TestDatabasesAreDroppedWithTheirTest(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) {
		url = postgrestest.URL(t)
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn // stays connected: the drop is forced
	})
	conn, err := pgx.Connect(t.Context(), url)
	if err == nil {
		_ = conn.Close(t.Context())
		t.Error("the database is still there after its test")
	}
}

// The variable is read from the environment, so the run without it is a process of its own: this test again.
func TestAMissingServerFailsTheTestAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	if os.Getenv("OUTBOX_TEST_DATABASE_URL") == "" {
		postgrestest.URL(t)
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAMissingServerFailsTheTestAndSaysWhatToDo$")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "OUTBOX_TEST_DATABASE_URL=") {
			command.Env = append(command.Env, variable)
		}
	}
	output, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "make test") {
		t.Errorf("without the variable: %v and %q; want a failure that names `make test`", err, output)
	}
}

func BenchmarkURL(b *testing.B) {
	for b.Loop() {
		postgrestest.URL(b)
	}
}
