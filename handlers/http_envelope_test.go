package handlers_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/handlers"
)

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// In each envelope the signature is over what was sent, and the trace context goes with it.
func TestHTTPSignsWhatItSendsInEachEnvelope(t *testing.T) {
	t.Parallel()
	const payload = `{"b": 1, "a": 12345678901234567890, "text": "ż \u0000 < "}`
	for format, want := range map[string]struct{ mediaType, body string }{
		"":                           {"application/cloudevents+json; charset=utf-8", `"data":` + payload + `}`},
		handlers.EnvelopeCloudEvents: {"application/cloudevents+json; charset=utf-8", `"data":` + payload + `}`},
		handlers.EnvelopeBinary:      {"application/json", payload},
		handlers.EnvelopeRaw:         {"application/json", payload},
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			server, received := recorder(t)
			private, _, public := privateSecret('k')
			handler := newHTTP(t, handlers.HTTPConfig{
				URL: server.URL, Secrets: []string{secretOf(32), private}, Envelope: handlers.Envelope{Format: format, Source: "/shop"},
			})
			event := sampleEvent()
			event.Payload, event.Metadata = json.RawMessage(payload), json.RawMessage(`{"traceparent": "`+trace+`", "claimToken": "hunter2"}`)
			if _, err := handler.Handle(t.Context(), event); err != nil {
				t.Fatal(err)
			}
			got := <-received
			if !strings.HasSuffix(string(got.body), want.body) || got.header.Get("Content-Type") != want.mediaType {
				t.Errorf("sent %s as %s, want %s as %s", got.body, got.header.Get("Content-Type"), want.body, want.mediaType)
			}
			if !verify(secretOf(32), got.header, got.body) || !verifyPair(publicText(public), got.header, got.body) {
				t.Errorf("signature %q does not verify what was sent", got.header.Get("Webhook-Signature"))
			}
			if values := got.header.Values("Traceparent"); !slices.Equal(values, []string{trace}) {
				t.Errorf("traceparent %q, want %q once", values, trace)
			}
			attributes := slices.DeleteFunc(slices.Sorted(maps.Keys(got.header)), func(name string) bool { return !strings.HasPrefix(name, "Ce-") })
			if (len(attributes) > 0) != (format == handlers.EnvelopeBinary) {
				t.Errorf("headers %v, want attributes in binary mode and no other", attributes)
			}
			if format == handlers.EnvelopeBinary && (got.header.Get("Ce-Id") != event.ID || got.header.Get("Ce-Source") != "/shop") {
				t.Errorf("attributes %v of another event", got.header)
			}
			if strings.Contains(string(got.body), "hunter2") {
				t.Error("the claim token was sent")
			}
		})
	}
}

// An event without a payload, which no row is, has no body where the body is the payload.
func TestHTTPSendsAnEmptyPayload(t *testing.T) {
	t.Parallel()
	server, received := recorder(t)
	for _, format := range []string{handlers.EnvelopeCloudEvents, handlers.EnvelopeBinary, handlers.EnvelopeRaw} {
		handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL, Secrets: []string{secretOf(32)}, Envelope: handlers.Envelope{Format: format}})
		event := sampleEvent()
		event.Payload = nil
		if _, err := handler.Handle(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		got := <-received
		if format != handlers.EnvelopeCloudEvents && len(got.body) > 0 || format == handlers.EnvelopeCloudEvents && !json.Valid(got.body) {
			t.Errorf("%s: sent %q", format, got.body)
		}
		if !verify(secretOf(32), got.header, got.body) {
			t.Errorf("%s: the signature does not verify", format)
		}
	}
}

func TestNewHTTPReportsFaultsOfItsEnvelope(t *testing.T) {
	t.Parallel()
	_, err := handlers.NewHTTP(handlers.HTTPConfig{URL: "https://a.test", Envelope: handlers.Envelope{Format: "xml", Source: "a b"}})
	if err == nil || !strings.Contains(err.Error(), "envelope: ") || !strings.Contains(err.Error(), "source: ") {
		t.Errorf("error %v, want faults of envelope and source", err)
	}
}
