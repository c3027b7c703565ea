package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

func TestStatistics(t *testing.T) {
	t.Parallel()
	type stats = func(ctx context.Context) (json.RawMessage, error)
	failing := func(text string) stats {
		return func(context.Context) (json.RawMessage, error) { return nil, errors.New(text) }
	}
	for _, c := range []struct {
		name  string
		stats stats
		queue string
		line  string // what follows queue_stats_failed; "" for no line
		ms    int
	}{
		{"passed_through_unread", func(context.Context) (json.RawMessage, error) {
			return json.RawMessage(`{"z":1e400,"a":[null,"ż"],"z":2}`), nil
		}, `{"z":1e400,"a":[null,"ż"],"z":2}`, "", 0},
		{"any_json_value", func(context.Context) (json.RawMessage, error) { return json.RawMessage(`7`), nil }, `7`, "", 0},
		{"just_in_time", func(context.Context) (json.RawMessage, error) {
			time.Sleep(3*time.Second - 1)
			return json.RawMessage(`{}`), nil
		}, `{}`, "", 2999},
		{"late_and_deaf", func(context.Context) (json.RawMessage, error) {
			time.Sleep(4 * time.Second)
			return json.RawMessage(`{}`), nil
		}, "", "deadline_exceeded", 3000},
		{"late_but_listening", func(ctx context.Context) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, errors.New("query: canceling statement")
		}, "", "deadline_exceeded", 3000},
		{"failing", failing("no such view"), "", "no such view", 0},
		{"failing_at_length", failing(strings.Repeat("ż", 301)), "", strings.Repeat("ż", 300), 0},
		{"failing_at_the_limit", failing(strings.Repeat("ż", 300)), "", strings.Repeat("ż", 300), 0},
		{"panicking", func(context.Context) (json.RawMessage, error) { panic(secret) }, "", "panic: string", 0},
		{"absent", func(context.Context) (json.RawMessage, error) { return nil, nil }, "", "statistics are absent or no JSON", 0},
		{
			"no_json", func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{"a":` + secret), nil }, "",
			"statistics are absent or no JSON", 0,
		},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := newWorld(batch(ev("a1")))
			w.withStats(c.stats)
			result := w.run(t.Context(), t)
			wantReply(t, result, reply{
				claimed: 1, processed: 1, batches: 1, ms: c.ms, types: `"t":{"processed":1}`, queue: c.queue,
			})
			tail := w.lines("")
			tail = tail[len(tail)-3:]
			if c.line == "" {
				tail = append([]string{"claim"}, tail[1:]...)
			}
			if tail[len(tail)-1] != "observe finished 1" {
				t.Errorf("the journal ends in %q, want observe finished", tail)
			}
			lines := w.lines("log")
			if c.line == "" && len(lines) > 0 {
				t.Errorf("lines %q, want none", lines)
			}
			if c.line != "" && (len(lines) != 1 || !strings.HasPrefix(lines[0], "log WARN queue_stats_failed "+c.line) || tail[1] != lines[0]) {
				t.Errorf("journal ends in %q, want queue_stats_failed %s, then finished", tail, c.line)
			}
			if strings.HasPrefix(c.name, "failing_at") && !strings.HasSuffix(lines[0], " "+c.line) {
				t.Errorf("line is %q, want it cut to 300 characters", lines)
			}
			if strings.Contains(w.text(), secret) {
				t.Errorf("the journal holds a value:\n%s", w.text())
			}
			time.Sleep(time.Minute) // the deaf one returns
		})
	}
	inBubble(t, "race_real_time_not_the_injected_clock", func(t *testing.T) {
		w := newWorld()
		frozen := time.Now()
		w.config.Clock = func() time.Time { return frozen }
		w.withStats(func(ctx context.Context) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		began := time.Now()
		result := w.run(t.Context(), t)
		if took := time.Since(began); took != 3*time.Second || result.RunMs != 0 {
			t.Errorf("took %v and says %d ms, want 3s of real time and 0 ms by the clock", took, result.RunMs)
		}
	})
	inBubble(t, "none_configured_is_no_failure", func(t *testing.T) {
		w := newWorld()
		w.run(t.Context(), t)
		w.wantJournal(t, "claim\nobserve finished 0")
	})
}

func TestRunMsIsWholeMillisecondsByTheClock(t *testing.T) {
	t.Parallel()
	w := newWorld()
	now := time.Unix(0, 0)
	w.config.Clock = func() time.Time { now = now.Add(700 * time.Microsecond); return now }
	calls := 0
	clock := w.config.Clock
	w.config.Clock = func() time.Time { calls++; return clock() }
	result := w.run(t.Context(), t)
	if want := (time.Duration(calls-1) * 700 * time.Microsecond).Milliseconds(); result.RunMs != want {
		t.Errorf("%d ms after %d readings of the clock, want %d", result.RunMs, calls, want)
	}
}

// panickingLog panics in every way a slog.Handler can.
type panickingLog struct{ enabled bool }

func (l panickingLog) Enabled(context.Context, slog.Level) bool {
	if !l.enabled {
		panic("enabled")
	}
	return true
}
func (panickingLog) Handle(context.Context, slog.Record) error { panic("handle") }
func (l panickingLog) WithAttrs([]slog.Attr) slog.Handler      { return l }
func (l panickingLog) WithGroup(string) slog.Handler           { return l }

func TestFaultsOfObserverAndLoggerTouchNothing(t *testing.T) {
	t.Parallel()
	events := func() []outbox.Event {
		return batch(ev("a1", metadata(`{}`)), ev("b1"), ev("c1"), ev("d1"), ev("e1", typed("none")), ev("f1"))
	}
	given := func(w *world) {
		w.replies["b1"] = discarding("gone")
		w.replies["c1"] = func(context.Context, outbox.Event) (outbox.Receipt, error) { panic("x") }
		w.answers["d1 processed"] = outbox.Missed
		w.withStats(func(context.Context) (json.RawMessage, error) { return nil, errors.New("no") })
		w.config.Registry["never"] = w.route(time.Hour, "")
	}
	want := reply{
		claimed: 6, processed: 1, retried: 2, discarded: 1, leaseLost: 2, batches: 1,
		types: `"none":{"retried":1},"t":{"processed":1,"retried":1,"discarded":1,"leaseLost":2}`, ids: `"b1"`,
	}
	for name, spoil := range map[string]func(w *world){
		"nothing_spoiled":        func(*world) {},
		"observer_panics":        func(w *world) { w.config.Observer = func(string, int) { panic("observer") } },
		"no_observer":            func(w *world) { w.config.Observer = nil },
		"logger_panics":          func(w *world) { w.config.Logger = slog.New(panickingLog{enabled: true}) },
		"logger_panics_at_level": func(w *world) { w.config.Logger = slog.New(panickingLog{}) },
		"no_logger":              func(w *world) { w.config.Logger = nil },
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(events())
			given(w)
			spoil(w)
			wantReply(t, w.run(t.Context(), t), want)
			w.wantLines(t, "settle", `settle b1=discard(gone)
				settle c1=retry(handler_panic)
				settle d1=processed
				settle e1=retry(outbox_handler_missing)
				settle f1=processed`)
		})
	}
}

func TestLogLinesHaveOneValue(t *testing.T) {
	t.Parallel()
	inBubble(t, "as_the_contract_types_them", func(t *testing.T) {
		var text strings.Builder
		w := newWorld(batch(ev("a1", metadata(`{}`)), ev("b1", attempts(3)), ev("c1"), ev("d1")))
		w.config.Logger = slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))
		w.replies["b1"] = answering(outbox.Benign(errors.New("opted out")))
		w.replies["c1"] = discarding("gone")
		w.answers["d1 processed"] = outbox.Missed
		w.withStats(func(context.Context) (json.RawMessage, error) { return nil, errors.New("no") })
		w.run(t.Context(), t)
		want := unindent(`{"level":"ERROR","msg":"[outbox-dispatch] missing_claim_token","value":"a1"}
			{"level":"WARN","msg":"[outbox-dispatch] event_discarded","value":{"eventId":"b1","eventType":"t","aggregateId":"b","attempts":3,"reason":"opted out","benign":true}}
			{"level":"ERROR","msg":"[outbox-dispatch] event_discarded","value":{"eventId":"c1","eventType":"t","aggregateId":"c","attempts":1,"reason":"gone"}}
			{"level":"WARN","msg":"[outbox-dispatch] outbox_lease_lost","value":"d1"}
			{"level":"WARN","msg":"[outbox-dispatch] queue_stats_failed","value":"no"}`)
		if got := strings.TrimSpace(text.String()); got != want {
			t.Errorf("log is\n%s\nwant\n%s", got, want)
		}
	})
}

func TestStoreFailures(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection refused")
	nth := func(numbers ...int) func(int) error {
		return func(n int) error {
			if slices.Contains(numbers, n) {
				return broken
			}
			return nil
		}
	}
	for _, c := range []struct {
		name    string
		given   func(w *world)
		op      string
		journal string
		want    reply
	}{
		{
			"the_first_claim", func(w *world) { w.claimErr = nth(1) }, "claim", `claim`, reply{},
		},
		{
			"a_later_claim", func(w *world) { w.claimErr = nth(2) }, "claim", `claim
				observe claimed 3
				handle a1
				settle a1=processed
				handle b1
				settle b1=processed
				handle c1
				settle c1=processed
				claim`, reply{claimed: 3, processed: 3, batches: 1, types: `"t":{"processed":3}`},
		},
		{
			"a_settle_once_the_rest_is_handed_back", func(w *world) { w.settleErr = nth(2) }, "settle", `claim
				observe claimed 3
				handle a1
				settle a1=processed
				handle b1
				settle b1=processed
				settle b1=processed c1=release+0s`,
			reply{claimed: 3, processed: 2, released: 1, batches: 1, types: `"t":{"processed":2}`},
		},
		{
			"a_settle_for_good", func(w *world) { w.settleErr = nth(1, 2) }, "settle", `claim
				observe claimed 3
				handle a1
				settle a1=processed
				settle a1=processed b1=release+0s c1=release+0s`, reply{claimed: 3, batches: 1},
		},
		{
			"the_release_of_a_break", func(w *world) {
				w.settleErr = nth(2)
				w.replies["a1"] = snoozing("down")
			}, "settle", `claim
				observe claimed 3
				handle a1
				settle a1=snooze(down)+5m0s
				settle b1=release+5m0s c1=release+5m0s
				settle b1=release+5m0s c1=release+5m0s`,
			reply{claimed: 3, snoozed: 1, released: 2, batches: 1, types: `"t":{"snoozed":1}`},
		},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := newWorld(batch(ev("a1"), ev("b1"), ev("c1")))
			w.withStats(func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{}`), nil })
			c.given(w)
			result, err := w.worker(t).Run(t.Context(), w.pass)
			var failure *outbox.StoreError
			if !errors.As(err, &failure) || failure.Op != c.op || !errors.Is(err, broken) {
				t.Errorf("error is %v, want a StoreError of %s around %v", err, c.op, broken)
			}
			w.wantJournal(t, c.journal)
			if result.OK {
				t.Error("ok is true beside an error")
			}
			result.OK, result.Reason = true, ""
			wantReply(t, result, c.want)
		})
	}
	inBubble(t, "too_few_answers_are_one", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.config.Store = shortStore{w}
		_, err := w.worker(t).Run(t.Context(), w.pass)
		var failure *outbox.StoreError
		if !errors.As(err, &failure) || failure.Op != "settle" {
			t.Errorf("error is %v, want a StoreError of settle", err)
		}
	})
	inBubble(t, "handlers_in_flight_end_by_their_own_outcome", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1"), ev("b2"), ev("c1")))
		w.config.Concurrency = 2
		w.settleErr = nth(1)
		w.replies["b1"] = taking(time.Second, nil)
		result, err := w.worker(t).Run(t.Context(), w.pass)
		if err == nil || result.OK {
			t.Errorf("ok %t, error %v, want false and an error", result.OK, err)
		}
		w.wantSettled(t, "b1", "processed", "b2", "release+0s")
		if result.Processed < 2 || result.Processed+result.Released != 4 {
			t.Errorf("processed %d, released %d, want all four rows in the two", result.Processed, result.Released)
		}
	})
	inBubble(t, "a_silent_store_is_given_up", func(t *testing.T) {
		w := newWorld()
		w.config.Store = silentStore{w}
		w.pass.SoftBudget = 15 * time.Second
		began := time.Now()
		_, err := w.worker(t).Run(t.Context(), w.pass)
		if took := time.Since(began); err == nil || took > 17*time.Second {
			t.Errorf("error %v after %v, want one before the budget and its margin end", err, took)
		}
	})
}

// shortStore forgets the answers.
type shortStore struct{ *world }

func (shortStore) Settle(context.Context, []outbox.Settlement, outbox.Backoff) ([]outbox.Answer, error) {
	return nil, nil
}

// silentStore never answers a claim.
type silentStore struct{ *world }

func (silentStore) Claim(ctx context.Context, _ outbox.ClaimRequest) (outbox.Claim, error) {
	<-ctx.Done()
	return outbox.Claim{}, ctx.Err()
}
