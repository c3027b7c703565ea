package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// insertEvents inserts n order.placed events over the given number of aggregates, round robin, in one statement.
func insertEvents(tb testing.TB, pool *pgxpool.Pool, n, aggregates int) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
select 'order', md5((n % $2::int)::text)::uuid, 'order.placed', n::text, jsonb_build_object('n', n)
from generate_series(1, $1::int) n order by n`, n, aggregates); err != nil {
		tb.Fatalf("insert events: %v", err)
	}
}

func scalar[T any](tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	tb.Helper()
	var got T
	if err := pool.QueryRow(tb.Context(), sql, args...).Scan(&got); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return got
}

// deliveries records what a handler was given, safe for concurrent use.
type deliveries struct {
	mu    sync.Mutex
	count map[string]int     // by event
	order map[string][]int64 // positions by aggregate
}

func (d *deliveries) Handle(_ context.Context, e outbox.Event) (outbox.Receipt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count, d.order = map[string]int{}, map[string][]int64{}
	}
	d.count[e.ID]++
	d.order[e.AggregateID] = append(d.order[e.AggregateID], e.Position)
	return outbox.Receipt{"ok": true}, nil
}

// check fails unless n events arrived, each once and in order of position within its aggregate.
func (d *deliveries) check(tb testing.TB, n int) {
	tb.Helper()
	if len(d.count) != n {
		tb.Errorf("delivered %d different events, want %d", len(d.count), n)
	}
	for id, times := range d.count {
		if times != 1 {
			tb.Errorf("event %s was delivered %d times, want once", id, times)
		}
	}
	for id, positions := range d.order {
		for i := 1; i < len(positions); i++ {
			if positions[i] < positions[i-1] {
				tb.Errorf("aggregate %s: position %d was delivered after %d", id, positions[i], positions[i-1])
			}
		}
	}
}

func newWorker(tb testing.TB, pool *pgxpool.Pool, handler outbox.Handler) *outbox.Worker {
	tb.Helper()
	worker, err := outbox.NewWorker(outbox.Config{
		Store: &postgres.Store{Pool: pool}, Stats: &postgres.Store{Pool: pool}, BatchSize: 100,
		Logger:   slog.New(slog.NewTextHandler(tb.Output(), nil)),
		Registry: outbox.Registry{"order.placed": {Handler: handler, Timeout: 2 * time.Second}},
	})
	if err != nil {
		tb.Fatalf("new worker: %v", err)
	}
	return worker
}

func TestPassDrainsInOrder(t *testing.T) {
	t.Parallel()
	for _, aggregates := range []int{1, 40, 1000} {
		t.Run(fmt.Sprintf("%d aggregates", aggregates), func(t *testing.T) {
			t.Parallel()
			pool := postgrestest.New(t)
			insertEvents(t, pool, 1000, aggregates)
			var got deliveries
			result, err := newWorker(t, pool, &got).Run(t.Context(), outbox.Pass{})
			if err != nil {
				t.Fatalf("run: %v", err)
			}
			got.check(t, 1000)
			if result.Processed != 1000 || result.Claimed != 1000 || !result.OK {
				t.Errorf("result %+v, want 1000 claimed and processed", result)
			}
			if n := scalar[int](t, pool, "select count(*) from outbox_events where status = 'processed' and metadata->'ok' = 'true'"); n != 1000 {
				t.Errorf("%d rows are processed with their receipt, want 1000", n)
			}
		})
	}
}

func TestConcurrentPassesDeliverOnceInOrder(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	insertEvents(t, pool, 4000, 300)
	var got deliveries
	var passes sync.WaitGroup
	for range 4 {
		passes.Go(func() {
			if _, err := newWorker(t, pool, &got).Run(t.Context(), outbox.Pass{}); err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	passes.Wait()
	got.check(t, 4000)
}
