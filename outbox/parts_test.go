package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// customers is a destination of many places, of which some are out; each has its name from the aggregate type.
type customers struct {
	batcher
	out map[string]error
}

func newCustomers() *customers {
	c := &customers{out: map[string]error{}}
	c.answer = func(_ context.Context, event outbox.Event) error { return c.out[event.AggregateType] }
	return c
}

func (c *customers) route() outbox.Route {
	return outbox.Route{
		Handler: c, Destination: "hooks", Part: func(event outbox.Event) string { return event.AggregateType },
	}
}

// tries counts calls for one customer since the last time.
func (c *customers) tries(name string) (n int) {
	for _, call := range c.calls {
		for _, event := range call {
			if event.AggregateType == name {
				n++
			}
		}
	}
	return n
}

func TestEachPartHasACircuitOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"snooze": outbox.Snooze(errors.New("503"), 0), "retries": errors.New("refused"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playParts(t, failure) })
		})
	}
}

// playParts lets one customer of twenty be out for half an hour.
func playParts(t *testing.T, failure error) {
	store, c := &outboxtest.Memory{}, newCustomers()
	config := outbox.Config{
		Circuits: store, Registry: outbox.Registry{"t": c.route()}, Snooze: time.Minute,
	}
	inserted := 0
	tick := func() {
		for customer := range 20 {
			for range 3 {
				inserted++
				store.Insert(outboxtest.Row{Type: "t", AggregateType: fmt.Sprint("c", customer), AggregateID: fmt.Sprint(inserted)})
			}
		}
		began := time.Now()
		runOn(t, store, config)
		time.Sleep(time.Minute - time.Since(began))
	}
	tick()
	c.out["c7"] = failure
	before := c.tries("c7")
	for range 30 {
		tick()
	}
	for customer := range 20 {
		if name := fmt.Sprint("c", customer); customer != 7 && c.tries(name) != inserted/20 {
			t.Errorf("%s was called %d times while c7 was out, want %d", name, c.tries(name), inserted/20)
		}
	}
	// What opens it, those in flight beside it, and a probe every five minutes, or at the ticks between while it is young.
	if tries := c.tries("c7") - before; tries < 5 || tries > 20 {
		t.Errorf("c7 was called %d times while it was out, want about 12", tries)
	}
	delete(c.out, "c7")
	for range 12 {
		tick()
	}
	for _, row := range store.Rows() {
		if row.Status != outboxtest.StatusProcessed {
			t.Errorf("a row of %s is %s with %d attempts: %s", row.AggregateType, row.Status, row.Attempts, row.Error)
		}
		if row.Attempts > 3 {
			t.Errorf("a row of %s took %d attempts, want 3 at most", row.AggregateType, row.Attempts)
		}
	}
}

func TestADisabledDestinationWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	for _, parts := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store, c := &outboxtest.Memory{}, newCustomers()
			route := c.route()
			if !parts {
				route.Part = nil
			}
			other := &batcher{}
			config := outbox.Config{Circuits: store, Registry: outbox.Registry{"t": route, "other": {Handler: other}}}
			c.out["gone"] = outbox.Disable(errors.New("http_410: gone"))
			for i := range 40 {
				store.Insert(outboxtest.Row{Type: "t", AggregateType: "gone", AggregateID: fmt.Sprint(i)},
					outboxtest.Row{Type: "other", AggregateID: fmt.Sprint(i)})
			}
			for range 12 {
				runOn(t, store, config)
				time.Sleep(10 * time.Minute)
			}
			discarded, waiting := 0, 0
			for _, row := range store.Rows() {
				switch {
				case row.Type == "other":
				case row.Status == outboxtest.StatusDiscarded:
					discarded++
				case row.Status != outboxtest.StatusProcessed && row.Attempts == 0:
					waiting++
				}
			}
			if len(other.calls) != 40 {
				t.Errorf("parts %v: %d other events delivered, want all 40", parts, len(other.calls))
			}
			// Those in flight when it was found finish by their own outcome.
			if discarded < 1 || discarded > 16 || discarded+waiting != 40 || c.tries("gone") != discarded {
				t.Errorf("parts %v: %d discarded, %d waiting uncharged, %d calls, want a few discarded and the rest waiting",
					parts, discarded, waiting, c.tries("gone"))
			}
		})
	}
}

func TestAPartThatCannotBeToldIsTheWholeDestination(t *testing.T) {
	t.Parallel()
	parts := map[string]func(outbox.Event) string{
		"panic":   func(outbox.Event) string { panic("poison") },
		"empty":   func(outbox.Event) string { return "" },
		"hostile": func(outbox.Event) string { return strings.Repeat("\x00\xff", 5000) },
	}
	for name, part := range parts {
		synctest.Test(t, func(t *testing.T) {
			store, b := &outboxtest.Memory{}, &batcher{}
			b.answer = func(context.Context, outbox.Event) error { return outbox.Snooze(errors.New("503"), 0) }
			insertMany(store, "t", 3, 3)
			result := runOn(t, store, outbox.Config{
				Circuits: store, Registry: outbox.Registry{"t": {Handler: b, Part: part}}, Concurrency: 1,
			})
			if result.Snoozed < 1 || result.Claimed < 1 || len(b.calls) != 1 {
				t.Errorf("%s: %d snoozed in %d calls, want one call", name, result.Snoozed, len(b.calls))
			}
		})
	}
}

// TestAnyRowProbesACircuitThatPartsShare has a destination of one place and one of many under one circuit. The oldest row, which
// probes, goes to one of the many.
func TestAnyRowProbesACircuitThatPartsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, c, single := &outboxtest.Memory{}, newCustomers(), newCustomers()
		insertMany(store, "many", 50, 50)
		insertMany(store, "single", 20, 20)
		many := c.route()
		many.Gate = "many"
		config := outbox.Config{Circuits: store, Store: store, Registry: outbox.Registry{
			"single": {Handler: single, Destination: many.Destination, Gate: "single"}, "many": many,
		}}
		worker, err := outbox.NewWorker(config)
		if err != nil {
			t.Fatal(err)
		}
		single.answer = func(context.Context, outbox.Event) error { return outbox.Snooze(errors.New("503"), 0) }
		if _, err := worker.Run(t.Context(), outbox.Pass{EventTypes: []string{"single"}}); err != nil {
			t.Fatal(err)
		}
		single.answer = nil
		processed := 0
		for range 6 {
			time.Sleep(time.Minute)
			processed += runOn(t, store, config).Processed
		}
		if processed != 70 {
			t.Errorf("%d of 70 events delivered in six minutes after an outage, want all", processed)
		}
		circuits, err := store.Load(t.Context(), []string{many.Destination}, time.Minute)
		if err != nil || len(circuits) > 0 {
			t.Errorf("circuits %+v, error %v, want none open", circuits, err)
		}
	})
}
