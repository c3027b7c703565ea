package handlers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// answering is the URL of a receiver that answers like this.
func answering(t *testing.T, answer func(http.ResponseWriter)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
	t.Cleanup(server.Close)
	return server.URL
}

// text is what a receipt keeps of the answer's body.
func text(receipt outbox.Receipt) string {
	kept, _ := receipt["http"].(map[string]any)["body"].(string)
	return kept
}

func TestHTTPKeepsASnippetOfTheAnswer(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"":                         "",
		"no such customer":         "no such customer",
		`{"e": "bad \"id\""}`:      `{"e": "bad \"id\""}`,
		"  two\r\n\tlines \n":      "two lines",
		"nul\x00 esc\x1b[31m del":  "nul esc [31m del",
		"\u202emarks\u200b\ufeff":  "marks",
		"line\u2028sep\u0085next":  "line sep next",
		"zażółć €":                 "zażółć €",
		"bad\xff\xfeutf\xc3":       "badutf",
		strings.Repeat("x", 2000):  strings.Repeat("x", 20),
		"123456789012345678é tail": "123456789012345678é", // the letter ends at 20 bytes
		"1234567890123456789é":     "1234567890123456789", // and here it would end behind them
		strings.Repeat("\x00", 99): "",
	} {
		t.Run(fmt.Sprintf("%.10q", body), func(t *testing.T) {
			t.Parallel()
			for status, prefix := range map[int]string{
				200: "", 404: "http_404: not found", 500: "http_500: internal server error",
				503: "http_503: service unavailable, retry after 120 s", 599: "http_599",
			} {
				handler := newHTTP(t, handlers.HTTPConfig{ResponseSnippet: 20, URL: answering(t, func(w http.ResponseWriter) {
					w.Header().Set("Retry-After", "120")
					w.WriteHeader(status)
					w.Write([]byte(body))
				})})
				receipt, err := handler.Handle(t.Context(), sampleEvent())
				if status == http.StatusOK {
					if err != nil || text(receipt) != want {
						t.Errorf("receipt %v (%v), want body %q", receipt, err, want)
					}
					continue
				}
				reason := prefix
				switch {
				case want == "":
				case status == 599:
					reason += ": body: " + want
				default:
					reason += ", body: " + want
				}
				if err == nil || err.Error() != reason {
					t.Errorf("error %q, want %q", err, reason)
				}
			}
		})
	}
}

func TestNewHTTPTakesUpTo1000BytesOfAnAnswer(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{-1: false, 0: true, 1: true, 1000: true, 1001: false} {
		_, err := handlers.NewHTTP(handlers.HTTPConfig{URL: "https://a.test", ResponseSnippet: size})
		if (err == nil) != want {
			t.Errorf("%d: %v, want accepted %t", size, err, want)
		}
	}
	handler := newHTTP(t, handlers.HTTPConfig{ResponseSnippet: 1000, URL: answering(t, func(w http.ResponseWriter) {
		w.Write([]byte(strings.Repeat("é", 60<<10)))
	})})
	receipt, err := handler.Handle(t.Context(), sampleEvent())
	if got := text(receipt); err != nil || got != strings.Repeat("é", 500) {
		t.Errorf("kept %d bytes (%v), want 500 letters of two", len(got), err)
	}
}
