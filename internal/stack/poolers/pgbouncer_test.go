//go:build poolers

package poolers_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/internal/stack/pgbouncer"
)

// Three connections of the store, and the suite's concurrent cases, share two of the server: what a client said to one
// is soon gone for the other.

func TestStoreHoldsThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for _, program := range programs(t) {
		for name, mode := range modes {
			if mode == pgx.QueryExecModeCacheStatement && !program.TracksStatements() {
				continue // TestUntrackedStatementsAreNamed shows what it does instead
			}
			t.Run(program.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				pooler := start(t, pgbouncer.Config{Program: program, Prepared: 100})
				testStore(t, mode, pooler.Via)
			})
		}
	}
}

func programs(t *testing.T) []pgbouncer.Program {
	t.Helper()
	all, err := pgbouncer.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, pgbouncer.Program.TracksStatements) {
		t.Fatalf("found %v, want one from 1.21 on as well: .ci/pgbouncer builds it on Debian; or name one in %s", all, pgbouncer.Variable)
	}
	if all[0].TracksStatements() {
		t.Fatalf("found %v, want one before 1.21 as well, such as Debian 12's package; or name one in %s", all, pgbouncer.Variable)
	}
	return all
}

func start(t *testing.T, config pgbouncer.Config) *pgbouncer.Server {
	t.Helper()
	config.Upstream = server(t)
	pooler, err := pgbouncer.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pooler.Stop)
	return pooler
}
