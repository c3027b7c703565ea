package postgres_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// TestTheDocumentedRightsSuffice runs a whole pass under a role that has what docs/deploy.md grants it, and no more.
func TestTheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	pool := postgrestest.New(t)
	var database string
	if err := pool.QueryRow(t.Context(), `select current_database()`).Scan(&database); err != nil {
		t.Fatal(err)
	}
	role := database + "_dispatch"
	execute(t, pool, `create role "`+role+`" login`)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), `drop owned by "`+role+`"; drop role "`+role+`"`)
		if err != nil {
			t.Errorf("drop the role: %v", err)
		}
	})
	grants := 0
	for line := range strings.Lines(string(guide)) {
		if rest, found := strings.CutSuffix(strings.TrimSpace(line), " to outbox;"); found && strings.HasPrefix(rest, "grant ") {
			execute(t, pool, rest+` to "`+role+`"`)
			grants++
		}
	}
	if grants < 4 {
		t.Fatalf("found %d grants in docs/deploy.md, want those of four tables", grants)
	}
	execute(t, pool, `select outbox_endpoint_add('a', 'https://a.example')`)
	insertEvents(t, pool, 20, 5)
	config := pool.Config().Copy()
	config.AfterConnect, config.ConnConfig.User = nil, role
	own, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	store := &postgres.Store{Pool: own}
	failing := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
		return nil, outbox.Snooze(os.ErrDeadlineExceeded, 0)
	})
	var lines bytes.Buffer // the pass is over when it is read
	worker, err := outbox.NewWorker(outbox.Config{
		Store: store, Circuits: store, Stats: store, Pruner: store, Retention: outbox.Retention{Processed: outbox.PruneAtOnce},
		Registry: outbox.Registry{"order.placed": {Handler: failing}}, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := worker.Run(t.Context(), outbox.Pass{})
	if err != nil || result.Snoozed == 0 || result.Queue == nil {
		t.Errorf("result %+v, error %v, want snoozed events and statistics", result, err)
	}
	if text := lines.String(); text != "" {
		t.Errorf("the pass logged\n%s\nwant nothing", text)
	}
	endpoints := &postgres.Endpoints{Pool: own}
	found, err := endpoints.Of(t.Context(), []string{"a"})
	if err != nil || len(found["a"]) != 1 {
		t.Fatalf("endpoints %+v, error %v, want one", found, err)
	}
	if err := endpoints.Disable(t.Context(), found["a"][0], "http_410"); err != nil {
		t.Error(err)
	}
	if open := scalar[int](t, pool, `select count(*) from outbox_circuits where open_until is not null`); open != 1 {
		t.Errorf("%d circuits are open, want one", open)
	}
}
