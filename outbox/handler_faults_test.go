package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

const secret = "s3cr3t-payload"

// leakyError panics when it is asked for its text.
type leakyError struct{ text string }

func (e *leakyError) Error() string { return "leaky " + e.text }

// leakyValue panics when it is encoded or printed.
type leakyValue struct{}

func (leakyValue) MarshalJSON() ([]byte, error) { panic(secret) }
func (leakyValue) String() string               { panic(secret) }

func TestHandlerPanics(t *testing.T) {
	t.Parallel()
	var index int
	for _, c := range []struct {
		name  string
		reply outbox.HandlerFunc
		shown string
	}{
		{"text", func(context.Context, outbox.Event) (outbox.Receipt, error) { panic(secret) }, "panic=string"},
		{"error", func(context.Context, outbox.Event) (outbox.Receipt, error) { panic(errors.New(secret)) }, "panic=*errors.errorString"},
		{"value_that_panics_when_printed", func(context.Context, outbox.Event) (outbox.Receipt, error) { panic(leakyValue{}) }, "panic=outbox_test.leakyValue"},
		{"nil", func(context.Context, outbox.Event) (outbox.Receipt, error) { panic(nil) }, "panic=*runtime.PanicNilError"},
		{"runtime_error_is_shown", func(context.Context, outbox.Event) (outbox.Receipt, error) {
			return outbox.Receipt{"x": []int{1}[index+1]}, nil
		}, "index out of range [1] with length 1"},
		{"nil_pointer", func(context.Context, outbox.Event) (outbox.Receipt, error) {
			var missing *outbox.Event
			return outbox.Receipt{"x": missing.ID}, nil
		}, "nil pointer dereference"},
		{"nil_function", outbox.HandlerFunc(nil), ""},
		{"error_whose_text_panics", func(context.Context, outbox.Event) (outbox.Receipt, error) {
			var nothing *leakyError
			return nil, nothing
		}, "nil pointer dereference"},
		{"goroutine_that_exits", func(context.Context, outbox.Event) (outbox.Receipt, error) {
			runtime.Goexit()
			return outbox.Receipt{}, nil
		}, "runtime.Goexit"},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := newWorld(batch(ev("a1"), ev("a2"), ev("b1")))
			w.replies["a1"] = c.reply
			if c.reply == nil {
				w.config.Registry["nil"] = outbox.Route{Handler: outbox.HandlerFunc(nil)}
				w.batches[0][0].Type, c.shown = "nil", "nil pointer dereference"
			}
			result := w.run(t.Context(), t)
			w.wantSettled(t, "a1", "retry(handler_panic)", "a2", "release+0s", "b1", "processed")
			if result.Retried != 1 || result.Processed != 1 || result.RunMs != 0 {
				t.Errorf("retried %d, processed %d, %d ms, want 1, 1 and 0", result.Retried, result.Processed, result.RunMs)
			}
			lines := w.lines("log ERROR handler_panic [eventId=a1 ")
			if len(lines) != 1 || !strings.Contains(lines[0], c.shown) {
				t.Errorf("lines %q, want one with %q", lines, c.shown)
			}
			if strings.Contains(w.text(), secret) {
				t.Errorf("the panic's value is in the journal:\n%s", w.text())
			}
		})
	}
	inBubble(t, "the_place_is_logged", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.replies["a1"] = panicsHere
		w.run(t.Context(), t)
		if line := w.lines("log ERROR handler_panic"); len(line) != 1 || !strings.Contains(line[0], "< "+"github.com/openlup/outbox-dispatch/outbox_test.panicsHere:") {
			t.Errorf("lines %q, want the function that panicked", line)
		}
	})
}

func panicsHere(context.Context, outbox.Event) (outbox.Receipt, error) { panic(secret) }

func TestHandlerTimeouts(t *testing.T) {
	t.Parallel()
	// stubborn returns after d whatever its context says.
	stubborn := func(d time.Duration, err error) outbox.HandlerFunc {
		return func(context.Context, outbox.Event) (outbox.Receipt, error) {
			time.Sleep(d)
			return nil, err
		}
	}
	for _, c := range []struct {
		name  string
		reply outbox.HandlerFunc
		want  string
		ms    int64
	}{
		{"the_context_ends_at_the_timeout", taking(time.Hour, nil), "retry(handler_timeout)", 10_000},
		{"wrapped_too", func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("post: %w", ctx.Err())
		}, "retry(handler_timeout)", 10_000},
		{"by_its_cause_too", func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, "retry(handler_timeout)", 10_000},
		{"an_earlier_timeout_of_the_handlers_own_is_its_error", func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return nil, fmt.Errorf("dial: %w", ctx.Err())
		}, "retry(dial: context deadline exceeded)", 1000},
		{"an_error_just_before_the_timeout_keeps_its_text", stubborn(10*time.Second-1, errors.New("refused")), "retry(refused)", 9999},
		{"a_delivery_in_the_grace_counts", stubborn(10*time.Second+249*time.Millisecond, nil), "processed", 10_249},
		{"a_discard_in_the_grace_counts", stubborn(10*time.Second+249*time.Millisecond, outbox.Discard(errors.New("gone"))), "discard(gone)", 10_249},
		{"abandoned_250_ms_after", stubborn(10*time.Second+251*time.Millisecond, nil), "retry(handler_timeout)", 10_250},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w := newWorld(batch(ev("a1"), ev("a2"), ev("b1")))
			w.replies["a1"] = c.reply
			result := w.run(t.Context(), t)
			rest := "release+0s"
			if c.want == "processed" {
				rest = "processed"
			}
			w.wantSettled(t, "a1", c.want, "a2", rest, "b1", "processed")
			if result.RunMs != c.ms {
				t.Errorf("the pass took %d ms, want %d", result.RunMs, c.ms)
			}
			abandoned := 0
			if c.ms == 10_250 {
				abandoned = 1
			}
			if lines := w.lines("log ERROR handler_abandoned a1"); len(lines) != abandoned {
				t.Errorf("lines %q, want %d", lines, abandoned)
			}
			time.Sleep(time.Minute) // the abandoned one ends
		})
	}
	inBubble(t, "the_late_return_of_an_abandoned_handler_is_ignored", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("a2"), ev("b1"), ev("c1")))
		w.config.Concurrency = 2
		w.replies["a1"] = stubborn(12*time.Second, outbox.Snooze(errors.New("down"), 0))
		for _, id := range []string{"b1", "c1"} {
			w.replies[id] = taking(8*time.Second, nil)
		}
		result := w.run(t.Context(), t)
		w.wantSettled(t, "a1", "retry(handler_timeout)", "a2", "release+0s", "b1", "processed", "c1", "processed")
		wantReply(t, result, reply{
			claimed: 4, processed: 2, retried: 1, released: 1, batches: 1, ms: 16_000, types: `"t":{"processed":2,"retried":1}`,
		})
	})
	inBubble(t, "only_the_abandoned_handler_outlives_the_pass", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		release := make(chan struct{})
		var returned bool
		w.replies["a1"] = func(context.Context, outbox.Event) (outbox.Receipt, error) {
			<-release
			returned = true
			return outbox.Receipt{}, nil
		}
		w.run(t.Context(), t)
		synctest.Wait()
		if returned {
			t.Error("the handler returned, want it still to run")
		}
		close(release)
		synctest.Wait() // the bubble fails when anything else is left
		if !returned {
			t.Error("the handler did not return once it could")
		}
	})
	inBubble(t, "a_route_without_a_timeout_has_10_s", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		w.config.Registry["t"] = w.route(0, "")
		w.replies["a1"] = taking(time.Hour, nil)
		if result := w.run(t.Context(), t); result.RunMs != 10_000 {
			t.Errorf("the pass took %d ms, want 10000", result.RunMs)
		}
	})
}

func TestCancelledInvocation(t *testing.T) {
	t.Parallel()
	cancelled := func(t *testing.T, reply outbox.HandlerFunc) (*world, outbox.Result) {
		t.Helper()
		w := newWorld(batch(ev("a1"), ev("a2"), ev("b1")), batch(ev("c1")))
		w.withStats(func(ctx context.Context) (json.RawMessage, error) { return json.RawMessage(`1`), ctx.Err() })
		w.settling = func(ctx context.Context, _ []outbox.Settlement) {
			if err := ctx.Err(); err != nil {
				t.Errorf("settle under a context that ended: %v", err)
			}
		}
		w.replies["a1"] = reply
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(time.Second, cancel)
		return w, w.run(ctx, t)
	}
	cut := func(wrap func(error) error) outbox.HandlerFunc {
		return func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
			<-ctx.Done()
			return nil, wrap(ctx.Err())
		}
	}
	for _, c := range []struct {
		name  string
		reply outbox.HandlerFunc
		want  string
	}{
		{"a_handler_cut_short_is_released", cut(func(err error) error { return err }), "release+0s"},
		{"whatever_text_it_makes_of_it", cut(func(error) error { return errors.New("connection closed") }), "release+0s"},
		{"also_when_it_takes_it_for_an_outage", cut(func(err error) error { return outbox.Snooze(err, 0) }), "release+0s"},
		{"also_when_it_takes_it_for_final", cut(func(err error) error { return outbox.Discard(err) }), "release+0s"},
		{"a_real_outage_stays_one", cut(func(error) error { return outbox.Snooze(errors.New("503"), 0) }), "snooze(503)+5m0s"},
		{"a_real_discard_stays_one", cut(func(error) error { return outbox.Discard(errors.New("410")) }), "discard(410)"},
		{"a_panic_is_a_retry", cut(func(error) error { panic("x") }), "retry(handler_panic)"},
		{"a_delivery_stays_one", func(context.Context, outbox.Event) (outbox.Receipt, error) {
			time.Sleep(2 * time.Second)
			return outbox.Receipt{}, nil
		}, "processed"},
	} {
		inBubble(t, c.name, func(t *testing.T) {
			w, result := cancelled(t, c.reply)
			rest := "release+0s"
			if strings.HasPrefix(c.want, "snooze") {
				rest = "release+5m0s"
			}
			w.wantSettled(t, "a1", c.want, "a2", rest, "b1", rest)
			reason := "invocation_cancelled"
			if rest != "release+0s" {
				reason = "provider_outage"
			}
			if result.Reason != reason || result.Batches != 1 || string(result.Queue) != "1" {
				t.Errorf("reason %q, %d batches, queue %s, want %s, 1 and 1", result.Reason, result.Batches, result.Queue, reason)
			}
			w.wantLines(t, "handle", "handle a1")
		})
	}
	for name, returns := range map[string]time.Duration{"in_its_grace": 900 * time.Millisecond, "never": time.Hour} {
		inBubble(t, "a_timeout_before_it_stays_one_when_the_handler_returns_"+name, func(t *testing.T) {
			w := newWorld(batch(ev("a1")))
			w.config.Registry["t"] = w.route(700*time.Millisecond, "")
			w.replies["a1"] = func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
				time.Sleep(returns)
				return nil, ctx.Err()
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(800*time.Millisecond, cancel)
			w.run(ctx, t)
			w.wantSettled(t, "a1", "retry(handler_timeout)")
			time.Sleep(time.Hour) // the abandoned one ends
		})
	}
	inBubble(t, "before_the_pass_nothing_is_claimed", func(t *testing.T) {
		w := newWorld(batch(ev("a1")))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		result := w.run(ctx, t)
		w.wantJournal(t, `observe finished 0`)
		wantReply(t, result, reply{reason: "invocation_cancelled"})
	})
	inBubble(t, "during_a_claim_is_no_failure_of_the_store", func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(t.Context())
		w.claimErr = func(int) error { cancel(); return ctx.Err() }
		result := w.run(ctx, t)
		wantReply(t, result, reply{reason: "invocation_cancelled"})
	})
}

func TestReasonsAndDetailsAreStorable(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ż", 5000)
	for _, c := range []struct{ name, text, want string }{
		{"nul", "a\x00b", "a\uFFFDb"},
		{"invalid_utf8", "a\xff\xc5b", "a\uFFFDb"},
		{"10_kB_is_not_cut", long, long},
		{"empty", "", ""},
	} {
		inBubble(t, "reason_"+c.name, func(t *testing.T) {
			w := newWorld(batch(ev("a1"), ev("b1"), ev("c1", snoozes(`20`)), ev("d1")))
			w.replies["a1"] = retrying(c.text)
			w.replies["b1"] = discarding(c.text)
			w.replies["c1"] = snoozing(c.text)
			w.replies["d1"] = snoozing(c.text)
			w.run(t.Context(), t)
			for i, want := range []string{c.want, c.want, "snooze_budget_exhausted:" + c.want, c.want} {
				if got := w.settles[i][0].Reason; got != want {
					t.Errorf("reason %d is %.60q, want %.60q", i, got, want)
				}
			}
			if line := w.lines("log ERROR event_discarded"); len(line) != 1 || !strings.HasSuffix(line[0], "reason="+c.want+"]") {
				t.Errorf("lines %.200q, want one with the whole reason", line)
			}
		})
	}
	deep := func(levels int) any {
		var value any = 1
		for range levels {
			value = []any{value}
		}
		return value
	}
	cyclic := map[string]any{}
	cyclic["self"] = cyclic
	for _, c := range []struct {
		name    string
		receipt outbox.Receipt
		want    string // "" when the detail is refused
	}{
		{"nothing", outbox.Receipt{}, "none"},
		{"nul", outbox.Receipt{"a\x00": "b\x00"}, `{"a�":"b�"}`},
		{"invalid_utf8", outbox.Receipt{"a": "\xff"}, `{"a":"�"}`},
		{"lone_surrogate", outbox.Receipt{"a": json.RawMessage(`"\ud800"`)}, `{"a":"�"}`},
		{"escaped_nul_in_raw_json", outbox.Receipt{"a": json.RawMessage(`{"\u0000":["\u0000"]}`)}, `{"a":{"�":["�"]}}`},
		{
			"numbers_that_numeric_holds_keep_their_digits",
			outbox.Receipt{"a": json.RawMessage(`12345678901234567890.10`), "b": json.RawMessage(`1e400`)},
			`{"a":12345678901234567890.10,"b":1e400}`,
		},
		{
			"numbers_out_of_its_range_are_text",
			outbox.Receipt{"a": json.RawMessage(`1e200000`), "b": json.RawMessage(`-1E-99999999999999999999`)},
			`{"a":"1e200000","b":"-1E-99999999999999999999"}`,
		},
		{"a_list_of_them", outbox.Receipt{"a": []any{json.RawMessage(`1e200000`)}}, `{"a":["1e200000"]}`},
		{"other_values", outbox.Receipt{"a": nil, "b": true, "c": []string{}, "d": map[string]int{}}, `{"a":null,"b":true,"c":[],"d":{}}`},
		{"markup_stays_as_it_is", outbox.Receipt{"a": "<&>"}, `{"a":"<&>"}`},
		{"nested", outbox.Receipt{"a": deep(50)}, `{"a":` + strings.Repeat("[", 50) + "1" + strings.Repeat("]", 50) + `}`},
		{"nested_too_deeply", outbox.Receipt{"a": deep(5000)}, ""},
		{"nested_beyond_the_decoder", outbox.Receipt{"a": json.RawMessage(strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001))}, ""},
		{"cyclic", outbox.Receipt{"a": cyclic}, ""},
		{"channel", outbox.Receipt{"a": make(chan int)}, ""},
		{"function", outbox.Receipt{"a": func() {}}, ""},
		{"not_a_number", outbox.Receipt{"a": nan()}, ""},
		{"raw_json_that_is_none", outbox.Receipt{"a": json.RawMessage(`{` + secret)}, ""},
		{"a_value_that_panics", outbox.Receipt{"a": leakyValue{}}, ""},
		{"too_long", outbox.Receipt{"a": strings.Repeat("x", 70_000)}, ""},
	} {
		inBubble(t, "detail_"+c.name, func(t *testing.T) {
			w := newWorld(batch(ev("a1")))
			w.replies["a1"] = func(context.Context, outbox.Event) (outbox.Receipt, error) { return c.receipt, nil }
			if result := w.run(t.Context(), t); result.Processed != 1 {
				t.Errorf("processed %d, want 1: the event was delivered", result.Processed)
			}
			got := w.settles[0][0].Detail
			refused := w.lines("log WARN detail_refused [eventId=a1 ")
			switch c.want {
			case "":
				if got != nil || len(refused) != 1 {
					t.Errorf("detail %.80s, lines %q, want no detail and one line", got, refused)
				}
			case "none":
				if got != nil || len(refused) != 0 {
					t.Errorf("detail %s, lines %q, want neither", got, refused)
				}
			default:
				if string(got) != c.want || len(refused) != 0 {
					t.Errorf("detail %s, lines %q, want %s and none", got, refused, c.want)
				}
			}
			if strings.Contains(w.text(), secret) {
				t.Errorf("a value is in the journal:\n%s", w.text())
			}
		})
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}
