package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// directory is an EndpointSource that answers from memory.
type directory struct {
	mu        sync.Mutex
	endpoints []handlers.Endpoint
	asked     int // with a context that is alive
	broken    error
	known     map[string]bool
}

func (d *directory) Endpoints(ctx context.Context, tenants []string) (map[string][]handlers.Endpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[string]bool{}
	}
	if ctx.Err() == nil {
		d.asked++
	}
	found := map[string][]handlers.Endpoint{}
	for _, tenant := range tenants {
		if err := errors.Join(ctx.Err(), d.broken); err != nil && !d.known[tenant] {
			return nil, err
		}
		d.known[tenant] = true
		for _, endpoint := range d.endpoints {
			if endpoint.Tenant == tenant {
				found[tenant] = append(found[tenant], endpoint)
			}
		}
	}
	return found, nil
}

func (d *directory) Disable(_ context.Context, endpoint handlers.Endpoint, reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	i := slices.IndexFunc(d.endpoints, func(e handlers.Endpoint) bool { return e.ID == endpoint.ID && e.URL == endpoint.URL })
	d.endpoints[i].Disabled, d.endpoints[i].Reason = true, reason
	return nil
}

// vault resolves references to secrets; one that it lacks cannot be read.
func vault(secrets map[string]string) func(context.Context, string) (string, error) {
	return func(_ context.Context, ref string) (string, error) {
		if secret, found := secrets[ref]; found {
			return secret, nil
		}
		return "", errors.New("no such secret")
	}
}

func newEndpoints(t *testing.T, source handlers.EndpointSource, secrets map[string]string) *handlers.Endpoints {
	t.Helper()
	handler, err := handlers.NewEndpoints(handlers.EndpointsConfig{
		HTTP: handlers.HTTPConfig{AllowHTTP: true, AllowPorts: anyPort(), AllowPrivate: loopback()},
		By:   "payload.tenant", Source: source, Secret: vault(secrets),
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func eventOf(tenant string) outbox.Event {
	event := sampleEvent()
	event.Payload, _ = json.Marshal(map[string]any{"tenant": tenant})
	return event
}

func TestEndpointsPostsToTheTenantsEndpointSignedWithItsSecretsOfTheMoment(t *testing.T) {
	t.Parallel()
	server, received := recorder(t)
	secrets := map[string]string{"a1": secretOf(24), "a2": secretOf(32), "b1": secretOf(40)}
	source := &directory{endpoints: []handlers.Endpoint{
		{ID: "a-paid", Tenant: "a", URL: server.URL + "/a/paid", EventTypes: []string{"order.paid"}},
		{ID: "a", Tenant: "a", URL: server.URL + "/a?key=1", SecretRefs: []string{"a1"}, EventTypes: []string{"order.shipped", "order.placed"}},
		{ID: "b", Tenant: "b", URL: server.URL + "/b", SecretRefs: []string{"b1"}},
		{ID: "c", Tenant: "c", URL: server.URL + "/c"},
	}}
	handler := newEndpoints(t, source, secrets)
	deliver := func(tenant, id, uri string, by ...string) {
		t.Helper()
		receipt, err := handler.Handle(t.Context(), eventOf(tenant))
		if err != nil || receipt["endpoint"] != id || receipt["http"] == nil {
			t.Fatalf("receipt %v, error %v, want one of endpoint %s", receipt, err, id)
		}
		got := <-received
		if got.uri != uri {
			t.Errorf("posted to %s, want %s", got.uri, uri)
		}
		for name, secret := range secrets {
			if signed := verify(secret, got.header, got.body); signed != slices.Contains(by, name) {
				t.Errorf("tenant %s: signed with %s is %t", tenant, name, signed)
			}
		}
	}
	deliver("a", "a", "/a?key=1", "a1")
	deliver("b", "b", "/b", "b1")
	deliver("c", "c", "/c")
	source.endpoints[1].SecretRefs = []string{"a2", "a1"}
	deliver("a", "a", "/a?key=1", "a1", "a2")
	source.endpoints[1].SecretRefs = []string{"a2"}
	deliver("a", "a", "/a?key=1", "a2")
}

func TestEndpointsOutcomes(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(gone.Close)
	server, _ := recorder(t)
	here := func(change func(*handlers.Endpoint)) []handlers.Endpoint {
		endpoint := handlers.Endpoint{ID: "e1", Tenant: "a", URL: server.URL}
		change(&endpoint)
		return []handlers.Endpoint{endpoint}
	}
	sound := here(func(*handlers.Endpoint) {})
	for name, tc := range map[string]struct {
		endpoints []handlers.Endpoint
		payload   string
		broken    error
		secrets   map[string]string
		outcome   outbox.Outcome
		reason    string
	}{
		"sound":          {endpoints: sound, outcome: outbox.Processed},
		"no endpoint":    {outcome: outbox.Discarded, reason: "endpoint_missing: "},
		"another type":   {endpoints: here(func(e *handlers.Endpoint) { e.EventTypes = []string{"x"} }), outcome: outbox.Discarded, reason: "endpoint_not_subscribed: "},
		"no key":         {endpoints: sound, payload: `{"tenant": null}`, outcome: outbox.Discarded, reason: "endpoint_key_missing: the event has no text or number at payload.tenant"},
		"disabled":       {endpoints: here(func(e *handlers.Endpoint) { e.Disabled, e.Reason = true, "hunter2" }), outcome: outbox.Snoozed, reason: "endpoint_disabled: e1"},
		"look-up fails":  {endpoints: sound, broken: errors.New("database is away"), outcome: outbox.Retry, reason: "endpoint_lookup_failed: database is away"},
		"unread secret":  {endpoints: here(func(e *handlers.Endpoint) { e.SecretRefs = []string{"x"} }), outcome: outbox.Snoozed, reason: "endpoint_secret_unread: e1, secret 1: "},
		"bad secret":     {endpoints: here(func(e *handlers.Endpoint) { e.SecretRefs = []string{"x"} }), secrets: map[string]string{"x": "hunter2"}, outcome: outbox.Snoozed, reason: "endpoint_secret_invalid: e1, secret 1: "},
		"no URL":         {endpoints: here(func(e *handlers.Endpoint) { e.URL = "hunter2" }), outcome: outbox.Discarded, reason: "endpoint_url_refused: e1 "},
		"blocked":        {endpoints: here(func(e *handlers.Endpoint) { e.URL = "http://169.254.169.254/latest" }), outcome: outbox.Discarded, reason: "address_blocked: "},
		"gone":           {endpoints: here(func(e *handlers.Endpoint) { e.URL = gone.URL }), outcome: outbox.Discarded, reason: "http_410: gone, endpoint e1 is disabled"},
		"nothing there":  {endpoints: here(func(e *handlers.Endpoint) { e.URL = "http://127.0.0.1:1" }), outcome: outbox.Retry, reason: "connection_refused: "},
		"number as key":  {endpoints: here(func(e *handlers.Endpoint) { e.Tenant = "12345678901234567890.10" }), payload: `{"tenant": 12345678901234567890.10}`, outcome: outbox.Processed},
		"key of objects": {endpoints: sound, payload: `{"tenant": {"a": 1}}`, outcome: outbox.Discarded, reason: "endpoint_key_missing: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := &directory{endpoints: slices.Clone(tc.endpoints), broken: tc.broken}
			row := outboxtest.Row{Type: "order.placed", Payload: json.RawMessage(`{"tenant": "a"}`)}
			if tc.payload != "" {
				row.Payload = json.RawMessage(tc.payload)
			}
			got := runRow(t, newEndpoints(t, source, tc.secrets), row)
			status := map[outbox.Outcome]string{
				outbox.Processed: outboxtest.StatusProcessed, outbox.Retry: outboxtest.StatusFailed,
				outbox.Snoozed: outboxtest.StatusFailed, outbox.Discarded: outboxtest.StatusDiscarded,
			}[tc.outcome]
			charged := 1
			if tc.outcome == outbox.Snoozed {
				charged = 0
			}
			if got.Status != status || !strings.HasPrefix(got.Error, tc.reason) || got.Attempts != charged || strings.Contains(got.Error, "hunter2") {
				t.Errorf("the row is %s with %d attempts, error %q; want %s with %d, %q", got.Status, got.Attempts, got.Error, status, charged, tc.reason)
			}
		})
	}
}

// runRow lets a pass deliver one event.
func runRow(t *testing.T, handler *handlers.Endpoints, row outboxtest.Row) outboxtest.Row {
	t.Helper()
	store := &outboxtest.Memory{}
	store.Insert(row)
	worker, err := outbox.NewWorker(outbox.Config{Store: store, Registry: outbox.Registry{
		row.Type: {Handler: handler, Part: handler.Part, Prepare: handler.Prepare},
	}})
	if err == nil {
		_, err = worker.Run(t.Context(), outbox.Pass{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return store.Rows()[0]
}

func TestEndpointsDisablesWhatIsGoneBeforeItGivesTheEventUp(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(server.Close)
	source := &directory{endpoints: []handlers.Endpoint{{ID: "e", Tenant: "a", URL: server.URL}}}
	handler := newEndpoints(t, source, nil)
	if _, err := source.Endpoints(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	source.broken = errors.New("database is away")
	if _, err := handler.Handle(t.Context(), eventOf("a")); err == nil || err.Error() != "endpoint_disable_failed: database is away" {
		t.Errorf("error %v, want a retry until it is disabled", err)
	}
	source.broken = nil
	for range 3 {
		if _, err := handler.Handle(t.Context(), eventOf("a")); err == nil {
			t.Error("no error, want one")
		}
	}
	if e := source.endpoints[0]; calls.Load() != 2 || !e.Disabled || e.Reason != "http_410: gone" {
		t.Errorf("%d calls, endpoint %+v, want two and none after it was disabled", calls.Load(), e)
	}
}

func TestEndpointsSharesConnections(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	source := &directory{}
	for i := range 200 {
		name := string(rune('a'+i%26)) + strings.Repeat("x", i)
		source.endpoints = append(source.endpoints, handlers.Endpoint{ID: name, Tenant: name, URL: server.URL + "/" + name})
	}
	handler := newEndpoints(t, source, nil)
	for _, endpoint := range source.endpoints {
		if _, err := handler.Handle(t.Context(), eventOf(endpoint.Tenant)); err != nil {
			t.Fatal(err)
		}
	}
	if n := opened.Load(); n > 3 {
		t.Errorf("%d connections for 200 endpoints of one host, one after the other, want one", n)
	}
}

func TestEndpointsPartNamesTheEndpointAndNeverAsks(t *testing.T) {
	t.Parallel()
	source := &directory{endpoints: []handlers.Endpoint{
		{ID: "e1", Tenant: "a", EventTypes: []string{"order.paid"}}, {ID: "e2", Tenant: "a", EventTypes: []string{"order.placed"}},
	}}
	handler := newEndpoints(t, source, nil)
	events := []outbox.Event{eventOf("a"), eventOf("a"), eventOf("b"), {}}
	parts := func() (got []string) {
		for _, event := range events {
			got = append(got, handler.Part(event))
		}
		return got
	}
	if got, want := parts(), []string{"a", "a", "b", ""}; !slices.Equal(got, want) || source.asked != 0 {
		t.Errorf("before anybody asked: %q in %d questions, want %q in none", got, source.asked, want)
	}
	handler.Prepare(t.Context(), events)
	if got, want := parts(), []string{"e2", "e2", "b", ""}; !slices.Equal(got, want) || source.asked != 1 {
		t.Errorf("after Prepare: %q in %d questions, want %q in one", got, source.asked, want)
	}
}

func TestEndpointsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	source := &directory{endpoints: []handlers.Endpoint{{ID: "e", Tenant: "a", URL: "http://127.0.0.1:1", SecretRefs: []string{"slow"}}}}
	handler, err := handlers.NewEndpoints(handlers.EndpointsConfig{
		HTTP: handlers.HTTPConfig{AllowHTTP: true, AllowPorts: anyPort()}, By: "payload.tenant", Source: source,
		Secret: func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := handler.Handle(ctx, eventOf("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
	if _, err := handler.Handle(ctx, eventOf("never asked for")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestNewEndpointsReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := handlers.NewEndpoints(handlers.EndpointsConfig{
		HTTP: handlers.HTTPConfig{URL: "https://hunter2.example", UserAgent: "\n"}, By: "payload",
	})
	for _, want := range []string{"user agent: ", "by: takes aggregate_id", "endpoints: nobody looks", "endpoints: takes neither"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestEndpointKeys(t *testing.T) {
	t.Parallel()
	for text, sound := range map[string]bool{
		"aggregate_id": true, "aggregate_type": true, "payload.tenant_id": true, "metadata.a.b.c": true, "payload.Ä b": true,
		"": false, "payload": false, "payload.": false, "payload..a": false, "payload.a.": false, "aggregate_id.x": false,
		"id": false, "Payload.a": false, "payload.1.2.3.4.5.6.7.8.9": false,
	} {
		if err := handlers.CheckEndpointKey(text); (err == nil) != sound {
			t.Errorf("%q: %v, want sound %t", text, err, sound)
		}
	}
	event := sampleEvent()
	event.Payload = json.RawMessage(`{"a": {"b": "deep", "n": -1.50, "l": ["x"], "long": "` + strings.Repeat("x", 1001) + `"}, "t": true, "A": "other", "nul": "a\u0000b"}`)
	event.Metadata = json.RawMessage(`"no object"`)
	for by, want := range map[string]string{
		"aggregate_id": event.AggregateID, "aggregate_type": "order", "payload.a.b": "deep", "payload.a.n": "-1.50",
		"payload.a.l": "", "payload.a": "", "payload.t": "", "payload.A": "other", "payload.a.b.c": "", "payload.x": "",
		"payload.a.long": "", "metadata.x": "", "payload.nul": "a\x00b",
	} {
		handler, err := handlers.NewEndpoints(handlers.EndpointsConfig{By: by, Source: &directory{}, Secret: vault(nil)})
		if err != nil {
			t.Fatal(err)
		}
		if got := handler.Part(event); got != want {
			t.Errorf("%s: %q, want %q", by, got, want)
		}
	}
}
