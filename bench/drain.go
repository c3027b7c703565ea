package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
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

// measureDrains drains the same backlog by this project's worker and by its peers, one after the other. The worker's
// figure comes first in the report, with its ratio to each peer behind the peer's.
func measureDrains(ctx context.Context, ws *workspace, o options, r *report) error {
	ours, err := inOutbox(ctx, ws, "drain_worker", o.events, func(db *database) (drained, error) {
		return drainWorker(ctx, db, o)
	})
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	r.add(figure{Name: "drain_noop", Value: ours.perSecond(), Unit: "events/s"})
	if len(o.workers) == 0 {
		return nil
	}
	against := func(peer string, speed, limit float64) {
		r.add(figure{Name: "peer_" + peer, Value: speed, Unit: "events/s"})
		r.compare(figure{Name: "drain_noop_to_" + peer, Value: ours.perSecond(), Unit: "events/s"}, "peer_"+peer, target{limit: limit})
	}
	for _, p := range []struct {
		name  string
		batch int
		limit float64
	}{{"claim_1_ack_1", 1, 25}, {"claim_100_ack_1", 100, 8}} {
		peer, err := inOutbox(ctx, ws, p.name, o.events, func(db *database) (drained, error) {
			return drainPlain(ctx, db, p.batch, o.peerTime)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		against(p.name, peer.perSecond(), p.limit)
	}
	best := 0.0
	for _, workers := range o.workers {
		peer, err := drainRiver(ctx, ws, o.events, workers)
		if err != nil {
			return fmt.Errorf("river with %d workers: %w", workers, err)
		}
		r.add(figure{Name: "peer_river_" + strconv.Itoa(workers), Value: peer.perSecond(), Unit: "events/s"})
		best = max(best, peer.perSecond())
	}
	against("river_best", best, 1.3)
	return nil
}

// inOutbox drains n events in a database that lives as long as the drain.
func inOutbox(ctx context.Context, ws *workspace, name string, n int, drain func(*database) (drained, error)) (drained, error) {
	db, err := ws.outbox(ctx, name)
	if err != nil {
		return drained{}, err
	}
	if err := backlog(ctx, db, n); err != nil {
		return drained{}, err
	}
	ws.settle(ctx)
	d, err := drain(db)
	return d, errors.Join(err, ws.drop(ctx, db))
}

// settle flushes what filling the table left to write, so that no measurement pays for it. Without the right to do so
// the checkpoint comes whenever it comes.
func (ws *workspace) settle(ctx context.Context) { _, _ = ws.server.Exec(ctx, "checkpoint") }

// drainWorker runs one pass with a handler that does nothing but note the order.
func drainWorker(ctx context.Context, db *database, o options) (drained, error) {
	notes := newDeliveries(o.events)
	worker, err := outbox.NewWorker(outbox.Config{
		Store:     &postgres.Store{Pool: db.Pool},
		Registry:  outbox.Registry{eventType: {Handler: notes}},
		BatchSize: claimSize, Concurrency: 100,
	})
	if err != nil {
		return drained{}, err
	}
	stopProfile, err := startProfile(o.profile)
	if err != nil {
		return drained{}, err
	}
	start := time.Now()
	result, err := worker.Run(ctx, outbox.Pass{})
	took := time.Since(start)
	if err := errors.Join(err, stopProfile()); err != nil {
		return drained{}, err
	}
	if result.Processed != o.events {
		return drained{}, fmt.Errorf("%d events processed, want %d", result.Processed, o.events)
	}
	return drained{events: result.Processed, took: took}, notes.check(o.events)
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

// deliveries is a handler that notes what it is handed, in the order of its calls.
type deliveries struct {
	next  atomic.Int64
	notes []delivery
}

type delivery struct {
	aggregate string
	position  int64
}

func newDeliveries(expected int) *deliveries { return &deliveries{notes: make([]delivery, expected)} }

// Handle implements [outbox.Handler].
func (d *deliveries) Handle(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
	if i := int(d.next.Add(1)) - 1; i < len(d.notes) {
		d.notes[i] = delivery{event.AggregateID, event.Position}
	}
	return nil, nil //nolint:nilnil // no receipt, no error: delivered
}

// check tells whether each of the expected events came once, and those of an aggregate in order.
func (d *deliveries) check(expected int) error {
	if got := int(d.next.Load()); got != expected {
		return fmt.Errorf("%d deliveries, want %d", got, expected)
	}
	last := map[string]int64{}
	for _, n := range d.notes {
		if n.position <= last[n.aggregate] {
			return fmt.Errorf("aggregate %s: position %d delivered after %d", n.aggregate, n.position, last[n.aggregate])
		}
		last[n.aggregate] = n.position
	}
	return nil
}
