package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

func ExampleNewHTTP() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Header.Get("webhook-id"), r.Header.Get("outbox-event-type"), r.Header.Get("content-type"))
		fmt.Println(string(body))
		w.WriteHeader(http.StatusAccepted)
	}))
	defer receiver.Close()

	handler, err := handlers.NewHTTP(handlers.HTTPConfig{
		URL:          receiver.URL,
		Envelope:     handlers.Envelope{Source: "/shop"},
		Secrets:      []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		AllowHTTP:    true, // for the local receiver only
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		AllowPorts:   []handlers.Ports{{First: 1024, Last: 65535}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := outbox.Registry{"order.placed": {Handler: handler, Timeout: 5 * time.Second, Destination: "crm"}}

	_, err = registry["order.placed"].Handler.Handle(context.Background(), outbox.Event{
		ID: "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47", Position: 42, Type: "order.placed", Payload: json.RawMessage(`{"total": 12.50}`),
	})
	fmt.Println(err)
	// Output:
	// 5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47 order.placed application/cloudevents+json; charset=utf-8
	// {"specversion":"1.0","id":"5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47","source":"/shop","type":"order.placed","sequence":"0000000000000000042","datacontenttype":"application/json","data":{"total": 12.50}}
	// <nil>
}

// A receiver's test signs its requests as the dispatcher does.
func ExampleSign() {
	secret, err := handlers.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(handlers.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), secret))
	// Output: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
}
