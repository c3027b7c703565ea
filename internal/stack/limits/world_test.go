// Package limits goes where queues break: many types, big transactions and payloads, a deep backlog, clocks that are off,
// odd time zones, another cluster. The long ones have the build tag soak and print a ledger.
package limits_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openlup/outbox-dispatch/outbox"
	outboxpostgres "github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/sql"

	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
)

func TestMain(m *testing.M) {
	postgres.Helper()
	os.Exit(m.Run())
}

// connect opens a pool that ends with the test; change may be nil.
func connect(t *testing.T, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	config.MaxConns = 6
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// server starts a server for one test, whose clock may be ahead, without the outbox in it.
func server(t *testing.T, ahead time.Duration) string {
	t.Helper()
	s, err := postgres.Start(t.Context(), postgres.Config{Ahead: ahead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s.URL
}

func migrate(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := (&outboxpostgres.Migrator{Pool: pool, Files: sql.Files}).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
}

func scalar[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (value T) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
	return value
}

// record is a handler that remembers what came.
type record struct {
	mu     sync.Mutex
	events []outbox.Event // first deliveries, without their payloads
	times  map[string]int // deliveries by id
}

// Handle implements [outbox.Handler].
func (r *record) Handle(_ context.Context, e outbox.Event) (outbox.Receipt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.times == nil {
		r.times = map[string]int{}
	}
	if r.times[e.ID]++; r.times[e.ID] == 1 {
		e.Payload, e.Metadata = nil, nil
		r.events = append(r.events, e)
	}
	return nil, nil //nolint:nilnil // no receipt, no error: delivered
}

// check fails unless n different events came, each once, and those of an aggregate in order.
func (r *record) check(t *testing.T, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) != n {
		t.Errorf("%d different events were delivered, want %d", len(r.events), n)
	}
	last := map[string]int64{}
	inversions := 0
	for _, e := range r.events {
		if e.Position <= last[e.AggregateID] {
			inversions++
		}
		last[e.AggregateID] = e.Position
	}
	repeated := 0
	for _, times := range r.times {
		repeated += times - 1
	}
	if inversions > 0 || repeated > 0 {
		t.Errorf("%d deliveries out of order, %d repeated, want none", inversions, repeated)
	}
}

// newWorker makes a worker on the pool's outbox. The config's store may be empty.
func newWorker(t *testing.T, pool *pgxpool.Pool, config outbox.Config) *outbox.Worker {
	t.Helper()
	store := &outboxpostgres.Store{Pool: pool}
	config.Store, config.Circuits, config.Stats, config.Pruner = store, store, store, store
	worker, err := outbox.NewWorker(config)
	if err != nil {
		t.Fatalf("new worker: %v", err)
	}
	return worker
}

func run(t *testing.T, worker *outbox.Worker) outbox.Result {
	t.Helper()
	result, err := worker.Run(t.Context(), outbox.Pass{})
	if err != nil {
		t.Fatalf("pass: %v", err)
	}
	return result
}
