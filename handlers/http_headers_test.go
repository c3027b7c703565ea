package handlers_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/handlers"
)

func TestHTTPSendsTheHeadersOfItsConfiguration(t *testing.T) {
	t.Parallel()
	server, received := recorder(t)
	headers := map[string]string{
		"Authorization": "Bearer hunter2", "x-api-key": "a\tb", "User-Agent": "shop/1", "Cookie": "a=b; c=d", "X-Text": "zażółć",
	}
	handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL, Headers: headers})
	for range 2 {
		if _, err := handler.Handle(t.Context(), sampleEvent()); err != nil {
			t.Fatal(err)
		}
		got := (<-received).header
		for name, want := range headers {
			if values := got.Values(name); !slices.Equal(values, []string{want}) {
				t.Errorf("%s: %q, want %q once", name, values, want)
			}
		}
	}
}

func TestNewHTTPRefusesHeadersThatAreItsOwn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Host", "host", "Content-Length", "content-length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection",
		"Proxy-Authorization", "Proxy-Authenticate", "TE", "Trailer", "Upgrade", "Expect", "HTTP2-Settings", "Content-Type",
		"CONTENT-TYPE", "Content-Encoding", "Webhook-Id", "webhook-signature", "WEBHOOK-ANYTHING", "ce-id", "CE-Type", "Outbox-Attempt",
		"outbox-anything", "Idempotency-Key", "traceparent", "Tracestate",
	} {
		fault(t, handlers.HTTPConfig{Headers: map[string]string{name: "hunter2"}}, "headers."+name, "is set by the dispatcher itself")
	}
	for _, name := range []string{"", "X Api", "X:Y", "X-Ä", "X\r\nY", "X\x00", "(x)", "x,y"} {
		fault(t, handlers.HTTPConfig{Headers: map[string]string{name: "hunter2"}}, "headers."+name, "is no name of a header")
	}
	for _, value := range []string{"hunter2\r\nX-Evil: 1", "hunter2\n", "\x00hunter2", "hunter2\x7f", " hunter2", "hunter2 ", "\thunter2", "hunter2\x1b"} {
		fault(t, handlers.HTTPConfig{Headers: map[string]string{"X-Key": value}}, "headers.X-Key", "has a control character or spaces around it")
	}
	fault(t, handlers.HTTPConfig{Headers: map[string]string{"X-Key": ""}}, "headers.X-Key", "is empty")
	fault(t, handlers.HTTPConfig{Headers: map[string]string{"X-Key": "hunter2", "x-key": "hunter2"}}, "headers.x-key", "is there twice")
}

// fault expects exactly one fault, of a field, that says this and shows no secret.
func fault(t *testing.T, config handlers.HTTPConfig, field, problem string) {
	t.Helper()
	config.URL = "https://a.test"
	faults := config.Faults()
	if len(faults) != 1 || faults[0].Field != field || !strings.HasPrefix(faults[0].Problem, problem) {
		t.Errorf("faults %q, want one of %q: %s", faults, field, problem)
	}
	if _, err := handlers.NewHTTP(config); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v, want one that shows no secret", err)
	}
}

func TestHTTPKeepsNothingOfAnAnswerUnlessAsked(t *testing.T) {
	t.Parallel()
	status, body := make(chan int, 1), "hunter2"
	server := answering(t, func(w http.ResponseWriter) {
		w.WriteHeader(<-status)
		w.Write([]byte(body))
	})
	handler := newHTTP(t, handlers.HTTPConfig{URL: server})
	for _, code := range []int{200, 302, 400, 410, 500, 503, 599} {
		status <- code
		receipt, err := handler.Handle(t.Context(), sampleEvent())
		if err != nil && strings.Contains(err.Error(), body) || err == nil && text(receipt) != "" {
			t.Errorf("%d: receipt %v, error %v hold the answer's body", code, receipt, err)
		}
	}
}
