package handlers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

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
