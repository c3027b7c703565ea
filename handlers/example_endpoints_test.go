package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// customers stands for a table of endpoints; package postgres reads one.
type customers map[string][]handlers.Endpoint

func (c customers) Endpoints(context.Context, []string) (map[string][]handlers.Endpoint, error) {
	return c, nil
}

func (c customers) Disable(_ context.Context, endpoint handlers.Endpoint, reason string) error {
	fmt.Println("disabled", endpoint.ID, "for", reason)
	c[endpoint.Tenant][0].Disabled = true
	return nil
}

func ExampleNewEndpoints() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.URL.Path, "signed", r.Header.Get("webhook-signature") != "")
		if r.URL.Path == "/globex" {
			w.WriteHeader(http.StatusGone)
		}
	}))
	defer receiver.Close()

	handler, err := handlers.NewEndpoints(handlers.EndpointsConfig{
		By: "payload.customer",
		Source: customers{
			"acme":   {{ID: "ep-1", Tenant: "acme", URL: receiver.URL + "/acme", SecretRefs: []string{"acme-key"}}},
			"globex": {{ID: "ep-2", Tenant: "globex", URL: receiver.URL + "/globex"}},
		},
		Secret: func(context.Context, string) (string, error) { return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", nil },
		HTTP: handlers.HTTPConfig{
			AllowHTTP: true, AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // for the local receiver only
			AllowPorts: []handlers.Ports{{First: 1024, Last: 65535}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Each endpoint is a part of the destination, with a circuit of its own.
	route := outbox.Route{Handler: handler, Destination: "customers", Part: handler.Part, Prepare: handler.Prepare}

	for _, customer := range []string{"acme", "globex", "globex", "initech"} {
		event := outbox.Event{Type: "order.placed", Payload: json.RawMessage(`{"customer": "` + customer + `"}`)}
		_, err := route.Handler.Handle(context.Background(), event)
		fmt.Printf("%s: %s: %v\n", route.Part(event), outbox.OutcomeOf(err), err)
	}
	// Output:
	// /acme signed true
	// ep-1: processed: <nil>
	// /globex signed false
	// disabled ep-2 for http_410: gone
	// ep-2: discard: http_410: gone, endpoint ep-2 is disabled
	// ep-2: snooze: endpoint_disabled: ep-2
	// initech: discard: endpoint_missing: the tenant has none
}

// What surrounds a payload is chosen by destination.
func ExampleEnvelope() {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("ce-type"), r.Header.Get("ce-source"), r.Header.Get("ce-dataschema"))
	}))
	defer receiver.Close()
	handler, err := handlers.NewHTTP(handlers.HTTPConfig{
		URL: receiver.URL,
		Envelope: handlers.Envelope{
			Format: handlers.EnvelopeBinary, Source: "/shop", DataSchema: "https://schemas.shop.example/{type}.json",
		},
		AllowHTTP: true, AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		AllowPorts: []handlers.Ports{{First: 1024, Last: 65535}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = handler.Handle(context.Background(), outbox.Event{Type: "order.placed", Payload: json.RawMessage(`{"total": 12.50}`)})
	fmt.Println(err)

	for _, fault := range (handlers.Envelope{Format: "xml"}).Faults() {
		fmt.Println(fault)
	}
	// Output:
	// order.placed /shop https://schemas.shop.example/order.placed.json
	// <nil>
	// envelope: is none, takes cloudevents, cloudevents-binary or raw
}
