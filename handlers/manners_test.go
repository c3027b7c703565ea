package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// payloadsOf makes events with a text that errors and receipts must not show.
func payloadsOf(payload string) func(int) outbox.Event {
	return func(int) outbox.Event { return outbox.Event{Payload: json.RawMessage(payload)} }
}

func TestHTTPIsAHandlerAsPassesExpectThem(t *testing.T) {
	t.Parallel()
	for name, envelope := range map[string]handlers.Envelope{
		"structured": {}, "binary": {Format: handlers.EnvelopeBinary}, "raw": {Format: handlers.EnvelopeRaw},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.Header.Get("Outbox-Event-Type"), "gone") {
					w.WriteHeader(http.StatusGone)
				}
			}))
			t.Cleanup(server.Close)
			secret := secretOf(32)
			outboxtest.TestHandler(t, func(t *testing.T) outboxtest.HandlerHarness {
				return outboxtest.HandlerHarness{
					Handler: newHTTP(t, handlers.HTTPConfig{
						URL: server.URL + "/hunter2", Secrets: []string{secret}, Envelope: envelope,
						Headers: map[string]string{"Authorization": "Bearer hunter3"},
					}),
					Event: payloadsOf(`{"note": "a text to look for"}`),
					Poison: func() []outbox.Event {
						return []outbox.Event{{Type: "gone", Payload: json.RawMessage(`{"note": "a text to look for"}`)}}
					},
					Secrets: []string{secret, "hunter2", "hunter3"},
				}
			})
		})
	}
}

func TestEndpointsIsAHandlerAsPassesExpectThem(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	secret := secretOf(32)
	outboxtest.TestHandler(t, func(t *testing.T) outboxtest.HandlerHarness {
		source := &directory{endpoints: []handlers.Endpoint{
			{ID: "a", Tenant: "a", URL: server.URL + "/hunter2", SecretRefs: []string{"a1"}},
		}}
		return outboxtest.HandlerHarness{
			Handler: newEndpoints(t, source, map[string]string{"a1": secret}),
			Event:   payloadsOf(`{"tenant": "a", "note": "a text to look for"}`),
			Poison: func() []outbox.Event {
				return []outbox.Event{
					{Payload: json.RawMessage(`{"tenant": "unheard of by anybody"}`)},
					{Payload: json.RawMessage(`{"note": "a text to look for"}`)},
				}
			},
			Secrets: []string{secret, "hunter2"},
		}
	})
}
