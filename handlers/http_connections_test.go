package handlers_test

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

func TestHTTPSpeaksHTTP2(t *testing.T) {
	t.Parallel()
	protocols := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocols <- r.Proto }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL, RootCAs: pool})
	if _, err := handler.Handle(t.Context(), sampleEvent()); err != nil {
		t.Fatal(err)
	}
	if got := <-protocols; got != "HTTP/2.0" {
		t.Errorf("protocol %s, want HTTP/2.0", got)
	}
}

func TestHTTPUsesAConnectionAgain(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	status := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(<-status)
		io.WriteString(w, strings.Repeat("x", 60<<10))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL})
	for _, code := range []int{200, 500, 503, 404, 302, 410, 200} {
		status <- code
		_, err := handler.Handle(t.Context(), sampleEvent())
		if (err == nil) != (code == 200) {
			t.Errorf("%d: error %v", code, err)
		}
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

// A sandbox may thaw with connections that the receiver closed long ago.
func TestHTTPReplacesADeadConnectionWithoutAnError(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	address := rawServer(t, func(c *net.TCPConn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		// Hang up only once the next request is there: it was sent, and is not answered.
		requests.Add(1)
		c.Read(make([]byte, 64<<10))
	})
	handler := newHTTP(t, handlers.HTTPConfig{URL: "http://" + address})
	for range 3 {
		if _, err := handler.Handle(t.Context(), sampleEvent()); err != nil {
			t.Fatal(err)
		}
	}
	if got := requests.Load(); got != 3 {
		t.Errorf("%d answers, want 3", got)
	}
}

// counting is a receiver that counts its connections and, by protocol, its requests.
type counting struct {
	*httptest.Server
	connections, http1, http2 atomic.Int64
}

func newCounting(t *testing.T, secure bool) *counting {
	t.Helper()
	c := &counting{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.ProtoMajor == 2 {
			c.http2.Add(1)
		} else {
			c.http1.Add(1)
		}
		io.WriteString(w, `{"ok": true}`)
	}))
	c.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.connections.Add(1)
		}
	}
	c.EnableHTTP2 = secure
	if secure {
		c.StartTLS()
	} else {
		c.Start()
	}
	t.Cleanup(c.Close)
	return c
}

// burst delivers events at once: that many lanes with 25 events each.
func burst(t *testing.T, handler *handlers.HTTP, lanes int) {
	t.Helper()
	var all sync.WaitGroup
	for range lanes {
		all.Go(func() {
			for range 25 {
				if _, err := handler.Handle(t.Context(), sampleEvent()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestHTTPKeepsConnectionsForItsLanes(t *testing.T) {
	t.Parallel()
	const lanes = 8
	server := newCounting(t, false)
	handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL, MaxIdleConns: lanes})
	burst(t, handler, lanes)
	burst(t, handler, lanes)
	// A few more than lanes: a request may begin before the connection of the one before it is back.
	events := int64(2 * lanes * 25)
	if got := server.connections.Load(); got > events/10 || server.http1.Load() != events {
		t.Errorf("%d connections for %d events, want at most %d for %d", got, server.http1.Load(), events/10, events)
	}
}

// With HTTP/2 one connection carries all lanes.
func TestHTTPSharesAConnectionOverHTTP2(t *testing.T) {
	t.Parallel()
	const lanes = 8
	server := newCounting(t, true)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL, RootCAs: pool})
	burst(t, handler, 1) // before the first answer it isn't known that the receiver speaks HTTP/2
	burst(t, handler, lanes)
	if got := server.connections.Load(); got != 1 || server.http2.Load() != (lanes+1)*25 || server.http1.Load() != 0 {
		t.Errorf("%d connections, %d requests over HTTP/2 and %d over HTTP/1, want 1, %d and 0",
			got, server.http2.Load(), server.http1.Load(), (lanes+1)*25)
	}
}

func TestHTTPBlocksPrivateAddresses(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	t.Cleanup(func() {
		server.Close()
		if reached.Load() {
			t.Error("a request reached loopback")
		}
	})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	elsewhere := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, host := range []string{
		"127.0.0.1", "127.8.8.8", "0.0.0.0", "localhost", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
		"169.254.169.254", "[fe80::1%25lo]", "192.168.0.1", "[64:ff9b::7f00:1]",
	} {
		handler := newHTTP(t, handlers.HTTPConfig{URL: "http://" + host + ":" + port, AllowPrivate: elsewhere})
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			expect(t, outcomeOf(t, handler, 0), outbox.Discarded, "address_blocked")
		})
	}
}
