package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// longestPause is the longest time between a delivery and the next event, so that it comes at any moment of a pass.
const longestPause = 20 * time.Millisecond

// latencyIdle measures, one event at a time, from sending the commit to the call of its handler, while a pass lingers.
func (b *bench) latencyIdle(ctx context.Context) (err error) {
	db, err := b.outbox(ctx, "latency")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.drop(ctx, db)) }()
	delivered := make(chan time.Time, 1)
	handler := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
		delivered <- time.Now()
		return nil, nil //nolint:nilnil // no receipt, no error: delivered
	})
	worker, err := outbox.NewWorker(b.lingering(&postgres.Store{Pool: db.Pool}, handler))
	if err != nil {
		return err
	}
	lingers, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- runUntil(lingers, worker) }()
	times, err := b.oneByOne(ctx, db, delivered, ended)
	stop()
	if err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	slices.Sort(times)
	b.goal(figure{Name: "latency_idle_p50", Value: milliseconds(percentile(times, 50)), Unit: "ms"}, atMost(20))
	b.goal(figure{Name: "latency_idle_p99", Value: milliseconds(percentile(times, 99)), Unit: "ms"}, atMost(100))
	return nil
}

// lingering configures a worker that waits for events for as long as its context lasts.
func (o options) lingering(store outbox.Store, handler outbox.Handler) outbox.Config {
	config := o.config(store, handler)
	config.Linger = time.Hour
	return config
}

// runUntil runs a pass until ctx ends, which is no fault of it.
func runUntil(ctx context.Context, worker *outbox.Worker) error {
	if _, err := worker.Run(ctx, outbox.Pass{}); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (b *bench) oneByOne(ctx context.Context, db *database, delivered <-chan time.Time, ended chan error) ([]time.Duration, error) {
	var times []time.Duration
	for n := range max(b.events/200, minSamples) {
		if err := wait(ctx, rand.N(longestPause)); err != nil { //nolint:gosec // nothing to guess
			return nil, err
		}
		tx, err := db.Begin(ctx)
		if err != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
		if _, err := postgres.Enqueue(ctx, tx, newEvent(n)); err != nil {
			return nil, errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
		}
		sent := time.Now()
		if err := tx.Commit(ctx); err != nil {
			return nil, fmt.Errorf("commit: %w", err)
		}
		select {
		case at := <-delivered:
			times = append(times, at.Sub(sent))
		case err := <-ended:
			return nil, errors.Join(errors.New("the pass ended"), err)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return times, nil
}
