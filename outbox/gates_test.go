package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// TestAPassThatIsOverWaitsForNoLimit plays passes in which nothing more may start while rows wait for a limit.
func TestAPassThatIsOverWaitsForNoLimit(t *testing.T) {
	t.Parallel()
	snooze := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
		time.Sleep(time.Second)
		return nil, outbox.Snooze(errors.New("503"), 0)
	})
	deliver := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) { return outbox.Receipt{}, nil })
	for name, c := range map[string]struct {
		handler outbox.Handler
		cancel  bool
		others  bool // another destination is fine, so that the pass is not over
	}{
		"cancelled":         {deliver, true, false},
		"all out":           {snooze, false, false},
		"nothing else left": {snooze, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &outboxtest.Memory{}
				insertMany(store, "t", 4, 4)
				registry := outbox.Registry{"t": {Handler: c.handler, Limit: outbox.NewLimit(0.02)}}
				if c.others {
					registry["other"] = outbox.Route{Handler: deliver}
				}
				worker, err := outbox.NewWorker(outbox.Config{Store: store, Circuits: store, Registry: registry})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				began := time.Now()
				if _, err := worker.Run(ctx, outbox.Pass{SoftBudget: 10 * time.Minute}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the pass took %v, want what came to an end after a second: the next row may start after 50 s", took)
				}
			})
		})
	}
}

// TestManySlowDestinationsHoldUpNoOther has a backlog of slow ones in front of a fast one's.
func TestManySlowDestinationsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for _, slow := range []int{1, 3, 5, 40} {
		for _, limits := range []string{"rate", "concurrency"} {
			t.Run(fmt.Sprint(slow, " by ", limits), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { playSlow(t, slow, limits == "rate") })
			})
		}
	}
}

func playSlow(t *testing.T, slow int, byRate bool) {
	store, registry, slowOnes := &outboxtest.Memory{}, outbox.Registry{}, make([]*batcher, slow)
	for i := range slow {
		name, b := fmt.Sprint("slow", i), &batcher{}
		slowOnes[i] = b
		insertMany(store, name, 60, 60)
		registry[name] = outbox.Route{Handler: b, Limit: outbox.NewLimit(0.2)}
		if !byRate {
			b.takes = 5 * time.Second
			registry[name] = outbox.Route{Handler: b, Concurrency: 1}
		}
	}
	fast := &batcher{}
	registry["fast"] = outbox.Route{Handler: fast}
	insertMany(store, "fast", 300, 300)
	worker, err := outbox.NewWorker(outbox.Config{Store: store, Registry: registry, Concurrency: slow + 1})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: time.Minute}); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, start := range fast.began {
		if start.Sub(began) < 3*time.Second {
			at++
		}
	}
	if at != 300 {
		t.Errorf("%d of 300 events of a fast destination in the first moments, %d in a minute, want all at once", at, len(fast.calls))
	}
	for i, b := range slowOnes {
		if n := len(b.calls); n < 8 {
			t.Errorf("slow destination %d got %d events in a minute, want about 11 at one in 5 s", i, n)
		}
	}
}

// TestALostRowWaitsForNoLimit has rows of a process that died, beside a slow destination's backlog.
func TestALostRowWaitsForNoLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, fast := &outboxtest.Memory{}, &batcher{limit: 10}
		insertMany(store, "fast", 25, 25)
		if _, err := store.Claim(t.Context(), outbox.ClaimRequest{EventTypes: []string{"fast"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		insertMany(store, "slow", 60, 60)
		insertMany(store, "fast", 300, 300)
		worker, err := outbox.NewWorker(outbox.Config{Store: store, Registry: outbox.Registry{
			"slow": {Handler: &batcher{}, Limit: outbox.NewLimit(0.1)}, "fast": {Handler: fast},
		}})
		if err != nil {
			t.Fatal(err)
		}
		result, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: time.Minute})
		if got := result.ByEventType; err != nil || got["fast"].Processed != 325 || got["slow"].Processed < 4 {
			t.Errorf("in a minute %+v, error %v, want 325 fast ones and about 5 slow ones", got, err)
		}
		if result.LeaseLost+result.DuplicateInRun > 0 {
			t.Errorf("%d leases lost, %d duplicates, want none", result.LeaseLost, result.DuplicateInRun)
		}
	})
}

// thoughtful takes a moment to weigh an event, in which another pass may ask for the limit too.
type thoughtful struct{ batcher }

func (*thoughtful) Weight(outbox.Event) int {
	time.Sleep(time.Millisecond)
	return 1
}

func TestPassesThatShareALimitKeepToItTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, limit := &thoughtful{}, outbox.NewLimit(10)
		var passes sync.WaitGroup
		for range 4 {
			passes.Go(func() {
				store := &outboxtest.Memory{}
				insertMany(store, "t", 15, 15)
				runOn(t, store, outbox.Config{Registry: outbox.Registry{"t": {Handler: b, Limit: limit}}})
			})
		}
		passes.Wait()
		slices.SortFunc(b.began, time.Time.Compare)
		for i := range b.began[:max(0, len(b.began)-10)] {
			if took := b.began[i+10].Sub(b.began[i]); took < time.Second {
				t.Fatalf("11 events of 60 started within %v, want 10 in any second", took)
			}
		}
		if len(b.began) != 60 {
			t.Errorf("%d events started, want 60", len(b.began))
		}
	})
}
