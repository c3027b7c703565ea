package handlers

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox"
)

// A name server that first answers an allowed address, and once that was looked at 127.0.0.1, gains nothing: each
// connection is judged by the address it goes to. In place of a public address, which a test should not dial, stands
// 0.0.0.0, which is allowed here and leads to this machine too: without the guard the second answer would be reached.
func TestARebindingNameIsNotReached(t *testing.T) {
	t.Parallel()
	public, private := netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("127.0.0.1")
	victim := newVictim(t, "127.0.0.1:0")
	names := newNameServer(t, public)
	handler := guarded(t, HTTPConfig{
		URL: "http://rebind.example.com:" + victim.port, AllowHTTP: true, AllowPorts: []Ports{{1, 65535}},
		AllowPrivate: []netip.Prefix{netip.PrefixFrom(public, 32)},
	}, names)
	for round := range int64(10) {
		names.says(public)
		if _, err := handler.Handle(t.Context(), outbox.Event{ID: "1"}); err != nil {
			t.Fatalf("round %d, allowed address: %v", round, err)
		}
		handler.transport.CloseIdleConnections()
		for _, answer := range [][]netip.Addr{{private}, {private, private}} {
			names.says(answer...)
			_, err := handler.Handle(t.Context(), outbox.Event{ID: "1"})
			if err == nil || !strings.HasPrefix(err.Error(), "address_blocked") {
				t.Errorf("round %d, %v: %v, want address_blocked", round, answer, err)
			}
		}
		if got := victim.accepted.Load(); got != round+1 {
			t.Fatalf("round %d: %d connections, want %d, those of the allowed address", round, got, round+1)
		}
	}
	if got := names.questions.Load(); got != 30 {
		t.Errorf("%d lookups, want one for each of 30 connections: an answer was kept", got)
	}
}

// Of several addresses in one answer those that are blocked are passed over, wherever they stand.
func TestABlockedAddressAmongAllowedOnesIsNotReached(t *testing.T) {
	t.Parallel()
	public, private := netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("127.0.0.1")
	victim := newVictim(t, "127.0.0.1:0")
	names := newNameServer(t)
	handler := guarded(t, HTTPConfig{
		URL: "http://rebind.example.com:1", AllowHTTP: true, AllowPorts: []Ports{{1, 65535}},
		AllowPrivate: []netip.Prefix{netip.PrefixFrom(public, 32)},
	}, names)
	for _, answer := range [][]netip.Addr{{public, private}, {private, public}} {
		names.says(answer...)
		_, err := handler.Handle(t.Context(), outbox.Event{ID: "1"})
		if reason, _, _ := strings.Cut(errors.Join(err).Error(), ":"); reason != "address_partly_blocked" && reason != "connection_refused" {
			t.Errorf("%v, where nothing listens: %v, want the refusal of the allowed address", answer, err)
		}
	}
	handler.request.URL.Host = "rebind.example.com:" + victim.port
	for n, answer := range [][]netip.Addr{{public, private}, {private, public}} {
		names.says(answer...)
		if _, err := handler.Handle(t.Context(), outbox.Event{ID: "1"}); err != nil {
			t.Errorf("%v: %v, want it delivered to the allowed address", answer, err)
		}
		handler.transport.CloseIdleConnections()
		if got := victim.accepted.Load(); got != int64(n)+1 {
			t.Errorf("%v: %d connections, want %d", answer, got, n+1)
		}
	}
}

// A URL's port is judged again as it is dialled, whatever the configuration said of it.
func TestAForbiddenPortIsNotDialled(t *testing.T) {
	t.Parallel()
	victim := newVictim(t, "127.0.0.1:0")
	guard := newGuard(HTTPConfig{AllowHTTP: true, AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	_, err := guard.dial(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", victim.port))
	if !errors.Is(err, errPortBlocked) {
		t.Errorf("dialled: %v, want the port refused", err)
	}
	if got := victim.accepted.Load(); got != 0 {
		t.Errorf("%d connections, want none", got)
	}
}

// A receiver that redirects to where the guard would not go, or would, is not followed anywhere.
func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(target.Close)
	var location atomic.Pointer[string]
	var status, requests atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Location", *location.Load())
		w.Header().Set("Refresh", "0; url="+*location.Load())
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(receiver.Close)
	handler, err := NewHTTP(HTTPConfig{
		URL: receiver.URL, AllowHTTP: true, AllowPorts: []Ports{{1, 65535}},
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{target.URL, "//" + target.Listener.Addr().String(), "/elsewhere", "http://169.254.169.254/latest/meta-data/"} {
		for _, code := range []int64{301, 302, 303, 307, 308, 300, 305} {
			location.Store(&url)
			status.Store(code)
			if _, err := handler.Handle(t.Context(), outbox.Event{ID: "1"}); err == nil || !strings.HasPrefix(err.Error(), "http_3") {
				t.Errorf("%d to %s: %v, want the fault of a redirect", code, url, err)
			}
		}
	}
	if got := followed.Load(); got != 0 || requests.Load() != 4*7 {
		t.Errorf("%d redirects were followed, %d requests received, want 0 and %d", got, requests.Load(), 4*7)
	}
}

// net/http would take a proxy for https from other variables, and never one for loopback, where tests listen.
func TestNoSchemeHasAProxy(t *testing.T) {
	t.Parallel()
	handler, err := NewHTTP(HTTPConfig{URL: "https://example.com"})
	if err != nil {
		t.Fatal(err)
	}
	if handler.transport.Proxy != nil {
		t.Error("the transport may use a proxy, and the guard would see only its address")
	}
}
