//go:build soak

package limits_test

import (
	"sync"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const insertMany = `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
	select 'order', md5($1::text || n % $3::int)::uuid, 'order.placed', $1::text || n, jsonb_build_object('n', n)
	from generate_series(1, $2::int) n order by n`

// A producer writes 100,000 events in one transaction. While it is open others' events are delivered; once it is committed
// two passes at once deliver its own, each once and in order. Rolled back, they are never seen.
func TestSoakOneTransactionOfAHundredThousand(t *testing.T) {
	t.Parallel()
	n, before := number(t, "SOAK_TRANSACTION", 100_000), 100
	pool := connect(t, postgrestest.URL(t), nil)
	var got record
	worker := newWorker(t, pool, outbox.Config{
		BatchSize: 1000, Concurrency: 64, Registry: outbox.Registry{"order.placed": {Handler: &got, Timeout: 10 * time.Second}},
	})
	start := time.Now()
	for _, end := range []string{"rollback", "commit"} {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		for _, sql := range []string{"begin", end} {
			if sql == end {
				if _, err := conn.Exec(t.Context(), insertMany, "big", n, n/10); err != nil {
					t.Fatal(err)
				}
				execute(t, pool, insertMany, end, before, 10)
				if result := run(t, worker); result.Processed != before {
					t.Errorf("beside the open transaction %d events were delivered, want %d", result.Processed, before)
				}
			}
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	inserted := time.Since(start)
	start = time.Now()
	var passes sync.WaitGroup
	results := make([]outbox.Result, 2)
	for i := range results {
		passes.Go(func() {
			var err error
			if results[i], err = worker.Run(t.Context(), outbox.Pass{}); err != nil {
				t.Errorf("pass: %v", err)
			}
		})
	}
	passes.Wait()
	drained := time.Since(start)
	got.check(t, n+2*before)
	if left := scalar[int](t, pool, "select count(*) from outbox_events where status <> 'processed'"); left > 0 {
		t.Errorf("%d events are left, want none", left)
	}
	t.Logf("the ledger\n%d events in one transaction, after as many that were rolled back: inserted in %.1f s\n"+
		"two passes at once delivered %d and %d in %.1f s; 0 came twice, 0 out of order",
		n, inserted.Seconds(), results[0].Processed, results[1].Processed, drained.Seconds())
}
