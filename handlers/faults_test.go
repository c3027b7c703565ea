package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// oneEvent is a store of one event that keeps its settlement.
type oneEvent struct {
	event   outbox.Event
	claimed atomic.Bool
	settled chan outbox.Settlement
}

func (s *oneEvent) Claim(context.Context, outbox.ClaimRequest) (outbox.Claim, error) {
	if s.claimed.Swap(true) {
		return outbox.Claim{End: true}, nil
	}
	return outbox.Claim{Events: []outbox.Event{s.event}, End: true}, nil
}

func (s *oneEvent) Settle(_ context.Context, batch []outbox.Settlement, _ outbox.Backoff) ([]outbox.Answer, error) {
	answers := make([]outbox.Answer, len(batch))
	for i, settlement := range batch {
		s.settled <- settlement
		answers[i] = outbox.AnswerFailed
	}
	return answers, nil
}

// outcomeOf runs one event through a pass, so that outcomes are read as the rail reads them.
func outcomeOf(t *testing.T, handler outbox.Handler, timeout time.Duration) outbox.Settlement {
	t.Helper()
	return settlementOf(t, handler, sampleEvent(), timeout)
}

func settlementOf(t *testing.T, handler outbox.Handler, event outbox.Event, timeout time.Duration) outbox.Settlement {
	t.Helper()
	store := &oneEvent{event: event, settled: make(chan outbox.Settlement, 1)}
	store.event.Metadata = json.RawMessage(`{"claimToken": "token"}`)
	worker, err := outbox.NewWorker(outbox.Config{
		Store:    store,
		Registry: outbox.Registry{store.event.Type: {Handler: handler, Timeout: timeout}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Run(t.Context(), outbox.Pass{}); err != nil {
		t.Fatal(err)
	}
	select {
	case settlement := <-store.settled:
		return settlement
	default:
		t.Fatal("nothing was settled")
		return outbox.Settlement{}
	}
}

// expect compares an outcome and the start of its reason, and looks for what must never be in a reason.
func expect(t *testing.T, got outbox.Settlement, outcome outbox.Outcome, reason string) {
	t.Helper()
	if got.Outcome != outcome || !strings.HasPrefix(got.Reason, reason) {
		t.Errorf("got %s %q, want %s %q", got.Outcome, got.Reason, outcome, reason)
	}
	for _, secret := range []string{"hunter2", "total", "http://", "https://", "127.0.0.1:"} {
		if strings.Contains(got.Reason, secret) {
			t.Errorf("reason %q shows %q", got.Reason, secret)
		}
	}
}

func TestHTTPClassifiesStatuses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		outcome outbox.Outcome
		reason  string
	}{
		200: {outbox.Processed, ""},
		204: {outbox.Processed, ""},
		300: {outbox.Retry, "http_300: multiple choices"},
		301: {outbox.Retry, "http_301: moved permanently"},
		302: {outbox.Retry, "http_302: found"},
		304: {outbox.Retry, "http_304: not modified"},
		307: {outbox.Retry, "http_307: temporary redirect"},
		308: {outbox.Retry, "http_308: permanent redirect"},
		400: {outbox.Retry, "http_400: bad request"},
		401: {outbox.Retry, "http_401: unauthorized"},
		403: {outbox.Retry, "http_403: forbidden"},
		404: {outbox.Retry, "http_404: not found"},
		408: {outbox.Snoozed, "http_408: request timeout"},
		409: {outbox.Retry, "http_409: conflict"},
		410: {outbox.Discarded, "http_410: gone"},
		413: {outbox.Retry, "http_413: request entity too large"},
		422: {outbox.Retry, "http_422: unprocessable entity"},
		425: {outbox.Snoozed, "http_425: too early"},
		429: {outbox.Snoozed, "http_429: too many requests"},
		499: {outbox.Retry, "http_499"},
		500: {outbox.Retry, "http_500: internal server error"},
		501: {outbox.Retry, "http_501: not implemented"},
		502: {outbox.Snoozed, "http_502: bad gateway"},
		503: {outbox.Snoozed, "http_503: service unavailable"},
		504: {outbox.Snoozed, "http_504: gateway timeout"},
		507: {outbox.Retry, "http_507: insufficient storage"},
		599: {outbox.Retry, "http_599"},
		700: {outbox.Retry, "http_700"},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var elsewhere atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					elsewhere.Store(true)
				}
				w.Header().Set("Location", "/elsewhere?hunter2")
				w.WriteHeader(status)
				io.WriteString(w, "hunter2")
			}))
			t.Cleanup(server.Close)
			expect(t, outcomeOf(t, newHTTP(t, handlers.HTTPConfig{URL: server.URL + "/"}), 0), want.outcome, want.reason)
			if elsewhere.Load() {
				t.Error("the redirect was followed")
			}
		})
	}
}

func TestHTTPReadsRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)
	const none = outbox.DefaultSnooze // what the pass takes when the handler names no delay
	for text, want := range map[string]time.Duration{
		"":                                none,
		"120":                             2 * time.Minute,
		"0":                               time.Second,
		"1":                               time.Second,
		"007":                             7 * time.Second,
		"86400":                           24 * time.Hour,
		"86401":                           24 * time.Hour,
		"4294967296":                      24 * time.Hour,
		"99999999999999999999999":         24 * time.Hour,
		"Mon, 30 Nov 2026 07:10:00 GMT":   10 * time.Minute,
		"Monday, 30-Nov-26 07:10:00 GMT":  10 * time.Minute,
		"Mon Nov 30 07:10:00 2026":        10 * time.Minute,
		"Mon, 30 Nov 2026 06:00:00 GMT":   time.Second,
		"Fri, 31 Dec 9999 23:59:59 GMT":   24 * time.Hour,
		"2026-11-30T07:10:00Z":            none,
		"soon":                            none,
		"-5":                              none,
		"+5":                              none,
		"1.5":                             none,
		"1e3":                             none,
		"120, 60":                         none,
		"\u0661\u0662\u0660":              none,
		"Mon, 30 Nov 2026 07:10:00 +0100": none,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if text != "" {
					w.Header().Set("Retry-After", text)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			t.Cleanup(server.Close)
			handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL, Clock: func() time.Time { return now }})
			got := outcomeOf(t, handler, 0)
			reason := "http_503: service unavailable"
			if want != none {
				reason += fmt.Sprintf(", retry after %d s", int(want.Seconds()))
			}
			if got.Outcome != outbox.Snoozed || got.Delay != want || got.Reason != reason {
				t.Errorf("got %s after %v: %q, want snooze after %v: %q", got.Outcome, got.Delay, got.Reason, want, reason)
			}
		})
	}
}

// What a route makes a snooze lasts as long as the receiver asked for, like what the table snoozes.
func TestHTTPHonoursRetryAfterWhereARouteSnoozes(t *testing.T) {
	t.Parallel()
	for status, reason := range map[int]string{
		http.StatusForbidden: "http_403: forbidden", http.StatusInternalServerError: "http_500: internal server error",
		http.StatusMovedPermanently: "http_301: moved permanently", http.StatusGone: "http_410: gone",
	} {
		for asked, want := range map[string]time.Duration{"1200": 20 * time.Minute, "": 0} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked != "" {
					w.Header().Set("Retry-After", asked)
				}
				w.WriteHeader(status)
			}))
			t.Cleanup(server.Close)
			plain := newHTTP(t, handlers.HTTPConfig{URL: server.URL})
			unasked := outcomeOf(t, handlers.Outcomes{SnoozeOn: []string{"connection_refused"}}.Over(plain), 0)
			if unasked.Outcome == outbox.Snoozed || unasked.Reason != reason {
				t.Errorf("%d with Retry-After %q: %s: %q, want what the table says: %q", status, asked, unasked.Outcome, unasked.Reason, reason)
			}
			if want == 0 {
				want = 5 * time.Minute // the pass's own
			}
			got := outcomeOf(t, handlers.Outcomes{SnoozeOn: []string{fmt.Sprint("http_", status)}}.Over(plain), 0)
			if got.Outcome != outbox.Snoozed || got.Delay != want || got.Reason != reason {
				t.Errorf("%d with Retry-After %q: %s after %v: %q, want snooze after %v", status, asked, got.Outcome, got.Delay, got.Reason, want)
			}
		}
	}
}
