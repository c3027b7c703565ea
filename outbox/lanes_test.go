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
)

// timeline notes when handlers run: "a1 0s..1s".
type timeline struct {
	mu            sync.Mutex
	began         time.Time
	lines         []string
	running, most int
}

func (l *timeline) taking(d time.Duration) outbox.HandlerFunc {
	return func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
		l.mu.Lock()
		l.running++
		l.most = max(l.most, l.running)
		l.mu.Unlock()
		from := time.Since(l.began)
		time.Sleep(d)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running--
		l.lines = append(l.lines, fmt.Sprintf("%s %v..%v", event.ID, from, time.Since(l.began)))
		return outbox.Receipt{}, nil
	}
}

func (l *timeline) want(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(l.lines)
	if !slices.Equal(l.lines, want) {
		t.Errorf("handlers ran\n%s\nwant\n%s", strings.Join(l.lines, "\n"), strings.Join(want, "\n"))
	}
}

// newTimeline lets every handler take a second.
func newTimeline(w *world) *timeline {
	l := &timeline{began: time.Now()}
	for _, events := range w.batches {
		for _, event := range events {
			w.replies[event.ID] = l.taking(time.Second)
		}
	}
	return l
}

func TestLanes(t *testing.T) {
	t.Parallel()
	inBubble(t, "aggregates_run_side_by_side_and_rows_of_one_in_order", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1"), ev("a2"), ev("c1"), ev("b2"), ev("a3")))
		w.config.Concurrency = 0
		l := newTimeline(w)
		result := w.run(t.Context(), t)
		l.want(t, "a1 0s..1s", "a2 1s..2s", "a3 2s..3s", "b1 0s..1s", "b2 1s..2s", "c1 0s..1s")
		wantReply(t, result, reply{claimed: 6, processed: 6, batches: 1, ms: 3000, types: `"t":{"processed":6}`})
	})
	inBubble(t, "kind_and_id_together_name_an_aggregate", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("a2", func(e *outbox.Event) { e.AggregateType = "customer" })))
		w.config.Concurrency = 2
		l := newTimeline(w)
		w.run(t.Context(), t)
		l.want(t, "a1 0s..1s", "a2 0s..1s")
	})
	for _, c := range []struct{ concurrency, most int }{{1, 1}, {3, 3}, {0, 16}, {100, 20}} {
		inBubble(t, fmt.Sprintf("at_most_%d_at_once", c.most), func(t *testing.T) {
			var events []outbox.Event
			for i := range 20 {
				events = append(events, ev(fmt.Sprintf("%c1", 'ア'+i)))
			}
			w := newWorld(events)
			w.config.Concurrency = c.concurrency
			l := newTimeline(w)
			w.run(t.Context(), t)
			if l.most != c.most {
				t.Errorf("%d handlers at once, want %d", l.most, c.most)
			}
		})
	}
	inBubble(t, "the_oldest_free_row_starts_first", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("a2"), ev("b1"), ev("c1")))
		w.config.Concurrency = 2
		l := newTimeline(w)
		w.run(t.Context(), t)
		l.want(t, "a1 0s..1s", "a2 1s..2s", "b1 0s..1s", "c1 1s..2s")
	})
	inBubble(t, "the_next_row_does_not_wait_for_the_settle", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("a2"), ev("a3")))
		w.config.Concurrency = 2
		w.settling = func(context.Context, []outbox.Settlement) { time.Sleep(5 * time.Second) }
		l := newTimeline(w)
		w.run(t.Context(), t)
		l.want(t, "a1 0s..1s", "a2 1s..2s", "a3 2s..3s")
		w.wantLines(t, "settle", `settle a1=processed
			settle a2=processed a3=processed`)
	})
	inBubble(t, "a_missed_settle_ends_the_lane", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("a2"), ev("a3"), ev("b1")))
		w.config.Concurrency = 2
		w.settling = func(context.Context, []outbox.Settlement) { time.Sleep(300 * time.Millisecond) }
		w.answers["a1 processed"] = outbox.Missed
		l := newTimeline(w)
		result := w.run(t.Context(), t)
		l.want(t, "a1 0s..1s", "a2 1s..2s", "b1 0s..1s")
		w.wantSettled(t, "a2", "processed", "a3", "release+0s")
		if result.LeaseLost != 1 || result.Released != 1 {
			t.Errorf("lease lost %d, released %d, want 1 and 1", result.LeaseLost, result.Released)
		}
	})
	for name, spoil := range map[string]func(w *world, first *outbox.Event){
		"retry":   func(w *world, _ *outbox.Event) { w.replies["a1"] = retrying("refused") },
		"discard": func(w *world, _ *outbox.Event) { w.replies["a1"] = discarding("gone") },
		"snooze": func(w *world, e *outbox.Event) {
			w.config.Registry["u"] = w.route(time.Second, "erp")
			e.Type = "u"
			w.replies["a1"] = snoozing("down")
		},
		"panic": func(w *world, _ *outbox.Event) {
			w.replies["a1"] = func(context.Context, outbox.Event) (outbox.Receipt, error) { panic("x") }
		},
		"timeout":         func(w *world, _ *outbox.Event) { w.replies["a1"] = taking(time.Hour, nil) },
		"missing_handler": func(_ *world, e *outbox.Event) { e.Type = "none" },
		"missing_token":   func(_ *world, e *outbox.Event) { e.Metadata = nil },
		"row_set_aside": func(w *world, e *outbox.Event) {
			e.Type = "slow"
			w.config.Registry["slow"] = w.route(58*time.Second+1, "")
		},
	} {
		for _, concurrency := range []int{1, 4} {
			inBubble(t, fmt.Sprintf("end_at_%s_with_concurrency_%d", name, concurrency), func(t *testing.T) {
				events := batch(ev("a1"), ev("a2"), ev("a3"), ev("b1"))
				w := newWorld(events)
				w.config.Concurrency = concurrency
				spoil(w, &events[0])
				w.run(t.Context(), t)
				w.wantSettled(t, "a2", "release+0s", "a3", "release+0s", "b1", "processed")
				if handled := w.lines("handle a2"); len(handled) > 0 {
					t.Error("a2 was handled behind a row that was not processed")
				}
			})
		}
	}
	inBubble(t, "outcomes_that_come_during_a_settle_go_together", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1"), ev("c1")))
		w.config.Concurrency = 3
		w.settling = func(context.Context, []outbox.Settlement) { time.Sleep(time.Minute) }
		w.replies["b1"] = taking(time.Second, nil)
		w.replies["c1"] = taking(2*time.Second, errors.New("refused"))
		w.run(t.Context(), t)
		w.wantLines(t, "settle", `settle a1=processed
			settle b1=processed c1=retry(refused)`)
	})
	inBubble(t, "the_next_batch_does_not_wait_for_a_slow_handler", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1")), batch(ev("c1")))
		w.config.Concurrency = 2
		w.replies["b1"] = taking(5*time.Second, nil)
		w.run(t.Context(), t)
		lines := w.lines("")
		if last := slices.Index(lines, "settle b1=processed"); last < 0 || slices.Index(lines[:last], "handle c1") < 0 {
			t.Errorf("journal is\n%s\nwant c1 before b1's settle", w.text())
		}
	})
	inBubble(t, "a_slow_handler_is_waited_for_less_and_less_busily", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1")))
		w.config.Concurrency = 2
		w.replies["b1"] = taking(9*time.Second, nil)
		w.run(t.Context(), t)
		if n := len(w.requests); n < 5 || n > 20 {
			t.Errorf("%d claims while one handler took 9s, want about one a second", n)
		}
	})
	inBubble(t, "what_is_claimed_ahead_is_bounded", func(t *testing.T) {
		var batches [][]outbox.Event
		for i := range 50 {
			batches = append(batches, batch(ev(string(rune('0'+i))+"1"), ev(string(rune('0'+i))+"2")))
		}
		w := newWorld(batches...)
		w.config.Concurrency, w.config.BatchSize = 2, 2
		waiting, most := 0, 0
		for _, events := range batches {
			for _, event := range events {
				w.replies[event.ID] = func(context.Context, outbox.Event) (outbox.Receipt, error) {
					time.Sleep(time.Second)
					w.mu.Lock()
					defer w.mu.Unlock()
					waiting++
					most = max(most, 2*(50-len(w.batches))-waiting)
					return outbox.Receipt{}, nil
				}
			}
		}
		if result := w.run(t.Context(), t); result.Processed == 0 {
			t.Errorf("processed nothing")
		}
		if most > 4*2+2 {
			t.Errorf("up to %d events were claimed and not handled, want at most 10", most)
		}
	})
}

func TestLeases(t *testing.T) {
	t.Parallel()
	twoMinutes := func(events ...outbox.Event) *world {
		w := newWorld(events)
		w.config.Registry["t"] = w.route(2*time.Minute, "crm")
		w.pass.SoftBudget = time.Hour
		return w
	}
	inBubble(t, "a_row_whose_lease_would_run_out_is_set_aside", func(t *testing.T) {
		w := twoMinutes(ev("a1"), ev("b1"), ev("c1"))
		w.config.Visibility = 5 * time.Minute
		w.replies["a1"] = taking(100*time.Second, nil)
		w.replies["b1"] = taking(78*time.Second+1, nil) // 178 s + 120 s + 2 s is the lease, and one nanosecond more
		result := w.run(t.Context(), t)
		w.wantSettled(t, "a1", "processed", "b1", "processed", "c1", "release+0s")
		if result.Released != 1 {
			t.Errorf("released %d, want 1", result.Released)
		}
	})
	inBubble(t, "equality_fits", func(t *testing.T) {
		w := twoMinutes(ev("a1"), ev("b1"), ev("c1"))
		w.replies["a1"] = taking(100*time.Second, nil)
		w.replies["b1"] = taking(78*time.Second, nil)
		w.run(t.Context(), t)
		w.wantSettled(t, "c1", "processed")
	})
	for _, c := range []struct {
		visibility, fits time.Duration
	}{{time.Second, 5 * time.Minute}, {10 * time.Minute, 10 * time.Minute}, {24 * time.Hour, time.Hour}} {
		inBubble(t, "visibility_of_"+c.visibility.String()+"_leases_as_SQL_clamps_it", func(t *testing.T) {
			w := newWorld(batch(ev("a1"), ev("b1", typed("u"))))
			w.config.Visibility = c.visibility
			w.config.Registry = outbox.Registry{
				"t": w.route(c.fits-2*time.Second, ""), "u": w.route(c.fits-2*time.Second+1, ""),
			}
			w.pass.SoftBudget = 100 * time.Hour
			w.run(t.Context(), t)
			w.wantSettled(t, "a1", "processed", "b1", "release+0s")
			if w.requests[0].Visibility != c.visibility {
				t.Errorf("asked for %v, want %v as configured", w.requests[0].Visibility, c.visibility)
			}
			wantTypes(t, w.requests[0], "t", "u")
			if lines := w.lines("log ERROR handler_exceeds_lease [eventType=u "); len(lines) != 1 {
				t.Errorf("lines %q, want one handler_exceeds_lease", lines)
			}
		})
	}
	inBubble(t, "count_from_before_the_claim_was_sent", func(t *testing.T) {
		w := twoMinutes(ev("a1"))
		slow := slowClaims{w, 178*time.Second + 1}
		w.config.Store = slow
		w.run(t.Context(), t)
		w.wantSettled(t, "a1", "release+0s")
	})
}

// slowClaims answers late.
type slowClaims struct {
	*world
	delay time.Duration
}

func (s slowClaims) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	time.Sleep(s.delay)
	return s.world.Claim(ctx, req)
}

func TestHeldTypes(t *testing.T) {
	t.Parallel()
	inBubble(t, "a_type_that_never_fits_is_held_and_logged_once", func(t *testing.T) {
		w := newWorld(batch(ev("a1")), batch(ev("b1")))
		w.config.Registry["slow"] = w.route(58*time.Second+1, "")
		w.config.Registry["edge"] = w.route(58*time.Second, "")
		w.run(t.Context(), t)
		w.wantLines(t, "log", `log ERROR handler_exceeds_budget [eventType=slow timeoutMs=58000 marginMs=2000 limitMs=60000]`)
		if len(w.requests) != 3 {
			t.Fatalf("%d claims, want 3", len(w.requests))
		}
		for _, req := range w.requests {
			wantTypes(t, req, "edge t", "slow")
		}
	})
	inBubble(t, "no_type_fits", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.withStats(nil)
		w.pass.SoftBudget = 12*time.Second - 1
		result := w.run(t.Context(), t)
		w.wantJournal(t, `log ERROR handler_exceeds_budget [eventType=t timeoutMs=10000 marginMs=2000 limitMs=11999]
			observe finished 0`)
		wantReply(t, result, reply{skipped: true, reason: "budget_too_small"})
	})
	for _, c := range []struct {
		deadline time.Duration
		reason   string
	}{{17 * time.Second, ""}, {17*time.Second - 1, "budget_too_small"}, {4 * time.Second, "budget_too_small"}} {
		inBubble(t, "budget_from_a_deadline_of_"+c.deadline.String(), func(t *testing.T) {
			w := newWorld(batch(ev("a1")))
			w.pass.SoftBudget = 0
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline) // less 3 s and 2 s
			defer cancel()
			result := w.run(ctx, t)
			if result.Reason != c.reason || result.Skipped != (c.reason != "") || result.Processed == 1 != (c.reason == "") {
				t.Errorf("reason %q, skipped %t, processed %d, want reason %q", result.Reason, result.Skipped, result.Processed, c.reason)
			}
		})
	}
	inBubble(t, "without_a_deadline_there_is_no_limit", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.pass.SoftBudget = 0
		w.run(context.WithoutCancel(t.Context()), t)
		w.wantSettled(t, "a1", "processed")
	})
	inBubble(t, "the_reply_comes_before_the_deadline_though_handlers_hang", func(t *testing.T) {
		w := newWorld()
		release := make(chan struct{})
		defer close(release)
		for i := range 200 {
			id := fmt.Sprintf("%c1", 'ア'+i)
			w.batches = append(w.batches, batch(ev(id)))
			w.replies[id] = func(context.Context, outbox.Event) (outbox.Receipt, error) {
				<-release
				return outbox.Receipt{}, nil
			}
			w.config.Registry[id] = w.route(2*time.Second, id)
			w.batches[i][0].Type = id
		}
		w.pass.SoftBudget = 0
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		result := w.run(ctx, t)
		if ctx.Err() != nil {
			t.Error("the pass ended after its deadline")
		}
		if result.Retried != 3 || result.Claimed != 3+result.Released {
			t.Errorf("claimed %d, retried %d, released %d, want 3 retried in 10 s and nothing lost", result.Claimed, result.Retried, result.Released)
		}
	})
	inBubble(t, "manual_event_types_hold_the_others", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.config.Registry["u"] = w.route(time.Second, "")
		w.config.Registry["v"] = w.route(time.Second, "")
		w.pass.EventTypes = []string{"u", "t", "u"}
		w.run(t.Context(), t)
		for _, req := range w.requests {
			wantTypes(t, req, "t u", "v")
		}
	})
	inBubble(t, "unknown_manual_event_types_are_all_named", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.pass.EventTypes = []string{"t", "nope", "nor this"}
		result, err := w.worker(t).Run(t.Context(), w.pass)
		if err == nil || !strings.Contains(err.Error(), `"nope"`) || !strings.Contains(err.Error(), `"nor this"`) {
			t.Errorf("error is %v, want one that names both", err)
		}
		var failure *outbox.StoreError
		if errors.As(err, &failure) || result.OK {
			t.Errorf("ok %t, error %v, want no ok and no failure of the store", result.OK, err)
		}
		w.wantLines(t, "claim", "")
	})
}

func TestRecoveredRowsAlternateWithOrdinaryBatches(t *testing.T) {
	t.Parallel()
	inBubble(t, "neither_can_starve_the_other", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1")), batch(ev("x1", recovered)), batch(ev("c1")), batch(ev("d1")),
			batch(ev("y1", recovered)), batch(ev("z1", recovered)))
		w.run(t.Context(), t)
		var got []bool
		for _, req := range w.requests {
			got = append(got, req.Recover)
		}
		// ordinary first; then one recovered row after each ordinary batch
		if want := []bool{false, true, false, true, false, true, false}; !slices.Equal(got, want) {
			t.Errorf("claims recover %v, want %v", got, want)
		}
	})
}

func TestNumbersAreHandedOnAsConfigured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  outbox.Config
		pass    outbox.Pass
		req     outbox.ClaimRequest
		backoff outbox.Backoff
	}{
		"defaults_are_SQLs": {
			req:     outbox.ClaimRequest{BatchSize: 25, LaneDepth: 25, Visibility: 5 * time.Minute, MaxAttempts: 8},
			backoff: outbox.Backoff{Base: time.Minute, Cap: time.Hour, MaxAttempts: 8},
		},
		"out_of_range_is_the_stores_to_clamp": {
			config: outbox.Config{
				BatchSize: 5000, Visibility: time.Second, MaxAttempts: 99, BackoffBase: time.Millisecond, BackoffCap: 1000 * time.Hour,
			},
			req:     outbox.ClaimRequest{BatchSize: 5000, LaneDepth: 5000, Visibility: time.Second, MaxAttempts: 99},
			backoff: outbox.Backoff{Base: time.Millisecond, Cap: 1000 * time.Hour, MaxAttempts: 99},
		},
		"a_pass_may_name_its_batch_size": {
			config:  outbox.Config{BatchSize: 10},
			pass:    outbox.Pass{BatchSize: 3},
			req:     outbox.ClaimRequest{BatchSize: 3, LaneDepth: 3, Visibility: 5 * time.Minute, MaxAttempts: 8},
			backoff: outbox.Backoff{Base: time.Minute, Cap: time.Hour, MaxAttempts: 8},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(batch(ev("a1")))
			c.config.Store, c.config.Registry, c.config.KnownTypes = w, w.config.Registry, []string{"known", "t"}
			w.config = c.config
			w.pass = c.pass
			w.run(t.Context(), t)
			c.req.EventTypes, c.req.KnownTypes = []string{"t"}, []string{"known", "t"}
			if got, want := fmt.Sprint(w.requests[0]), fmt.Sprint(c.req); got != want {
				t.Errorf("claim is\n%s\nwant\n%s", got, want)
			}
			if w.backoffs[0] != c.backoff {
				t.Errorf("back-off is %+v, want %+v", w.backoffs[0], c.backoff)
			}
		})
	}
}

func TestTypesAreTakenOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, "a_map_changed_later_changes_nothing", func(t *testing.T) {
		w := newWorld(batch(ev("a1")), batch(ev("b1", typed("u"))))
		registry, known := outbox.Registry{"t": w.route(time.Second, "")}, []string{"known"}
		w.config.Registry, w.config.KnownTypes = registry, known
		w.replies["a1"] = func(context.Context, outbox.Event) (outbox.Receipt, error) {
			registry["u"], known[0] = w.route(time.Second, ""), "changed"
			return outbox.Receipt{}, nil
		}
		w.run(t.Context(), t)
		synctest.Wait()
		w.wantSettled(t, "b1", "retry(outbox_handler_missing)")
		if last := w.requests[len(w.requests)-1]; last.KnownTypes[0] != "known" || len(last.EventTypes) != 1 {
			t.Errorf("the last claim is for %q, knowing %q, want what was configured", last.EventTypes, last.KnownTypes)
		}
	})
}
