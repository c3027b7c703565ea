package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// listener is told of discards.
type listener struct {
	mu      sync.Mutex
	notices []outbox.Notice
	calls   int
	answer  func(n outbox.Notice) error // nil: all arrive
	broken  func() []error
}

func (l *listener) Notify(_ context.Context, notices []outbox.Notice) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.broken != nil {
		return l.broken()
	}
	answers := make([]error, len(notices))
	for i, notice := range notices {
		if l.answer != nil {
			answers[i] = l.answer(notice)
		}
		if answers[i] == nil {
			l.notices = append(l.notices, notice)
		}
	}
	return answers
}

// ids are those of the notices, sorted.
func (l *listener) ids() []string {
	var ids []string
	for _, notice := range l.notices {
		ids = append(ids, notice.EventID)
	}
	slices.Sort(ids)
	return ids
}

var errDiscard = outbox.Discard(errors.New("no such customer"))

// telling is a worker's configuration in which every event of the types is discarded.
func telling(store *outboxtest.Memory, l *listener, types ...string) outbox.Config {
	registry := outbox.Registry{}
	for _, name := range types {
		registry[name] = outbox.Route{
			OnDiscard: l,
			Handler:   outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) { return nil, errDiscard }),
		}
	}
	return outbox.Config{Store: store, Discards: store, Registry: registry}
}

func TestAPassTellsOfItsDiscardsAndOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, l := &outboxtest.Memory{}, &listener{}
		config := telling(store, l, "a", "b")
		config.Registry["quiet"] = outbox.Route{Handler: config.Registry["a"].Handler}
		var want []string
		for i := range 250 { // discarded by somebody else
			want = append(want, store.Insert(outboxtest.Row{Type: "a", Status: outboxtest.StatusDiscarded, AggregateID: fmt.Sprint("x", i)})...)
		}
		for _, name := range []string{"a", "b"} {
			for i := range 30 {
				want = append(want, store.Insert(outboxtest.Row{Type: name, AggregateID: fmt.Sprint(name, i)})...)
			}
		}
		store.Insert(outboxtest.Row{Type: "quiet"}, outboxtest.Row{Type: "foreign", Status: outboxtest.StatusDiscarded})
		result := runOn(t, store, config)
		slices.Sort(want)
		if got := l.ids(); !slices.Equal(got, want) || result.DiscardsTold != 310 || result.Discarded != 61 {
			t.Errorf("told of %d, result %+v, want each of 310 once", len(got), result)
		}
		if again := runOn(t, store, config); again.DiscardsTold != 0 || len(l.notices) != 310 {
			t.Errorf("a second pass told of %d, want none", again.DiscardsTold)
		}
	})
}

func TestWhatIsNotToldStaysUntold(t *testing.T) {
	t.Parallel()
	down := errors.New("queue is away")
	for name, tc := range map[string]struct {
		breaks func(l *listener)
		log    string
		told   int
	}{
		"each": {func(l *listener) { l.answer = func(outbox.Notice) error { return down } }, "queue is away", 0},
		"one": {func(l *listener) {
			l.answer = func(n outbox.Notice) error { return map[bool]error{true: down}[n.AggregateID == "3"] }
		}, "queue is away", 9},
		"unanswered": {func(l *listener) { l.broken = func() []error { return nil } }, "unanswered", 0},
		"panic":      {func(l *listener) { l.broken = func() []error { panic("poison") } }, "panic: ", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, l := &outboxtest.Memory{}, &listener{}
				for i := range 10 {
					store.Insert(outboxtest.Row{Type: "a", AggregateID: fmt.Sprint(i)})
				}
				config := telling(store, l, "a")
				var lines bytes.Buffer
				config.Logger = slog.New(slog.NewTextHandler(&lines, nil))
				tc.breaks(l)
				if got := runOn(t, store, config); got.DiscardsTold != tc.told || got.Discarded != 10 {
					t.Errorf("told of %d, discarded %d, want %d and 10", got.DiscardsTold, got.Discarded, tc.told)
				}
				if text := lines.String(); strings.Count(text, "discards_untold") != 1 || !strings.Contains(text, tc.log) {
					t.Errorf("log %s, want one line that holds %q", text, tc.log)
				}
				l.answer, l.broken = nil, nil
				if got := runOn(t, store, config); got.DiscardsTold != 10-tc.told || len(l.notices) != 10 {
					t.Errorf("the next pass told of %d, %d in all, want the rest", got.DiscardsTold, len(l.notices))
				}
			})
		})
	}
}

// deafStore does not note what it is told.
type deafStore struct {
	*outboxtest.Memory
	err error
}

func (d *deafStore) Told(context.Context, []outbox.Notice) error { return d.err }

// TestAStoreThatDoesNotHearEndsNoPass: its rows may be locked for hours.
func TestAStoreThatDoesNotHearEndsNoPass(t *testing.T) {
	t.Parallel()
	for _, fault := range []error{nil, errors.New("read-only")} {
		synctest.Test(t, func(t *testing.T) {
			store, l := &outboxtest.Memory{}, &listener{}
			for i := range 300 {
				store.Insert(outboxtest.Row{Type: "a", Status: outboxtest.StatusDiscarded, AggregateID: fmt.Sprint(i)})
			}
			config := telling(store, l, "a")
			config.Discards = &deafStore{store, fault}
			if got := runOn(t, store, config); got.DiscardsTold != 100 || len(l.notices) != 100 {
				t.Errorf("told of %d in %d notices, want the first hundred once", got.DiscardsTold, len(l.notices))
			}
		})
	}
}

func TestTellingKeepsToTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, l := &outboxtest.Memory{}, &listener{}
		l.answer = func(outbox.Notice) error { time.Sleep(49 * time.Millisecond); return nil } // 4.9 s a batch
		for i := range 2000 {
			store.Insert(outboxtest.Row{Type: "a", Status: outboxtest.StatusDiscarded, AggregateID: fmt.Sprint(i)})
		}
		worker, err := outbox.NewWorker(telling(store, l, "a"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		result, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: 20 * time.Second})
		if took := time.Since(began); err != nil || took > 21*time.Second || result.DiscardsTold != 400 {
			t.Errorf("told of %d in %v, error %v, want 400 in under 20 s", result.DiscardsTold, took, err)
		}
	})
}

// TestWhatIsToBeToldIsNotPruned: neither what somebody else discarded a moment ago nor what failed to arrive.
func TestWhatIsToBeToldIsNotPruned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, l := &outboxtest.Memory{}, &listener{}
		l.answer = func(outbox.Notice) error { return errors.New("queue is away") }
		store.Insert(outboxtest.Row{Type: "a"})
		config := telling(store, l, "a")
		config.Pruner, config.Retention = store, outbox.Retention{Processed: outbox.PruneAtOnce, Discarded: outbox.PruneAtOnce}
		if got := runOn(t, store, config); got.Pruned != 0 {
			t.Errorf("%d pruned before anybody was told", got.Pruned)
		}
		time.Sleep(23 * time.Hour)
		l.answer = nil
		if got := runOn(t, store, config); got.DiscardsTold != 1 || got.Pruned != 0 {
			t.Errorf("%d told and %d pruned, want one told", got.DiscardsTold, got.Pruned)
		}
		time.Sleep(2 * time.Hour)
		if got := runOn(t, store, config); got.Pruned != 1 {
			t.Errorf("%d pruned after a day, want one", got.Pruned)
		}
	})
}

// TestALongPassTellsWhenItStartsToLinger: what it discards then is not kept for its end.
func TestALongPassTellsWhenItStartsToLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, l := &outboxtest.Memory{}, &listener{}
		store.Insert(outboxtest.Row{Type: "a"})
		config := telling(store, l, "a")
		config.Linger = 10 * time.Minute
		var at time.Duration
		began := time.Now()
		l.answer = func(outbox.Notice) error { at = time.Since(began); return nil }
		if runOn(t, store, config); len(l.notices) != 1 || at > time.Second {
			t.Errorf("told of %d after %v, want one at once", len(l.notices), at)
		}
	})
}

func TestADiscardIsToldToAnybodyComparable(t *testing.T) {
	t.Parallel()
	registry := outbox.Registry{"a": {Handler: &batcher{}, OnDiscard: sliceListener{}}}
	_, err := outbox.NewWorker(outbox.Config{Store: &outboxtest.Memory{}, Registry: registry})
	if err == nil || !strings.Contains(err.Error(), "takes what is comparable") {
		t.Errorf("error %v, want the notifier refused", err)
	}
}

type sliceListener []string

func (sliceListener) Notify(context.Context, []outbox.Notice) []error { return nil }
