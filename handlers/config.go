package handlers

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// DefaultUserAgent is sent when an [HTTPConfig] names none.
const DefaultUserAgent = "outbox-dispatch (+https://github.com/openlup/outbox-dispatch)"

// HTTPConfig configures an [HTTP] handler. URL is required; every other zero value means its default.
type HTTPConfig struct {
	// URL is where events are posted: https, without user information and fragment. It may hold a token: no error
	// shows any of it.
	URL string
	// Secrets sign each request, one signature per secret and in this order, so that a receiver can change from one
	// to the next; see [ParseSecret] for their form. None means unsigned.
	Secrets []string
	// Envelope is what surrounds the payload; the zero value is a CloudEvent in structured mode. What is signed is what is
	// sent, with the envelope.
	Envelope Envelope
	// AllowHTTP lets URL be plain http, and its port 80.
	AllowHTTP bool
	// AllowPorts lists ports that may be reached beside 443.
	AllowPorts []Ports
	// AllowPrivate lists networks that may be reached although they are private, loopback or otherwise special.
	AllowPrivate []netip.Prefix

	// Headers are sent with every request, by name: those that a receiver or its gateway asks for, Authorization too.
	// Values may be secrets: no error shows them. Names that the handler sets itself are faults.
	Headers map[string]string
	// ClientCertificate and ClientKey, both in PEM, show the receiver who calls (mutual TLS). The certificates of its
	// issuers may follow the first. Empty means none.
	ClientCertificate, ClientKey string
	// CA are the authorities that may vouch for the receiver, certificates in PEM, in place of RootCAs.
	CA string
	// ResponseSnippet is how many bytes of an answer's body are kept, as text in one line: with a success in the receipt,
	// with a failure in the reason. Receivers may echo what they got, so it is for those that are known not to. Zero
	// means none, and the most is [MaxResponseSnippet].
	ResponseSnippet int

	// MaxIdleConns is the number of idle connections kept for the next events, best at least the number of events
	// delivered at once. Zero means [outbox.DefaultConcurrency].
	MaxIdleConns int
	// UserAgent replaces [DefaultUserAgent].
	UserAgent string
	// RootCAs are the authorities that may vouch for the receiver; nil means the system's.
	RootCAs *x509.CertPool
	// Clock tells the time of an attempt, for its timestamp; nil means time.Now.
	Clock func() time.Time
}

// FieldError is one fault of a configuration.
type FieldError struct {
	// Field is the field in the words of a routes file: "url", "secrets[1]".
	Field string
	// Problem says what is wrong and what the field takes; it never shows the value of a URL or secret.
	Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Faults returns every fault of the configuration; none means that [NewHTTP] accepts it.
func (c HTTPConfig) Faults() []*FieldError {
	var faults []*FieldError
	report := func(field, format string, args ...any) {
		faults = append(faults, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if err := c.checkURL(); err != nil {
		report("url", "%v", err)
	}
	for i, text := range c.Secrets {
		if _, err := ParseSecret(text); err != nil {
			report(fmt.Sprintf("secrets[%d]", i), "%v", err)
		}
	}
	for i, ports := range c.AllowPorts {
		if !ports.valid() {
			report(fmt.Sprintf("allow_ports[%d]", i), "%v, takes ports from 1 to 65535, the lower first", ports)
		}
	}
	for i, prefix := range c.AllowPrivate {
		if err := CheckPrefix(prefix); err != nil {
			report(fmt.Sprintf("allow_private[%d]", i), "%v", err)
		}
	}
	faults = append(faults, c.Envelope.Faults()...)
	faults = append(append(faults, c.headerFaults()...), c.tlsFaults()...)
	if c.ResponseSnippet < 0 || c.ResponseSnippet > MaxResponseSnippet {
		report("response_snippet", "%d, takes 0 to %d", c.ResponseSnippet, MaxResponseSnippet)
	}
	if c.MaxIdleConns < 0 {
		report("max idle conns", "%d, takes a positive number or zero for the default", c.MaxIdleConns)
	}
	if c.UserAgent != "" && encodeHeader(c.UserAgent, " %") != c.UserAgent {
		report("user agent", "takes printable ASCII")
	}
	return faults
}

// CheckPrefix tells why a network cannot be listed in [HTTPConfig].AllowPrivate; nil means that it can.
func CheckPrefix(prefix netip.Prefix) error {
	switch {
	case !prefix.IsValid():
		return errors.New("not a network, takes one like 10.0.0.0/8 or fd00::/8")
	case prefix.Addr().Is4In6():
		return fmt.Errorf("%v, takes the network in its IPv4 form", prefix)
	case prefix != prefix.Masked():
		return fmt.Errorf("%v has bits set after its length, takes %v", prefix, prefix.Masked())
	}
	return nil
}

// joinInline joins faults in one line; nil when there are none.
func joinInline(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return errors.New(strings.ReplaceAll(errors.Join(faults...).Error(), "\n", "; "))
}

func (c HTTPConfig) withDefaults() HTTPConfig {
	if c.MaxIdleConns == 0 {
		c.MaxIdleConns = outbox.DefaultConcurrency
	}
	if c.UserAgent == "" {
		c.UserAgent = DefaultUserAgent
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return c
}
