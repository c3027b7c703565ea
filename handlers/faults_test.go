package handlers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// oneEvent is a store of one event that keeps its settlement.
type oneEvent struct {
	event   outbox.Event
	claimed atomic.Bool
	settled chan outbox.Settlement
}

func (s *oneEvent) Claim(context.Context, outbox.ClaimRequest) (outbox.Claim, error) {
	if s.claimed.Swap(true) {
		return outbox.Claim{End: true}, nil
	}
	return outbox.Claim{Events: []outbox.Event{s.event}, End: true}, nil
}

func (s *oneEvent) Settle(_ context.Context, batch []outbox.Settlement, _ outbox.Backoff) ([]outbox.Answer, error) {
	answers := make([]outbox.Answer, len(batch))
	for i, settlement := range batch {
		s.settled <- settlement
		answers[i] = outbox.AnswerFailed
	}
	return answers, nil
}

// outcomeOf runs one event through a pass, so that outcomes are read as the rail reads them.
func outcomeOf(t *testing.T, handler outbox.Handler, timeout time.Duration) outbox.Settlement {
	t.Helper()
	return settlementOf(t, handler, sampleEvent(), timeout)
}

func settlementOf(t *testing.T, handler outbox.Handler, event outbox.Event, timeout time.Duration) outbox.Settlement {
	t.Helper()
	store := &oneEvent{event: event, settled: make(chan outbox.Settlement, 1)}
	store.event.Metadata = json.RawMessage(`{"claimToken": "token"}`)
	worker, err := outbox.NewWorker(outbox.Config{
		Store:    store,
		Registry: outbox.Registry{store.event.Type: {Handler: handler, Timeout: timeout}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Run(t.Context(), outbox.Pass{}); err != nil {
		t.Fatal(err)
	}
	select {
	case settlement := <-store.settled:
		return settlement
	default:
		t.Fatal("nothing was settled")
		return outbox.Settlement{}
	}
}

// expect compares an outcome and the start of its reason, and looks for what must never be in a reason.
func expect(t *testing.T, got outbox.Settlement, outcome outbox.Outcome, reason string) {
	t.Helper()
	if got.Outcome != outcome || !strings.HasPrefix(got.Reason, reason) {
		t.Errorf("got %s %q, want %s %q", got.Outcome, got.Reason, outcome, reason)
	}
	for _, secret := range []string{"hunter2", "total", "http://", "https://", "127.0.0.1:"} {
		if strings.Contains(got.Reason, secret) {
			t.Errorf("reason %q shows %q", got.Reason, secret)
		}
	}
}

func TestHTTPClassifiesStatuses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		outcome outbox.Outcome
		reason  string
	}{
		200: {outbox.Processed, ""},
		204: {outbox.Processed, ""},
		300: {outbox.Retry, "http_300: multiple choices"},
		301: {outbox.Retry, "http_301: moved permanently"},
		302: {outbox.Retry, "http_302: found"},
		304: {outbox.Retry, "http_304: not modified"},
		307: {outbox.Retry, "http_307: temporary redirect"},
		308: {outbox.Retry, "http_308: permanent redirect"},
		400: {outbox.Retry, "http_400: bad request"},
		401: {outbox.Retry, "http_401: unauthorized"},
		403: {outbox.Retry, "http_403: forbidden"},
		404: {outbox.Retry, "http_404: not found"},
		408: {outbox.Snoozed, "http_408: request timeout"},
		409: {outbox.Retry, "http_409: conflict"},
		410: {outbox.Discarded, "http_410: gone"},
		413: {outbox.Retry, "http_413: request entity too large"},
		422: {outbox.Retry, "http_422: unprocessable entity"},
		425: {outbox.Snoozed, "http_425: too early"},
		429: {outbox.Snoozed, "http_429: too many requests"},
		499: {outbox.Retry, "http_499"},
		500: {outbox.Retry, "http_500: internal server error"},
		501: {outbox.Retry, "http_501: not implemented"},
		502: {outbox.Snoozed, "http_502: bad gateway"},
		503: {outbox.Snoozed, "http_503: service unavailable"},
		504: {outbox.Snoozed, "http_504: gateway timeout"},
		507: {outbox.Retry, "http_507: insufficient storage"},
		599: {outbox.Retry, "http_599"},
		700: {outbox.Retry, "http_700"},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var elsewhere atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					elsewhere.Store(true)
				}
				w.Header().Set("Location", "/elsewhere?hunter2")
				w.WriteHeader(status)
				io.WriteString(w, "hunter2")
			}))
			t.Cleanup(server.Close)
			expect(t, outcomeOf(t, newHTTP(t, handlers.HTTPConfig{URL: server.URL + "/"}), 0), want.outcome, want.reason)
			if elsewhere.Load() {
				t.Error("the redirect was followed")
			}
		})
	}
}

func TestHTTPReadsRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)
	const none = outbox.DefaultSnooze // what the pass takes when the handler names no delay
	for text, want := range map[string]time.Duration{
		"":                                none,
		"120":                             2 * time.Minute,
		"0":                               time.Second,
		"1":                               time.Second,
		"007":                             7 * time.Second,
		"86400":                           24 * time.Hour,
		"86401":                           24 * time.Hour,
		"4294967296":                      24 * time.Hour,
		"99999999999999999999999":         24 * time.Hour,
		"Mon, 30 Nov 2026 07:10:00 GMT":   10 * time.Minute,
		"Monday, 30-Nov-26 07:10:00 GMT":  10 * time.Minute,
		"Mon Nov 30 07:10:00 2026":        10 * time.Minute,
		"Mon, 30 Nov 2026 06:00:00 GMT":   time.Second,
		"Fri, 31 Dec 9999 23:59:59 GMT":   24 * time.Hour,
		"2026-11-30T07:10:00Z":            none,
		"soon":                            none,
		"-5":                              none,
		"+5":                              none,
		"1.5":                             none,
		"1e3":                             none,
		"120, 60":                         none,
		"\u0661\u0662\u0660":              none,
		"Mon, 30 Nov 2026 07:10:00 +0100": none,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if text != "" {
					w.Header().Set("Retry-After", text)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			t.Cleanup(server.Close)
			handler := newHTTP(t, handlers.HTTPConfig{URL: server.URL, Clock: func() time.Time { return now }})
			got := outcomeOf(t, handler, 0)
			reason := "http_503: service unavailable"
			if want != none {
				reason += fmt.Sprintf(", retry after %d s", int(want.Seconds()))
			}
			if got.Outcome != outbox.Snoozed || got.Delay != want || got.Reason != reason {
				t.Errorf("got %s after %v: %q, want snooze after %v: %q", got.Outcome, got.Delay, got.Reason, want, reason)
			}
		})
	}
}

// rawServer hands each connection to serve, with the request's head read, and closes it after.
func rawServer(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	listener := listen(t)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.Read(make([]byte, 64<<10))
				serve(conn.(*net.TCPConn))
			}()
		}
	}()
	return listener.Addr().String()
}

// untilClosed waits for the other side to hang up.
func untilClosed(conn net.Conn) { io.Copy(io.Discard, conn) }

func TestHTTPClassifiesBrokenConnections(t *testing.T) {
	t.Parallel()
	refused := rawAddress(t)
	for name, test := range map[string]struct {
		url    string
		reason string
	}{
		"refused": {"http://" + refused, "connection_refused"},
		"reset": {
			"http://" + rawServer(t, func(c *net.TCPConn) { c.SetLinger(0) }),
			"connection_reset",
		},
		"closed":       {"http://" + rawServer(t, func(*net.TCPConn) {}), "connection_reset"},
		"half a head":  {"http://" + rawServer(t, func(c *net.TCPConn) { io.WriteString(c, "HTTP/1.1 200") }), "connection_reset"},
		"no HTTP":      {"http://" + rawServer(t, func(c *net.TCPConn) { io.WriteString(c, "hunter2 hunter2\r\n\r\n") }), "response_invalid"},
		"bad header":   {"http://" + rawServer(t, func(c *net.TCPConn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nhunter2\r\n\r\n") }), "response_invalid"},
		"bad status":   {"http://" + rawServer(t, func(c *net.TCPConn) { io.WriteString(c, "HTTP/1.1 hunter2 OK\r\n\r\n") }), "response_invalid"},
		"huge headers": {"http://" + rawServer(t, func(c *net.TCPConn) { endless(c, "HTTP/1.1 200 OK\r\nX: ", "hunter2") }), "response_invalid"},
		"endless 1xx": {"http://" + rawServer(t, func(c *net.TCPConn) {
			endless(c, "", "HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("h", 999)+"\r\n\r\n")
		}), "response_invalid"},
		"switched":  {"http://" + rawServer(t, func(c *net.TCPConn) { io.WriteString(c, "HTTP/1.1 101 OK\r\n\r\n") }), "http_101"},
		"not TLS":   {"https://" + rawServer(t, func(c *net.TCPConn) { io.WriteString(c, "HTTP/1.1 400 Bad\r\n\r\n") }), "tls_handshake_failed"},
		"TLS noise": {"https://" + rawServer(t, func(c *net.TCPConn) { io.WriteString(c, "hunter2hunter2") }), "tls_handshake_failed"},
		"no name":   {"http://no-such-name.invalid", "dns_"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, outcomeOf(t, newHTTP(t, handlers.HTTPConfig{URL: test.url}), 0), outbox.Retry, test.reason)
		})
	}
}

// endless writes until the other side hangs up, and tells how much it wrote.
func endless(conn net.Conn, first, again string) int {
	written, err := io.WriteString(conn, first)
	for n := 0; err == nil; written += n {
		n, err = io.WriteString(conn, again)
	}
	return written
}

// rawAddress is an address at which nothing listens.
func rawAddress(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	defer listener.Close()
	return listener.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func TestHTTPClassifiesTLSFaults(t *testing.T) {
	t.Parallel()
	serve := func(version uint16) (*httptest.Server, *x509.CertPool) {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.TLS = &tls.Config{MaxVersion: version}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		pool := x509.NewCertPool()
		pool.AddCert(server.Certificate())
		return server, pool
	}
	modern, roots := serve(0)
	current, currentRoots := serve(tls.VersionTLS12)
	old, oldRoots := serve(tls.VersionTLS11)
	_, port, _ := net.SplitHostPort(modern.Listener.Addr().String())

	expect(t, outcomeOf(t, newHTTP(t, handlers.HTTPConfig{URL: modern.URL, RootCAs: roots}), 0), outbox.Processed, "")
	expect(t, outcomeOf(t, newHTTP(t, handlers.HTTPConfig{URL: current.URL, RootCAs: currentRoots}), 0), outbox.Processed, "")
	expect(t, outcomeOf(t, newHTTP(t, handlers.HTTPConfig{URL: modern.URL}), 0), outbox.Retry, "tls_certificate_invalid")
	expect(t, outcomeOf(t, newHTTP(t, handlers.HTTPConfig{URL: "https://localhost:" + port, RootCAs: roots}), 0),
		outbox.Retry, "tls_certificate_invalid") // the certificate is for 127.0.0.1 and example.com
	expect(t, outcomeOf(t, newHTTP(t, handlers.HTTPConfig{URL: old.URL, RootCAs: oldRoots}), 0), outbox.Retry, "tls_handshake_failed")
}

func TestHTTPClassifiesAnAbortedHTTP2Stream(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	expect(t, outcomeOf(t, newHTTP(t, handlers.HTTPConfig{URL: server.URL, RootCAs: pool}), 0), outbox.Retry, "http2_failed")
}

func TestHTTPEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*net.TCPConn){
		"hang":         func(c *net.TCPConn) { untilClosed(c) },
		"slow headers": func(c *net.TCPConn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "); untilClosed(c) },
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(scheme+" "+name, func(t *testing.T) {
				t.Parallel()
				handler := newHTTP(t, handlers.HTTPConfig{URL: scheme + "://" + rawServer(t, serve)})
				got := outcomeOf(t, handler, 150*time.Millisecond)
				if scheme == "https" && name == "slow headers" {
					expect(t, got, outbox.Retry, "tls_handshake_failed")
					return
				}
				expect(t, got, outbox.Retry, outbox.ReasonHandlerTimeout)
			})
		}
	}
}

func TestHTTPWrapsTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	handler := newHTTP(t, handlers.HTTPConfig{URL: "http://" + rawServer(t, func(c *net.TCPConn) { untilClosed(c) })})

	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := handler.Handle(late, sampleEvent())
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "timeout: context deadline exceeded" {
		t.Errorf("error %v, want timeout: context deadline exceeded", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = handler.Handle(canceled, sampleEvent())
	if !errors.Is(err, context.Canceled) || err.Error() != "canceled: context canceled" {
		t.Errorf("error %v, want canceled: context canceled", err)
	}
}

// The outcome is known with the headers; a body that is slow, endless or broken takes nothing from it.
func TestHTTPIsNotHeldByTheBody(t *testing.T) {
	t.Parallel()
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, serve := range map[string]func(*net.TCPConn) int{
		"slow": func(c *net.TCPConn) int {
			io.WriteString(c, chunked)
			untilClosed(c)
			return 0
		},
		"broken":  func(c *net.TCPConn) int { io.WriteString(c, chunked+"3e8\r\nx"); return 0 },
		"endless": func(c *net.TCPConn) int { return endless(c, chunked, "3e8\r\n"+strings.Repeat("x", 1000)+"\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			written := make(chan int, 1)
			handler := newHTTP(t, handlers.HTTPConfig{URL: "http://" + rawServer(t, func(c *net.TCPConn) { written <- serve(c) })})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if _, err := handler.Handle(ctx, sampleEvent()); err != nil {
				t.Error(err)
			}
			if ctx.Err() != nil {
				t.Error("the body was waited for as long as the route allows")
			}
			// The connection was given up, with little read: the rest is what sockets buffer.
			if n := <-written; n > 64<<20 {
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
}

// After 101 the body is the connection itself: reading it could last for ever.
func TestHTTPDoesNotReadASwitchedConnection(t *testing.T) {
	t.Parallel()
	handler := newHTTP(t, handlers.HTTPConfig{URL: "http://" + rawServer(t, func(c *net.TCPConn) {
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		untilClosed(c)
	})})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := handler.Handle(ctx, sampleEvent()); err == nil || !strings.HasPrefix(err.Error(), "http_101") && !strings.HasPrefix(err.Error(), "http_other") {
		t.Errorf("error %v, want the fault of an odd status", err)
	}
	if ctx.Err() != nil {
		t.Error("the switched connection was waited for as long as the route allows")
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
