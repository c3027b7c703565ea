package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// TestThousandsOfPartsOneOfThemDown: each event of the others is delivered in the pass that finds it, with a store that
// shares circuits and without one.
func TestThousandsOfPartsOneOfThemDown(t *testing.T) {
	t.Parallel()
	const parts = 3000
	for name, shared := range map[string]bool{"shared": true, "of the pass": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, c := &outboxtest.Memory{}, newCustomers()
				c.out["c7"] = outbox.Snooze(errors.New("503"), 0)
				config := outbox.Config{Registry: outbox.Registry{"t": c.route()}, BatchSize: 500}
				if shared {
					config.Circuits = store
				}
				for i := range 2 * parts {
					store.Insert(outboxtest.Row{Type: "t", AggregateType: fmt.Sprint("c", i%parts), AggregateID: fmt.Sprint(i)})
				}
				for i := range 50 {
					store.Insert(outboxtest.Row{Type: "t", AggregateType: "c7", AggregateID: fmt.Sprint("more ", i)})
				}
				if result := runOn(t, store, config); result.Processed != 2*parts-2 || result.Snoozed != 52 {
					t.Errorf("%d processed and %d snoozed, want %d and 52", result.Processed, result.Snoozed, 2*parts-2)
				}
				if tries := c.tries("c7"); tries > 16 {
					t.Errorf("the one that is down was called %d times, want no more than are called at once", tries)
				}
			})
		})
	}
}

// slowCircuits answers late, and lets a test hold a load back.
type slowCircuits struct {
	outbox.Circuits
	wait, reportWait time.Duration
	reports          atomic.Int64
}

func (s *slowCircuits) Load(ctx context.Context, keys []string, lease time.Duration) ([]outbox.Circuit, error) {
	found, err := s.Circuits.Load(ctx, keys, lease)
	time.Sleep(s.wait)
	return found, err
}

func (s *slowCircuits) Report(ctx context.Context, report outbox.CircuitReport) (outbox.Circuit, error) {
	s.reports.Add(1)
	circuit, err := s.Circuits.Report(ctx, report)
	time.Sleep(s.reportWait)
	return circuit, err
}

// TestALoadFromBeforeDoesNotCloseAPart: what the store said before it heard of an outage must not undo it.
func TestALoadFromBeforeDoesNotCloseAPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, c := &outboxtest.Memory{}, newCustomers()
		answer := c.answer
		c.answer = func(ctx context.Context, event outbox.Event) error {
			time.Sleep(13 * time.Millisecond)
			return answer(ctx, event)
		}
		c.out["down"] = outbox.Snooze(errors.New("503"), 0)
		for i := range 400 {
			store.Insert(outboxtest.Row{Type: "t", AggregateType: "down", AggregateID: fmt.Sprint(i)},
				outboxtest.Row{Type: "t", AggregateType: "up", AggregateID: fmt.Sprint("up ", i)})
		}
		circuits := &slowCircuits{Circuits: store, wait: 30 * time.Millisecond}
		result := runOn(t, store, outbox.Config{
			Circuits: circuits, Registry: outbox.Registry{"t": c.route()}, BatchSize: 40, Concurrency: 4,
		})
		if result.Processed != 400 || c.tries("down") > 4 {
			t.Errorf("%d processed, %d calls of the one that is down, want 400, and no more calls than at once",
				result.Processed, c.tries("down"))
		}
	})
}

// TestReportsOfManyPartsDontOutlastTheBudget: thousands that fail at once have as many circuits to report.
func TestReportsOfManyPartsDontOutlastTheBudget(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"retries": errors.New("refused"), "snoozes": outbox.Snooze(errors.New("503"), 0)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, c := &outboxtest.Memory{}, newCustomers()
				c.answer = func(context.Context, outbox.Event) error { return failure }
				for i := range 2000 {
					store.Insert(outboxtest.Row{Type: "t", AggregateType: fmt.Sprint("c", i), AggregateID: fmt.Sprint(i)})
				}
				circuits := &slowCircuits{Circuits: store, reportWait: 50 * time.Millisecond}
				worker, err := outbox.NewWorker(outbox.Config{
					Store: store, Circuits: circuits, Registry: outbox.Registry{"t": c.route()}, BatchSize: 500,
				})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				result, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: 30 * time.Second})
				if err != nil || result.Claimed != 2000 || result.LeaseLost != 0 {
					t.Errorf("result %+v, error %v, want all claimed", result, err)
				}
				if took := time.Since(began); took > 30*time.Second+outbox.MarkMargin+time.Second {
					t.Errorf("the pass took %v of a budget of 30 s and %v", took, outbox.MarkMargin)
				}
				if circuits.reports.Load() < 200 {
					t.Errorf("%d reports, want as many as fit", circuits.reports.Load())
				}
			})
		})
	}
}

// TestAnAgedEventOfAPartThatIsOutIsDiscarded: it would wait for ever otherwise.
func TestAnAgedEventOfAPartThatIsOutIsDiscarded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, c := &outboxtest.Memory{}, newCustomers()
		c.out["gone"] = outbox.Snooze(errors.New("endpoint_disabled"), 0)
		route := c.route()
		route.MaxAge = time.Hour
		for i := range 30 {
			store.Insert(outboxtest.Row{Type: "t", AggregateType: "gone", AggregateID: fmt.Sprint(i)})
		}
		for range 20 {
			runOn(t, store, outbox.Config{Circuits: store, Registry: outbox.Registry{"t": route}})
			time.Sleep(5 * time.Minute)
		}
		for _, row := range store.Rows() {
			if row.Status != outboxtest.StatusDiscarded || row.Error != "max_age_exceeded: older than 1h0m0s" || row.Attempts > 1 {
				t.Errorf("a row is %s with %d attempts: %q, want discarded for its age", row.Status, row.Attempts, row.Error)
			}
		}
	})
}

func TestPrepareSeesAClaimsEventsBeforePartAndHandler(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"sound": false, "panics": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			prepared, calls, unprepared := map[string]bool{}, 0, 0
			prepare := func(ctx context.Context, events []outbox.Event) {
				mu.Lock()
				defer mu.Unlock()
				calls++
				if _, limited := ctx.Deadline(); !limited {
					t.Error("prepare has no deadline")
				}
				for _, event := range events {
					prepared[event.ID] = true
				}
				if broken {
					panic("poison")
				}
			}
			check := func(event outbox.Event) {
				mu.Lock()
				defer mu.Unlock()
				if !prepared[event.ID] {
					unprepared++
				}
			}
			route := outbox.Route{
				Destination: "d", Prepare: prepare,
				Part: func(event outbox.Event) string { check(event); return event.AggregateType },
				Handler: outbox.HandlerFunc(func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
					check(event)
					return outbox.Receipt{}, nil
				}),
			}
			store := &outboxtest.Memory{}
			insertMany(store, "a", 20, 20)
			insertMany(store, "b", 20, 20)
			result := runOn(t, store, outbox.Config{Registry: outbox.Registry{"a": route, "b": route}, BatchSize: 40})
			if result.Processed != 40 || unprepared != 0 || calls != 1 || len(prepared) != 40 {
				t.Errorf("%d processed; %d were not prepared, %d in %d calls, want all 40 in one", result.Processed, unprepared, len(prepared), calls)
			}
		})
	}
}
