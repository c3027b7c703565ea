package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// gardener prunes as its script says, and notes into a world's journal.
type gardener struct {
	w     *world
	prune func(ctx context.Context, n int) (int, error) // n counts the calls from 1

	mu    sync.Mutex
	calls int
}

func (g *gardener) Prune(ctx context.Context, retention outbox.Retention, limit int) (int, error) {
	g.mu.Lock()
	g.calls++
	n := g.calls
	g.mu.Unlock()
	g.w.note("prune %v %v %d", retention.Processed, retention.Discarded, limit)
	return g.prune(ctx, n)
}

// withPruner gives the world a store of that many finished events; each call takes so long.
func (w *world) withPruner(events int, takes time.Duration) *gardener {
	left := events
	g := &gardener{w: w, prune: func(ctx context.Context, _ int) (int, error) {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		n := min(left, 500)
		left -= n
		return n, nil
	}}
	w.config.Pruner = g
	return g
}

func TestPassPrunesInWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events, handler, takes int // the last two in seconds
		retention              outbox.Retention
		calls, pruned          int
		line                   string
	}{
		"nothing to prune":      {0, 1, 0, outbox.Retention{}, 1, 0, "prune 720h0m0s 2160h0m0s 500"},
		"until nothing is left": {1200, 1, 1, outbox.Retention{}, 3, 1200, "prune 720h0m0s 2160h0m0s 500"},
		"own ages":              {10, 1, 0, outbox.Retention{Processed: time.Hour, Discarded: outbox.KeepForever}, 1, 10, "prune 1h0m0s -1ns 500"},
		"keeps all":             {10, 1, 0, outbox.Retention{Processed: outbox.KeepForever, Discarded: -time.Hour}, 0, 0, ""},
		// 20 s, of which a handler takes 5: calls begin at 5, 9, 13 and 17.
		"until the budget ends": {100000, 5, 4, outbox.Retention{}, 4, 1500, "prune 720h0m0s 2160h0m0s 500"},
		// Settling takes another 9.5 s.
		"no time is left": {100000, 9, 4, outbox.Retention{}, 0, 0, ""},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(batch(ev("a1")))
			w.pass.SoftBudget = 20 * time.Second
			w.replies["a1"] = taking(time.Duration(c.handler)*time.Second, nil)
			if c.handler == 9 {
				w.settling = func(context.Context, []outbox.Settlement) { time.Sleep(9500 * time.Millisecond) }
			}
			g := w.withPruner(c.events, time.Duration(c.takes)*time.Second)
			w.config.Retention = c.retention
			began := time.Now()
			result := w.run(t.Context(), t)
			if g.calls != c.calls || result.Pruned != c.pruned {
				t.Errorf("%d calls pruned %d, want %d and %d\n%s", g.calls, result.Pruned, c.calls, c.pruned, w.text())
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("the pass took %v, want at most its budget", took)
			}
			if lines := w.lines("prune"); len(lines) > 0 && lines[0] != c.line {
				t.Errorf("it asked %q, want %q", lines[0], c.line)
			}
			if settle, prune := strings.LastIndex(w.text(), "settle"), strings.Index(w.text(), "prune"); prune >= 0 && prune < settle {
				t.Errorf("it pruned before all was settled:\n%s", w.text())
			}
		})
	}
}

func TestPruneFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prune  func(ctx context.Context, n int) (int, error)
		line   string
		took   time.Duration
		pruned int
	}{
		"error": {func(context.Context, int) (int, error) { return 0, errors.New("no\x00right") }, "no\uFFFDright", 0, 0},
		"later error": {func(_ context.Context, n int) (int, error) {
			if n == 3 {
				return 0, errors.New("gone")
			}
			return 500, nil
		}, "gone", 0, 1000},
		"panic": {func(context.Context, int) (int, error) { panic("hunter2") }, "panic: string", 0, 0},
		"late": {func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			return 0, fmt.Errorf("prune: %w", ctx.Err())
		}, "deadline_exceeded", 20 * time.Second, 0},
		"ignores its context": {func(context.Context, int) (int, error) {
			time.Sleep(time.Hour)
			return 1, nil
		}, "deadline_exceeded", 20 * time.Second, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(batch(ev("a1")))
			w.pass.SoftBudget = 20 * time.Second
			w.withStats(func(context.Context) (json.RawMessage, error) { return json.RawMessage("{}"), nil })
			w.config.Pruner = &gardener{w: w, prune: c.prune}
			began := time.Now()
			result := w.run(t.Context(), t)
			if took := time.Since(began); took != c.took {
				t.Errorf("the pass took %v, want %v", took, c.took)
			}
			if result.Processed != 1 || result.Pruned != c.pruned || string(result.Queue) != "{}" {
				t.Errorf("result is %+v, want one event processed, %d pruned, and statistics", result, c.pruned)
			}
			lines := w.lines("log WARN prune_failed")
			time.Sleep(time.Hour) // the one that is abandoned ends
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "log WARN prune_failed "+c.line) || strings.Contains(w.text(), "hunter2") {
				t.Errorf("logged %q, want prune_failed %s", lines, c.line)
			}
		})
	}
}

func TestLingeringPassPrunesOnceAndDelaysNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, "lingers", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.config.Linger, w.pass.SoftBudget = time.Minute, 30*time.Second
		var delivered time.Time
		w.replies["b1"] = func(context.Context, outbox.Event) (outbox.Receipt, error) {
			delivered = time.Now()
			return outbox.Receipt{}, nil
		}
		began := time.Now()
		g := w.withPruner(1200, 3*time.Second)
		late := time.AfterFunc(5*time.Second, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.batches = append(w.batches, batch(ev("b1")))
		})
		defer late.Stop()
		result := w.run(t.Context(), t)
		if g.calls != 3 || result.Pruned != 1200 {
			t.Errorf("%d calls pruned %d, want 3 and 1200", g.calls, result.Pruned)
		}
		if at := delivered.Sub(began); at < 5*time.Second || at > 5*time.Second+100*time.Millisecond {
			t.Errorf("what came after 5 s was delivered after %v, while it pruned", at)
		}
	})
}

func TestFailedAndCancelledPassesDontPrune(t *testing.T) {
	t.Parallel()
	inBubble(t, "failed", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.claimErr = func(int) error { return errors.New("down") }
		g := w.withPruner(100, 0)
		if _, err := w.worker(t).Run(t.Context(), w.pass); err == nil || g.calls != 0 {
			t.Errorf("error %v and %d calls, want an error and none", err, g.calls)
		}
	})
	inBubble(t, "fails while it lingers", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.config.Linger = time.Minute
		w.claimErr = func(n int) error {
			if n > 10 {
				return errors.New("down")
			}
			return nil
		}
		w.withPruner(100, 0).prune = func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		began := time.Now()
		_, err := w.worker(t).Run(t.Context(), w.pass)
		if took := time.Since(began); err == nil || took > time.Second || len(w.lines("log WARN prune_failed")) > 0 {
			t.Errorf("error %v after %v, want the store's, at once and alone\n%s", err, took, w.text())
		}
	})
	inBubble(t, "cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld(batch(ev("a1")))
		w.replies["a1"] = func(context.Context, outbox.Event) (outbox.Receipt, error) {
			cancel()
			return outbox.Receipt{}, nil
		}
		g := w.withPruner(100, 0)
		if result := w.run(ctx, t); g.calls != 0 || result.Reason != outbox.ReasonCancelled {
			t.Errorf("%d calls, reason %q, want none and %s", g.calls, result.Reason, outbox.ReasonCancelled)
		}
	})
}
