package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// batcher notes what it is called with, and answers each event by answer; nil delivers.
type batcher struct {
	limit  int
	takes  time.Duration
	answer func(ctx context.Context, event outbox.Event) error

	mu    sync.Mutex
	calls [][]outbox.Event
	began []time.Time
}

func (b *batcher) BatchLimit() int { return b.limit }

func (b *batcher) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	answers := b.HandleBatch(ctx, []outbox.Event{event})
	return answers[0].Receipt, answers[0].Err
}

func (b *batcher) HandleBatch(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	b.mu.Lock()
	b.calls, b.began = append(b.calls, events), append(b.began, time.Now())
	b.mu.Unlock()
	time.Sleep(b.takes)
	answers := make([]outbox.Delivery, len(events))
	for i, event := range events {
		answers[i].Receipt = outbox.Receipt{"batch": len(events)}
		if b.answer != nil {
			answers[i].Err = b.answer(ctx, event)
		}
	}
	return answers
}

// sizes are those of the calls, in order.
func (b *batcher) sizes() (sizes []int) {
	for _, call := range b.calls {
		sizes = append(sizes, len(call))
	}
	return sizes
}

// runOn runs one pass over a memory store.
func runOn(t *testing.T, store *outboxtest.Memory, config outbox.Config) outbox.Result {
	t.Helper()
	config.Store = store
	worker, err := outbox.NewWorker(config)
	if err != nil {
		t.Fatal(err)
	}
	result, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: 10 * time.Minute})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return result
}

func insertMany(store *outboxtest.Memory, eventType string, n, aggregates int) {
	for i := range n {
		store.Insert(outboxtest.Row{Type: eventType, AggregateID: fmt.Sprintf("%s-%d", eventType, i%aggregates)})
	}
}

func TestBatchesAreFullWhileTheQueueHasMore(t *testing.T) {
	t.Parallel()
	for _, batchSize := range []int{1, 7, 25, 100} {
		for _, takes := range []time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second} { // the slower, the more is under way
			synctest.Test(t, func(t *testing.T) {
				store, b := &outboxtest.Memory{}, &batcher{limit: 10, takes: takes}
				insertMany(store, "t", 1000, 1000)
				result := runOn(t, store, outbox.Config{Registry: outbox.Registry{"t": {Handler: b}}, BatchSize: batchSize})
				if result.Processed != 1000 || len(b.calls) > 103 {
					t.Errorf("batch size %d, calls of %v: %d processed in %d calls of sizes %v, want 1000 in about 100",
						batchSize, takes, result.Processed, len(b.calls), b.sizes())
				}
			})
		}
	}
}

func TestABatchHasOneRowOfAnAggregateAndKeepsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := &outboxtest.Memory{}, &batcher{limit: 10, takes: time.Millisecond}
		insertMany(store, "t", 200, 7)
		runOn(t, store, outbox.Config{Registry: outbox.Registry{"t": {Handler: b}}})
		last := map[string]int64{}
		for _, call := range b.calls {
			seen := map[string]bool{}
			for _, event := range call {
				if seen[event.AggregateID] || last[event.AggregateID] >= event.Position {
					t.Fatalf("%s came twice in a batch, or out of order", event.AggregateID)
				}
				seen[event.AggregateID], last[event.AggregateID] = true, event.Position
			}
		}
		if len(b.calls) > 100 {
			t.Errorf("%d calls for 200 events of 7 aggregates, want far fewer", len(b.calls))
		}
	})
}

func TestABatchAnswersEachEventInItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outcomes := map[string]error{
			"discard": outbox.Discard(errors.New("bad")), "retry": errors.New("later"), "processed": nil,
			"benign": outbox.Benign(errors.New("gone")),
		}
		store := &outboxtest.Memory{}
		b := &batcher{limit: 10, answer: func(_ context.Context, event outbox.Event) error { return outcomes[event.AggregateID] }}
		for _, name := range []string{"retry", "processed", "discard", "benign"} {
			store.Insert(outboxtest.Row{Type: "t", AggregateID: name}, outboxtest.Row{Type: "t", AggregateID: name})
		}
		result := runOn(t, store, outbox.Config{Registry: outbox.Registry{"t": {Handler: b}}})
		// Of each aggregate but retry's the second row follows.
		if result.Processed != 2 || result.Retried != 1 || result.Discarded != 4 {
			t.Errorf("%d processed, %d retried, %d discarded, want 2, 1, 4", result.Processed, result.Retried, result.Discarded)
		}
		if got := b.sizes(); !slices.Equal(got, []int{4, 3}) && !slices.Equal(got, []int{4, 1, 2}) {
			t.Logf("calls of sizes %v", got)
		}
	})
}

func TestFailuresBesideADeliveryOpenNoCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &outboxtest.Memory{}
		insertMany(store, "t", 30, 30)
		b := &batcher{limit: 10, answer: func(_ context.Context, event outbox.Event) error {
			if event.Position%10 != 0 {
				return errors.New("refused")
			}
			return nil
		}}
		result := runOn(t, store, outbox.Config{Circuits: store, Registry: outbox.Registry{"t": {Handler: b}}})
		if result.Reason != "" || result.Processed != 3 || result.Retried != 27 {
			t.Errorf("%d processed, %d retried, reason %q, want 3, 27 and none", result.Processed, result.Retried, result.Reason)
		}
	})
}

// short answers fewer events than it was given.
type short struct{ batcher }

func (s *short) HandleBatch(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	return s.batcher.HandleBatch(ctx, events)[:1]
}

func TestWhatABatchLeavesUnansweredIsRetried(t *testing.T) {
	t.Parallel()
	panics := func(context.Context, outbox.Event) error { panic("poison") }
	ignores := func(context.Context, outbox.Event) error { time.Sleep(time.Minute); return nil }
	for name, c := range map[string]struct {
		handler   outbox.Handler
		processed int
		reason    string
	}{
		"short":   {&short{batcher{limit: 10}}, 1, outbox.ReasonUnanswered},
		"panic":   {&batcher{limit: 10, answer: panics}, 0, outbox.ReasonHandlerPanic},
		"abandon": {&batcher{limit: 10, answer: ignores}, 0, outbox.ReasonHandlerTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &outboxtest.Memory{}
				insertMany(store, "t", 4, 4)
				result := runOn(t, store, outbox.Config{Registry: outbox.Registry{"t": {Handler: c.handler}}})
				if result.Processed != c.processed || result.Retried != 4-c.processed {
					t.Errorf("%d processed, %d retried, want %d and the rest", result.Processed, result.Retried, c.processed)
				}
				for _, row := range store.Rows() {
					if row.Status != outboxtest.StatusProcessed && row.Error != c.reason {
						t.Errorf("a row is %s: %q, want %q", row.Status, row.Error, c.reason)
					}
				}
				time.Sleep(time.Hour) // for what was abandoned
			})
		})
	}
}

func TestALoneEventGoesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := &outboxtest.Memory{}, &batcher{limit: 10}
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			insertMany(store, "t", 1, 1)
		}()
		runOn(t, store, outbox.Config{Registry: outbox.Registry{"t": {Handler: b}}, Linger: 5 * time.Second})
		if len(b.began) != 1 || b.began[0].Sub(began) > 1100*time.Millisecond {
			t.Errorf("delivered at %v, want within a moment of its insert after 1 s", b.began)
		}
	})
}

func TestADestinationsConcurrencyHoldsOthersNotBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &outboxtest.Memory{}
		slow, quick := &batcher{takes: time.Second}, &batcher{}
		insertMany(store, "slow", 60, 60)
		insertMany(store, "quick", 60, 60)
		began := time.Now()
		runOn(t, store, outbox.Config{Registry: outbox.Registry{
			"slow":  {Handler: slow, Concurrency: 2, Destination: "slow"},
			"quick": {Handler: quick},
		}})
		if last := slices.MaxFunc(quick.began, time.Time.Compare).Sub(began); len(quick.began) != 60 || last > 2*time.Second {
			t.Errorf("%d quick events by %v, want all 60 within 2 s", len(quick.began), last)
		}
		if took := time.Since(began); len(slow.began) != 60 || took < 30*time.Second || took > 33*time.Second {
			t.Errorf("%d slow events in %v, want 60 two at a time in 30 s", len(slow.began), took)
		}
		for i, at := range slow.began {
			if i >= 2 && at.Sub(slow.began[i-2]) < time.Second {
				t.Fatalf("three calls at once, want two")
			}
		}
	})
}

func TestADestinationsRateIsKeptAndOthersNotHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &outboxtest.Memory{}
		slow, quick := &batcher{}, &batcher{}
		insertMany(store, "slow", 200, 200)
		insertMany(store, "quick", 200, 200)
		began := time.Now()
		runOn(t, store, outbox.Config{Registry: outbox.Registry{
			"slow":  {Handler: slow, Limit: outbox.NewLimit(10), Destination: "slow"},
			"quick": {Handler: quick},
		}})
		if last := slices.MaxFunc(quick.began, time.Time.Compare).Sub(began); len(quick.began) != 200 || last > 4*time.Second {
			t.Errorf("%d quick events by %v, want all 200 in a moment", len(quick.began), last)
		}
		if len(slow.began) != 200 || time.Since(began) > 22*time.Second {
			t.Errorf("%d slow events in %v, want 200 in 20 s", len(slow.began), time.Since(began))
		}
		for i, at := range slow.began {
			if i >= 11 && at.Sub(slow.began[i-11]) < time.Second-time.Millisecond {
				t.Fatalf("12 events in %v, want 11 in a second at most", at.Sub(slow.began[i-11]))
			}
		}
	})
}

// weighty counts by the payload's length.
type weighty struct{ batcher }

func (*weighty) Weight(event outbox.Event) int { return len(event.Payload) }

func TestAWeightCountsAgainstTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, w := &outboxtest.Memory{}, &weighty{batcher{limit: 50}}
		for i := range 40 {
			store.Insert(outboxtest.Row{Type: "t", AggregateID: fmt.Sprint(i), Payload: []byte(`123`)})
		}
		began := time.Now()
		runOn(t, store, outbox.Config{Registry: outbox.Registry{"t": {Handler: w, Limit: outbox.NewLimit(12)}}, BatchSize: 100})
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("40 events of weight 3 took %v at 12 a second, want 10 s less the first second", took)
		}
		for _, size := range w.sizes() {
			if size > 4 {
				t.Errorf("a batch of %d events, want a second's worth at most, 4", size)
			}
		}
	})
}

func TestAnAgedEventIsDiscarded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := &outboxtest.Memory{}, &batcher{}
		store.Insert(outboxtest.Row{Type: "t", AggregateID: "old", CreatedAt: time.Now().Add(-25 * time.Hour)},
			outboxtest.Row{Type: "t", AggregateID: "new", CreatedAt: time.Now().Add(-23 * time.Hour)},
			outboxtest.Row{Type: "u", AggregateID: "other", CreatedAt: time.Now().Add(-25 * time.Hour)})
		result := runOn(t, store, outbox.Config{Registry: outbox.Registry{
			"t": {Handler: b, MaxAge: 24 * time.Hour}, "u": {Handler: b},
		}})
		if result.Processed != 2 || result.Discarded != 1 {
			t.Errorf("%d processed, %d discarded, want 2 and 1", result.Processed, result.Discarded)
		}
		for _, row := range store.Rows() {
			if row.AggregateID == "old" && (row.Status != outboxtest.StatusDiscarded || !strings.HasPrefix(row.Error, outbox.ReasonMaxAge)) {
				t.Errorf("the old row is %s: %q, want it discarded as %s", row.Status, row.Error, outbox.ReasonMaxAge)
			}
		}
	})
}

func TestGatesOfOneCircuitCountAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &outboxtest.Memory{}
		slow, quick := &batcher{}, &batcher{}
		insertMany(store, "slow", 50, 50)
		insertMany(store, "quick", 50, 50)
		began := time.Now()
		runOn(t, store, outbox.Config{Registry: outbox.Registry{
			"slow":  {Handler: slow, Destination: "x", Gate: "a", Limit: outbox.NewLimit(10)},
			"quick": {Handler: quick, Destination: "x", Gate: "b", Concurrency: 50},
		}})
		if last := slices.MaxFunc(quick.began, time.Time.Compare).Sub(began); len(quick.began) != 50 || last > time.Second {
			t.Errorf("%d quick events by %v, want all 50 in a moment", len(quick.began), last)
		}
		if took := time.Since(began); len(slow.began) != 50 || took < 4*time.Second {
			t.Errorf("%d slow events in %v, want 50 in 5 s", len(slow.began), took)
		}
	})
}

func TestAnOutageHoldsEveryGateOfItsCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &outboxtest.Memory{}
		down := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
			return nil, outbox.Snooze(errors.New("down"), 0)
		})
		late := &batcher{}
		insertMany(store, "down", 1, 1)
		insertMany(store, "late", 30, 30)
		runOn(t, store, outbox.Config{Registry: outbox.Registry{
			"down": {Handler: down, Destination: "x", Gate: "a", Concurrency: 1},
			"late": {Handler: late, Destination: "x", Gate: "b", Limit: outbox.NewLimit(1)},
		}})
		if len(late.began) > 1 {
			t.Errorf("%d events sent to a circuit that is open, want one at most, sent before it opened", len(late.began))
		}
	})
}

func TestRoutesOfOneGateShareItsLimits(t *testing.T) {
	t.Parallel()
	b := &batcher{}
	_, err := outbox.NewWorker(outbox.Config{Store: &outboxtest.Memory{}, Registry: outbox.Registry{
		"a": {Handler: b, Destination: "x", Concurrency: 1}, "b": {Handler: b, Destination: "x", Concurrency: 2},
		"c": {Handler: b, MaxAge: -1}, "d": {Handler: b, Concurrency: -1},
	}})
	for _, want := range []string{`"a" and "b" share the gate "x"`, `"c" has max age`, `"d" has concurrency -1`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
