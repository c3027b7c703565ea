package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// drained is how far one way to drain came.
type drained struct {
	events int
	took   time.Duration
}

func (d drained) perSecond() float64 { return float64(d.events) / d.took.Seconds() }

// drain is one pass of this project's worker.
type drain struct {
	expected int           // events to deliver
	work     time.Duration // of a handler
	limit    time.Duration // ends the pass early, which is then no fault; zero: none
	profile  string        // file for a CPU profile; empty: none
	store    outbox.Store  // nil: PostgreSQL's
}

// handlerTimeout is short, so that a pass with a limit may start events nearly to its end.
const handlerTimeout = time.Second

// config is what every pass of this benchmark uses.
func (o options) config(store outbox.Store, handler outbox.Handler) outbox.Config {
	return outbox.Config{
		Store:     store,
		Registry:  outbox.Registry{eventType: {Handler: handler, Timeout: handlerTimeout}},
		BatchSize: o.batch, Concurrency: o.concurrency,
	}
}

// pass runs d, and checks that each event was delivered once and each aggregate in order.
func (b *bench) pass(ctx context.Context, db *database, d drain) (drained, error) {
	if d.store == nil {
		d.store = &postgres.Store{Pool: db.Pool}
	}
	notes := newDeliveries(d.expected, d.work)
	worker, err := outbox.NewWorker(b.config(d.store, notes))
	if err != nil {
		return drained{}, err
	}
	stopProfile, err := startProfile(d.profile)
	if err != nil {
		return drained{}, err
	}
	var settings outbox.Pass
	if d.limit > 0 {
		settings.SoftBudget = d.limit + handlerTimeout + outbox.MarkMargin
	}
	start := time.Now()
	result, err := worker.Run(ctx, settings)
	took := time.Since(start)
	if err := errors.Join(err, stopProfile()); err != nil {
		return drained{}, err
	}
	if result.Processed != d.expected && (d.limit == 0 || result.Processed == 0) {
		return drained{}, fmt.Errorf("%d events processed, want %d", result.Processed, d.expected)
	}
	return drained{events: result.Processed, took: took}, notes.check(result.Processed)
}

// drainer is a contender that drains a copy of a database by one pass of ours.
func (b *bench) drainer(name, original string, d drain) contender {
	return contender{name, func(ctx context.Context) (speed float64, err error) {
		err = b.use(ctx, original, func(db *database) error {
			done, err := b.pass(ctx, db, d)
			speed = done.perSecond()
			return err
		})
		return speed, err
	}}
}

func startProfile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, fmt.Errorf("profile: %w", errors.Join(err, file.Close()))
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// deliveries is a handler that notes what it is handed, in the order of its calls, and then takes its time.
type deliveries struct {
	next  atomic.Int64
	notes []delivery
	work  time.Duration
}

type delivery struct {
	aggregate string
	position  int64
}

func newDeliveries(expected int, work time.Duration) *deliveries {
	return &deliveries{notes: make([]delivery, expected), work: work}
}

// Handle implements [outbox.Handler].
func (d *deliveries) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	if i := int(d.next.Add(1)) - 1; i < len(d.notes) {
		d.notes[i] = delivery{event.AggregateID, event.Position}
	}
	return nil, wait(ctx, d.work)
}

// wait takes some time without using the CPU, as a delivery does.
func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// check tells whether the expected number of events came, each once, and those of an aggregate in order.
func (d *deliveries) check(expected int) error {
	got := int(d.next.Load())
	if got != expected {
		return fmt.Errorf("%d deliveries, want %d", got, expected)
	}
	last := map[string]int64{}
	for _, n := range d.notes[:min(got, len(d.notes))] {
		if n.position <= last[n.aggregate] {
			return fmt.Errorf("aggregate %s: position %d delivered after %d", n.aggregate, n.position, last[n.aggregate])
		}
		last[n.aggregate] = n.position
	}
	return nil
}
