package webhook_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/openlup/outbox-dispatch/internal/stack/webhook"
)

// delivery posts one event to a receiver of its own, and returns what that saw.
func delivery(t *testing.T, secrets ...string) (http.Header, []byte) {
	t.Helper()
	return posted(t, handlers.HTTPConfig{Secrets: secrets})
}

func posted(t *testing.T, config handlers.HTTPConfig) (http.Header, []byte) {
	t.Helper()
	type request struct {
		header http.Header
		body   []byte
	}
	received := make(chan request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- request{r.Header, body}
	}))
	t.Cleanup(server.Close)
	config.URL, config.AllowHTTP, config.AllowPorts = server.URL, true, []handlers.Ports{{First: 1024, Last: 65535}}
	config.AllowPrivate = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	handler, err := handlers.NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = handler.Handle(t.Context(), event())
	if err != nil {
		t.Fatal(err)
	}
	got := <-received
	return got.header, got.body
}

func event() outbox.Event {
	return outbox.Event{
		ID: "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47", Position: 42, Type: "order.placed", AggregateType: "order",
		AggregateID: "0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10", IdempotencyKey: "Zażółć 17", CreatedAt: time.Unix(1764482400, 123456000).UTC(),
		Payload:  []byte("{\"text\": \"zażółć \\u0000\", \"n\": 12345678901234567890}"),
		Metadata: []byte(`{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`),
	}
}

// The library is the one that Standard Webhooks publishes; receivers verify with it and know nothing of this project.
func TestThePublishedLibraryAcceptsOurSignatures(t *testing.T) {
	t.Parallel()
	fresh, old, foreign := webhook.NewKey().Secret(), webhook.NewKey().Secret(), webhook.NewKey().Secret()
	pair := "whsk_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	for name, test := range map[string]struct {
		secrets  []string // what we sign with
		receiver string   // what it verifies with
		want     bool
	}{
		"one secret":                        {[]string{old}, old, true},
		"rotation, receiver has the old":    {[]string{fresh, old}, old, true},
		"rotation, receiver has the new":    {[]string{fresh, old}, fresh, true},
		"rotation over, receiver is late":   {[]string{fresh}, old, false},
		"rotation not begun":                {[]string{old}, fresh, false},
		"foreign secret":                    {[]string{fresh, old}, foreign, false},
		"a key pair's signature before it":  {[]string{pair, old}, old, true},
		"a key pair's signature only":       {[]string{pair}, old, false},
		"no secret, and so no signature":    {nil, old, false},
		"the secret without prefix is same": {[]string{old}, strings.TrimPrefix(old, "whsec_"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header, body := delivery(t, test.secrets...)
			verifier, err := standardwebhooks.NewWebhook(test.receiver)
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.Verify(body, header); (err == nil) != test.want {
				t.Errorf("the library says %v, want accepted %t", err, test.want)
			}
			if err := verifier.Verify(append(body, ' '), header); err == nil {
				t.Error("the library accepts another body")
			}
		})
	}
}
