package handlers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// pair is a certificate of its own, and its key, in PEM.
type pair struct{ certificate, key string }

func newPair(t *testing.T, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{certificate: inPEM("CERTIFICATE", der), key: inPEM("PRIVATE KEY", private)}
}

func inPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// demanding is a receiver that takes only callers whom this certificate vouches for, and tells who called.
func demanding(t *testing.T, vouches pair) (url, certificate string, callers <-chan string) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(vouches.certificate))
	names := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		names <- r.TLS.PeerCertificates[0].Subject.CommonName
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, inPEM("CERTIFICATE", server.Certificate().Raw), names
}

func TestHTTPShowsItsClientCertificate(t *testing.T) {
	t.Parallel()
	client, stranger := newPair(t, "dispatch"), newPair(t, "dispatch")
	url, ca, callers := demanding(t, client)
	handle := func(config handlers.HTTPConfig) outbox.Settlement {
		config.URL, config.CA = url, ca
		return outcomeOf(t, newHTTP(t, config), 0)
	}
	expect(t, handle(handlers.HTTPConfig{ClientCertificate: client.certificate, ClientKey: client.key}), outbox.Processed, "")
	if got := <-callers; got != "dispatch" {
		t.Errorf("called by %q, want dispatch", got)
	}
	// With TLS 1.3 the receiver refuses when the request may be on its way already: how that ends is a matter of luck.
	for name, config := range map[string]handlers.HTTPConfig{
		"none": {}, "a stranger's": {ClientCertificate: stranger.certificate, ClientKey: stranger.key},
	} {
		if got := handle(config); got.Outcome != outbox.Retry || strings.HasPrefix(got.Reason, "http_") {
			t.Errorf("%s: %s %q, want a retry because of the connection", name, got.Outcome, got.Reason)
		}
	}
	if len(callers) > 0 {
		t.Errorf("a request of %q came through", <-callers)
	}
}

func TestHTTPTrustsTheListedAuthoritiesOnly(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	certificate, other := inPEM("CERTIFICATE", server.Certificate().Raw), newPair(t, "other").certificate
	trusting := x509.NewCertPool()
	trusting.AddCert(server.Certificate())
	for name, test := range map[string]struct {
		config  handlers.HTTPConfig
		outcome outbox.Outcome
		reason  string
	}{
		"its own":           {handlers.HTTPConfig{CA: certificate}, outbox.Processed, ""},
		"one of a bundle":   {handlers.HTTPConfig{CA: "# bundle\n" + other + "\n" + certificate}, outbox.Processed, ""},
		"another":           {handlers.HTTPConfig{CA: other}, outbox.Retry, "tls_certificate_invalid"},
		"another, not both": {handlers.HTTPConfig{CA: other, RootCAs: trusting}, outbox.Retry, "tls_certificate_invalid"},
		"none":              {handlers.HTTPConfig{}, outbox.Retry, "tls_certificate_invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.config.URL = server.URL
			expect(t, outcomeOf(t, newHTTP(t, test.config), 0), test.outcome, test.reason)
		})
	}
}

func TestNewHTTPChecksCertificatesAndKey(t *testing.T) {
	t.Parallel()
	one, other := newPair(t, "one"), newPair(t, "other")
	broken := inPEM("CERTIFICATE", []byte("hunter2"))
	for _, test := range []struct {
		config         handlers.HTTPConfig
		field, problem string
	}{
		{handlers.HTTPConfig{ClientKey: one.key}, "client_certificate", "missing"},
		{handlers.HTTPConfig{ClientCertificate: one.certificate}, "client_key", "missing"},
		{handlers.HTTPConfig{ClientCertificate: "hunter2", ClientKey: one.key}, "client_certificate", "holds no certificate"},
		{handlers.HTTPConfig{ClientCertificate: one.key, ClientKey: one.key}, "client_certificate", "holds a block that is no certificate"},
		{handlers.HTTPConfig{ClientCertificate: broken, ClientKey: one.key}, "client_certificate", "holds a certificate that cannot be parsed, number 1"},
		{handlers.HTTPConfig{ClientCertificate: one.certificate, ClientKey: "hunter2"}, "client_key", "holds no private key"},
		{handlers.HTTPConfig{ClientCertificate: one.certificate, ClientKey: one.certificate}, "client_key", "cannot be parsed, or is not the key"},
		{handlers.HTTPConfig{ClientCertificate: one.certificate, ClientKey: other.key}, "client_key", "cannot be parsed, or is not the key"},
		{handlers.HTTPConfig{ClientCertificate: one.certificate, ClientKey: inPEM("PRIVATE KEY", []byte("hunter2"))}, "client_key", "cannot be parsed"},
		{handlers.HTTPConfig{ClientCertificate: other.certificate + one.certificate, ClientKey: one.key}, "client_key", "cannot be parsed, or is not"},
		{handlers.HTTPConfig{CA: "hunter2"}, "ca", "holds no certificate"},
		{handlers.HTTPConfig{CA: one.certificate + one.key}, "ca", "holds a block that is no certificate"},
		{handlers.HTTPConfig{CA: one.certificate + broken}, "ca", "holds a certificate that cannot be parsed, number 2"},
	} {
		fault(t, test.config, test.field, test.problem)
	}
	good := handlers.HTTPConfig{
		URL: "https://a.test", ClientCertificate: one.certificate + other.certificate, ClientKey: one.key,
		CA: one.certificate + other.certificate,
	}
	if faults := good.Faults(); len(faults) > 0 {
		t.Errorf("faults %q, want none", faults)
	}
}
