package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// steadyState lets producers and passes work at the same time, with and without something that vacuums. The server's
// own autovacuum looks at a table once a minute at most, so that a short run vacuums by itself.
func (b *bench) steadyState(ctx context.Context) (table, error) {
	t := table{columns: []string{
		"vacuum", "delivered events/s", "last quarter events/s", "table bytes/event", "index bytes/event", "dead rows left",
	}}
	for _, every := range []time.Duration{0, b.passTime / 3, b.passTime / 30} {
		db, err := b.outbox(ctx, "steady")
		if err != nil {
			return table{}, err
		}
		row, err := b.steady(ctx, db, every)
		if err := errors.Join(err, b.drop(ctx, db)); err != nil {
			return table{}, err
		}
		name := "never"
		if every > 0 {
			name = "every " + every.String()
		}
		t.rows = append(t.rows, append([]string{name}, row...))
	}
	return t, nil
}

func (b *bench) steady(ctx context.Context, db *database, vacuumEvery time.Duration) ([]string, error) {
	var lock sync.Mutex
	var deliveries []time.Duration
	start := time.Now()
	handler := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
		lock.Lock()
		defer lock.Unlock()
		deliveries = append(deliveries, time.Since(start))
		return nil, nil //nolint:nilnil // no receipt, no error: delivered
	})
	worker, err := outbox.NewWorker(b.lingering(&postgres.Store{Pool: db.Pool}, handler))
	if err != nil {
		return nil, err
	}
	const jobs = 2
	ended := make([]error, jobs)
	limited, stop := context.WithCancel(ctx) // a deadline would be a budget, whose last seconds start nothing
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { ended[0] = runUntil(limited, worker) })
	all.Go(func() { ended[1] = vacuums(limited, db, vacuumEvery) })
	producer := *b
	producer.peerTime = 2 * b.passTime
	_, err = producer.produce(ctx, db, "on")
	stop()
	all.Wait()
	if err := errors.Join(append(ended, err)...); err != nil {
		return nil, err
	}
	after, err := db.footprint(ctx)
	if err != nil {
		return nil, err
	}
	length, n, late := (2 * b.passTime).Seconds(), int64(len(deliveries)), 0
	for _, at := range deliveries {
		if at.Seconds() > length*3/4 {
			late++
		}
	}
	return []string{
		number(float64(n) / length), number(float64(late) / (length / 4)), strconv.FormatInt(after.heap/max(n, 1), 10),
		strconv.FormatInt(after.indexes/max(n, 1), 10), strconv.FormatInt(after.deadRows, 10),
	}, nil
}

// vacuums vacuums the outbox again and again until ctx ends; never when every is 0.
func vacuums(ctx context.Context, db *database, every time.Duration) error {
	if every == 0 {
		return nil
	}
	for wait(ctx, every) == nil {
		if err := db.exec(ctx, "vacuum outbox_events"); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
