package handlers

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	portHTTPS = 443
	portHTTP  = 80
)

// Ports is a range of ports, both ends included; those of a single port are equal.
type Ports struct{ First, Last uint16 }

// String is the form in which a routes file takes the range: "8443" or "8000-8999".
func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

func (p Ports) valid() bool { return p.First > 0 && p.First <= p.Last }

// ports are those that may be dialled.
func (c HTTPConfig) ports() []Ports {
	ports := append([]Ports{{portHTTPS, portHTTPS}}, c.AllowPorts...)
	if c.AllowHTTP {
		ports = append(ports, Ports{portHTTP, portHTTP})
	}
	return ports
}

func containsPort(ports []Ports, port uint16) bool {
	return slices.ContainsFunc(ports, func(p Ports) bool { return p.First <= port && port <= p.Last })
}

// checkURL never repeats the URL, not even in part: it may hold a token, or be one that was put in the wrong place.
func (c HTTPConfig) checkURL() error {
	parsed, err := url.Parse(c.URL)
	var faults []error
	switch {
	case c.URL == "":
		return errors.New("missing, takes an https URL")
	case err != nil:
		return errors.New("cannot be parsed, takes an https URL")
	case parsed.Scheme == "http" && !c.AllowHTTP:
		faults = append(faults, errors.New("has scheme http, takes https (allow_http lifts this)"))
	case parsed.Scheme != "https" && parsed.Scheme != "http":
		faults = append(faults, errors.New("has another scheme or none, takes https"))
	}
	if parsed.Hostname() == "" {
		faults = append(faults, errors.New("has no host"))
	}
	if port := parsed.Port(); port != "" {
		faults = append(faults, c.checkPort(port)...)
	}
	if parsed.User != nil {
		faults = append(faults, errors.New("has user information, takes none"))
	}
	if parsed.Fragment != "" {
		faults = append(faults, errors.New("has a fragment, takes none"))
	}
	return joinInline(faults)
}

// checkPort looks at a port that the URL names.
func (c HTTPConfig) checkPort(text string) []error {
	port, err := strconv.ParseUint(text, 10, 16)
	switch {
	case err != nil || port == 0:
		return []error{errors.New("has a port out of range, takes 1 to 65535")}
	case containsPort(c.ports(), uint16(port)):
		return nil
	case c.AllowHTTP:
		return []error{errors.New("has a port that is not allowed, takes 443 and 80 (allow_ports lifts this)")}
	}
	return []error{errors.New("has a port that is not allowed, takes 443 (allow_ports lifts this)")}
}

// BlockedHost returns the fault of a URL whose host is an address, or localhost or a name under it, that the handler
// would refuse to dial: every event would be discarded as address_blocked. Nil means that the host is reachable as far
// as can be told without a name lookup. [NewHTTP] accepts such a URL nevertheless.
func (c HTTPConfig) BlockedHost() *FieldError {
	var addresses []netip.Addr
	if parsed, err := url.Parse(c.URL); err == nil { // else it is one of Faults
		addresses = literalAddresses(parsed.Hostname())
	}
	guard := newGuard(c)
	if len(addresses) == 0 || slices.ContainsFunc(addresses, func(a netip.Addr) bool { return !guard.blocks(a) }) {
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
