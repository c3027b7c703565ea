package handlers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	dialTimeout   = 5 * time.Second
	keepAliveTime = 15 * time.Second
)

// errPartlyBlocked stands for a name some of whose addresses are blocked while the others failed: that may pass.
var errPartlyBlocked = errors.New("no allowed address answered")

// blockedError says that an address must not be reached.
type blockedError struct{ address netip.Addr }

func (e *blockedError) Error() string { return fmt.Sprintf("%v is not a public address", e.address) }

// errPortBlocked says that a port must not be reached.
var errPortBlocked = errors.New("the port is not allowed")

// guard dials, and refuses ports and addresses that are not public unless they are allowed. It looks at the address
// actually dialled, after the name was resolved, so a name that changes its answer gains nothing. One guard serves any
// number of URLs, and may be used concurrently.
type guard struct {
	ports    []Ports
	denied   []netip.Prefix
	allowed  []netip.Prefix
	resolver *net.Resolver // nil means the system's
}

func newGuard(config HTTPConfig) *guard {
	return &guard{ports: config.ports(), denied: specialNetworks(), allowed: slices.Clone(config.AllowPrivate)}
}

func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	// Addresses of one name may be dialled at the same time.
	var tried atomic.Bool
	dialer := net.Dialer{
		Timeout:   dialTimeout,
		KeepAlive: keepAliveTime,
		Resolver:  g.resolver,
		Control: func(_, resolved string, _ syscall.RawConn) error {
			err := g.check(resolved)
			if err == nil {
				tried.Store(true)
			}
			return err
		},
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, dialFault(err, tried.Load())
	}
	return conn, nil
}

// dialFault keeps a blocked address from deciding when an allowed one of the same name was tried: the dialer
// reports only the first failure.
func dialFault(err error, tried bool) error {
	if tried && isType[*blockedError](err) {
		return errPartlyBlocked
	}
	return err
}

// check takes an address and a port as the dialer hands them over.
func (g *guard) check(resolved string) error {
	endpoint, err := netip.ParseAddrPort(resolved)
	if err != nil {
		return fmt.Errorf("parse the dialled address: %w", err)
	}
	if !containsPort(g.ports, endpoint.Port()) {
		return errPortBlocked
	}
	if g.blocks(endpoint.Addr()) {
		return &blockedError{address: endpoint.Addr()}
	}
	return nil
}

// blocks tells whether an address must not be reached.
func (g *guard) blocks(address netip.Addr) bool {
	// A prefix never contains an address that has a zone.
	address = address.Unmap().WithZone("")
	return contains(g.denied, address) && !contains(g.allowed, address)
}

func contains(prefixes []netip.Prefix, address netip.Addr) bool {
	for _, prefix := range prefixes {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// specialNetworks lists what is not the public Internet. Methods such as IsPrivate are not enough: 0.1.2.3,
// ::127.0.0.1, NAT64 and 6to4 forms of private addresses pass them all.
func specialNetworks() []netip.Prefix {
	texts := []string{
		"0.0.0.0/8", // this network; a dial to 0.0.0.0 reaches loopback
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
		"100.64.0.0/10",  // carrier-grade NAT
		"127.0.0.0/8",    // loopback
		"169.254.0.0/16", // link-local: instance, task and Lambda metadata
		"192.0.0.0/24", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",
		"192.88.99.0/24", // 6to4 relays
		"198.18.0.0/15",  // benchmarks
		"224.0.0.0/4", "240.0.0.0/4",

		"::/3",          // all before 2000::/3: loopback, mapped, NAT64 (64:ff9b::/96, 64:ff9b:1::/48), 100::/64
		"2001::/32",     // Teredo
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4
		"3fff::/20",     // documentation
		"4000::/2",      // all after 2000::/3: 5f00::/16 ...
		"8000::/1",      // ... fc00::/7 unique local, fe80::/10, fec0::/10, ff00::/8
	}
	prefixes := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		prefixes[i] = netip.MustParsePrefix(text)
	}
	return prefixes
}
