package handlers_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// loopback lifts the guard for test servers.
func loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// anyPort is where test servers listen.
func anyPort() []handlers.Ports { return []handlers.Ports{{First: 1, Last: 65535}} }

func sampleEvent() outbox.Event {
	return outbox.Event{
		ID:             "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47",
		Position:       42,
		CreatedAt:      time.Date(2026, 11, 30, 6, 0, 0, 123456000, time.UTC),
		AggregateType:  "order",
		AggregateID:    "0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10",
		Type:           "order.placed",
		IdempotencyKey: "order-17/placed",
		Attempts:       3,
		Payload:        json.RawMessage(`{"total": 12}`),
	}
}

func newHTTP(t *testing.T, config handlers.HTTPConfig) *handlers.HTTP {
	t.Helper()
	config.AllowHTTP, config.AllowPorts = true, anyPort()
	if config.AllowPrivate == nil {
		config.AllowPrivate = loopback()
	}
	handler, err := handlers.NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// request is what a server received.
type request struct {
	method, uri string
	header      http.Header
	body        []byte
}

// recorder answers 200 and keeps what it received.
func recorder(t *testing.T) (*httptest.Server, <-chan request) {
	t.Helper()
	received := make(chan request, 16)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- request{r.Method, r.RequestURI, r.Header.Clone(), body}
	}))
	t.Cleanup(server.Close)
	return server, received
}

func TestHTTPPostsThePayloadByteForByte(t *testing.T) {
	t.Parallel()
	server, received := recorder(t)
	handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL, Envelope: handlers.Envelope{Format: handlers.EnvelopeRaw}})
	for _, payload := range []string{
		`{}`, `null`, `[]`, `""`, `1e400`, `12345678901234567890`, `{"b": 1, "a": 2, "b": 3}`, `{"n": 0.1000}`,
		"{\"text\": \"a\\u0000b <&> \u2028 é\"}", strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		`"` + strings.Repeat("x", 256<<10) + `"`,
	} {
		event := sampleEvent()
		event.Payload = json.RawMessage(payload)
		if _, err := handler.Handle(t.Context(), event); err != nil {
			t.Fatalf("%.40s: %v", payload, err)
		}
		if got := <-received; string(got.body) != payload {
			t.Errorf("body %.60q, want %.60q", got.body, payload)
		}
	}
}

func TestHTTPSendsItsHeaders(t *testing.T) {
	t.Parallel()
	server, received := recorder(t)
	now := time.Date(2026, 11, 30, 7, 0, 0, 999, time.UTC)
	handler := newHTTP(t, handlers.HTTPConfig{
		URL:      server.URL + "/hook?token=1",
		Envelope: handlers.Envelope{Format: handlers.EnvelopeRaw},
		Clock:    func() time.Time { return now },
	})
	if _, err := handler.Handle(t.Context(), sampleEvent()); err != nil {
		t.Fatal(err)
	}
	got := <-received
	if got.method != http.MethodPost || got.uri != "/hook?token=1" {
		t.Errorf("%s %s, want POST /hook?token=1", got.method, got.uri)
	}
	want := map[string]string{
		"Content-Type":           "application/json",
		"Content-Length":         "13",
		"User-Agent":             handlers.DefaultUserAgent,
		"Webhook-Id":             "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47",
		"Webhook-Timestamp":      "1796022000",
		"Outbox-Event-Type":      "order.placed",
		"Outbox-Aggregate-Type":  "order",
		"Outbox-Aggregate-Id":    "0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10",
		"Outbox-Idempotency-Key": "order-17/placed",
		"Outbox-Position":        "42",
		"Outbox-Attempt":         "3",
		"Outbox-Created-At":      "2026-11-30T06:00:00.123456Z",
	}
	for name, value := range want {
		if got.header.Get(name) != value {
			t.Errorf("%s: %q, want %q", name, got.header.Get(name), value)
		}
	}
	for name := range got.header {
		if _, expected := want[name]; !expected {
			t.Errorf("%s was sent, and nobody asked", name)
		}
	}
}

func TestHTTPEncodesWhatAHeaderCannotCarry(t *testing.T) {
	t.Parallel()
	server, received := recorder(t)
	handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL})
	for _, value := range []string{
		"a\r\nX-Evil: 1", " padded ", "50%", "%41", "tab\there", "nul\x00", "zażółć", "\xff\xfe", `"quoted", b;c`, "+a+b",
	} {
		event := sampleEvent()
		event.Type, event.IdempotencyKey, event.AggregateType = value, value, value
		if _, err := handler.Handle(t.Context(), event); err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		got := <-received
		for _, name := range []string{"Outbox-Event-Type", "Outbox-Idempotency-Key", "Outbox-Aggregate-Type"} {
			decoded, err := url.PathUnescape(got.header.Get(name))
			if err != nil || decoded != value {
				t.Errorf("%s: %q decodes to %q (%v), want %q", name, got.header.Get(name), decoded, err, value)
			}
		}
		if got.header.Get("X-Evil") != "" {
			t.Errorf("%q made a header of its own", value)
		}
	}
}

func TestHTTPKeepsDotsOutOfTheID(t *testing.T) {
	t.Parallel()
	server, received := recorder(t)
	event := sampleEvent()
	event.ID = "evt.1 %"
	if _, err := newHTTP(t, handlers.HTTPConfig{URL: server.URL}).Handle(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if got := (<-received).header.Get("Webhook-Id"); got != "evt%2E1%20%25" {
		t.Errorf("webhook-id %q, want evt%%2E1%%20%%25", got)
	}
}

func TestHTTPSignsOncePerSecret(t *testing.T) {
	t.Parallel()
	server, received := recorder(t)
	fresh, old, foreign := secretOf(24), secretOf(32), secretOf(64)
	private, _, public := privateSecret('k')
	_, _, foreignPublic := privateSecret('j')
	handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL, Secrets: []string{fresh, private, old}})
	if _, err := handler.Handle(t.Context(), sampleEvent()); err != nil {
		t.Fatal(err)
	}
	got := <-received
	if n := len(strings.Fields(got.header.Get("Webhook-Signature"))); n != 3 {
		t.Errorf("%d signatures, want 3", n)
	}
	if !verify(fresh, got.header, got.body) || !verify(old, got.header, got.body) {
		t.Errorf("signature %q does not verify with both secrets", got.header.Get("Webhook-Signature"))
	}
	if !verifyPair(publicText(public), got.header, got.body) {
		t.Errorf("signature %q does not verify with the public key", got.header.Get("Webhook-Signature"))
	}
	if verify(foreign, got.header, got.body) || verifyPair(publicText(foreignPublic), got.header, got.body) {
		t.Error("the signature verifies with a foreign secret")
	}
	if other := append(got.body, ' '); verify(fresh, got.header, other) || verifyPair(publicText(public), got.header, other) {
		t.Error("the signature verifies another body")
	}
}

func publicText(key ed25519.PublicKey) string {
	return "whpk_" + base64.StdEncoding.EncodeToString(key)
}

func TestHTTPReceiptHoldsStatusAndDuration(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 201, 202, 204, 206, 299} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(server.Close)
		var ticks atomic.Int64
		clock := func() time.Time { return time.UnixMilli(ticks.Add(7)) }
		receipt, err := newHTTP(t, handlers.HTTPConfig{URL: server.URL, Clock: clock}).Handle(t.Context(), sampleEvent())
		if err != nil {
			t.Fatal(err)
		}
		got, _ := json.Marshal(receipt)
		want, _ := json.Marshal(outbox.Receipt{"http": map[string]any{"status": status, "durationMs": 7}})
		if string(got) != string(want) {
			t.Errorf("receipt %s, want %s", got, want)
		}
	}
}

func TestHTTPIgnoresTheProxyOfTheEnvironment(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("NO_PROXY", "")
	server, received := recorder(t)
	// net/http never sends loopback through a proxy, so the name must not look like it.
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	handler := newHTTP(t, handlers.HTTPConfig{URL: "http://0.0.0.0:" + port, AllowPrivate: []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
	}})
	if _, err := handler.Handle(t.Context(), sampleEvent()); err != nil {
		t.Fatal(err)
	}
	<-received
}
