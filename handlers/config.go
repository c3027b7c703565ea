package handlers

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
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
	// AllowHTTP lets URL be plain http.
	AllowHTTP bool
	// AllowPrivate lists networks that may be reached although they are private, loopback or otherwise special.
	AllowPrivate []netip.Prefix

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
	if err := checkURL(c.URL, c.AllowHTTP); err != nil {
		report("url", "%v", err)
	}
	for i, text := range c.Secrets {
		if _, err := ParseSecret(text); err != nil {
			report(fmt.Sprintf("secrets[%d]", i), "%v", err)
		}
	}
	for i, prefix := range c.AllowPrivate {
		if err := CheckPrefix(prefix); err != nil {
			report(fmt.Sprintf("allow_private[%d]", i), "%v", err)
		}
	}
	if c.MaxIdleConns < 0 {
		report("max idle conns", "%d, takes a positive number or zero for the default", c.MaxIdleConns)
	}
	if c.UserAgent != "" && encodeHeader(c.UserAgent, " %") != c.UserAgent {
		report("user agent", "takes printable ASCII")
	}
	return faults
}

// BlockedHost returns the fault of a URL whose host is an address, or localhost or a name under it, that the handler
// would refuse to dial: every event would be discarded as address_blocked. Nil means that the host is reachable as far
// as can be told without a name lookup. [NewHTTP] accepts such a URL nevertheless.
func (c HTTPConfig) BlockedHost() *FieldError {
	var addresses []netip.Addr
	if parsed, err := url.Parse(c.URL); err == nil { // else it is one of Faults
		addresses = literalAddresses(parsed.Hostname())
	}
	allowed := func(address netip.Addr) bool { return !newGuard(c.AllowPrivate).blocks(address) }
	if len(addresses) == 0 || slices.ContainsFunc(addresses, allowed) {
		return nil
	}
	return &FieldError{Field: "url", Problem: "the address is private or special, and would be refused; " +
		"add its network to allow_private, like 127.0.0.0/8"}
}

// literalAddresses returns the addresses of a host that needs no name server; none for every other.
func literalAddresses(host string) []netip.Addr {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	return nil
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

// checkURL never repeats the URL, not even in part: it may hold a token, or be one that was put in the wrong place.
func checkURL(text string, allowHTTP bool) error {
	parsed, err := url.Parse(text)
	var faults []error
	switch {
	case text == "":
		return errors.New("missing, takes an https URL")
	case err != nil:
		return errors.New("cannot be parsed, takes an https URL")
	case parsed.Scheme == "http" && !allowHTTP:
		faults = append(faults, errors.New("has scheme http, takes https (allow_http lifts this)"))
	case parsed.Scheme != "https" && parsed.Scheme != "http":
		faults = append(faults, errors.New("has another scheme or none, takes https"))
	}
	if parsed.Hostname() == "" {
		faults = append(faults, errors.New("has no host"))
	}
	if port := parsed.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			faults = append(faults, errors.New("has a port out of range, takes 1 to 65535"))
		}
	}
	if parsed.User != nil {
		faults = append(faults, errors.New("has user information, takes none"))
	}
	if parsed.Fragment != "" {
		faults = append(faults, errors.New("has a fragment, takes none"))
	}
	return joinInline(faults)
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
