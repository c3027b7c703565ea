package handlers

import (
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

func TestGuardRefusesSpecialAddresses(t *testing.T) {
	t.Parallel()
	guard := newGuard(HTTPConfig{})
	for _, address := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1",
		"169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1",
		"192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.255.255.255",
		"240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
		"64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:4136:e378::1", "2001:db8::1", "2002:7f00:1::",
		"3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "::1%lo", "fec0::1", "ff02::1",
	} {
		err := guard.check(net.JoinHostPort(address, "443"))
		if !isType[*blockedError](err) {
			t.Errorf("%s: got %v, want it blocked", address, err)
		}
	}
}

func TestGuardLetsPublicAddressesPass(t *testing.T) {
	t.Parallel()
	guard := newGuard(HTTPConfig{})
	for _, address := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "128.0.0.1", "172.15.255.255", "172.32.0.1",
		"192.0.1.1", "192.167.255.255", "198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8",
		"2000::1", "2001:1::1", "2001:4860:4860::8888", "2606:4700::1111", "2a00::1", "3ffe::1",
	} {
		if err := guard.check(net.JoinHostPort(address, "443")); err != nil {
			t.Errorf("%s: got %v, want it to pass", address, err)
		}
	}
}

func TestGuardAllowsListedNetworksOnly(t *testing.T) {
	t.Parallel()
	guard := newGuard(HTTPConfig{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fe80::/10")}})
	for address, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "fe80::1%eth0": true, "10.2.0.1": false, "127.0.0.1": false, "fd00::1": false,
	} {
		if err := guard.check(net.JoinHostPort(address, "443")); (err == nil) != want {
			t.Errorf("%s: got %v, want allowed %t", address, err, want)
		}
	}
}

func TestGuardAllowsItsPortsOnly(t *testing.T) {
	t.Parallel()
	guards := map[string]*guard{
		"default": newGuard(HTTPConfig{}), "http": newGuard(HTTPConfig{AllowHTTP: true}),
		"ports": newGuard(HTTPConfig{AllowPorts: []Ports{{8443, 8443}, {9000, 9010}}}),
	}
	for port, allowed := range map[string]string{
		"443": "default http ports", "80": "http", "8443": "ports", "9000": "ports", "9010": "ports",
		"1": "", "22": "", "25": "", "444": "", "5432": "", "8080": "", "8999": "", "9011": "", "65535": "", "0": "",
	} {
		for name, guard := range guards {
			err := guard.check(net.JoinHostPort("8.8.8.8", port))
			if want := strings.Contains(allowed, name); (err == nil) != want {
				t.Errorf("%s, port %s: got %v, want allowed %t", name, port, err, want)
			}
			if err != nil && transportFault(err).Error() != "port_blocked: the port is not allowed" {
				t.Errorf("%s, port %s: %v, want port_blocked", name, port, transportFault(err))
			}
		}
	}
}

func TestGuardRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	if newGuard(HTTPConfig{}).check("/run/socket") == nil {
		t.Error("a path passed as an address")
	}
}

// A name with one allowed address that failed and one that is blocked is an outage, not a blocked destination.
func TestGuardCallsAPartlyBlockedNameAnOutage(t *testing.T) {
	t.Parallel()
	blocked := &net.OpError{Op: "dial", Err: &blockedError{address: netip.MustParseAddr("::1")}}
	for _, test := range []struct {
		err   error
		tried bool
		want  string
	}{
		{blocked, false, "address_blocked"},
		{blocked, true, "address_partly_blocked"},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true, "connection_refused"},
	} {
		err := transportFault(dialFault(test.err, test.tried))
		if got, _, _ := strings.Cut(err.Error(), ":"); got != test.want {
			t.Errorf("%v, tried %t: %s, want %s", test.err, test.tried, got, test.want)
		}
	}
}

func TestGuardTellsThatAnAllowedAddressWasTried(t *testing.T) {
	t.Parallel()
	for allowed, want := range map[string]string{"127.0.0.0/8": "connection_refused", "10.0.0.0/8": "address_blocked"} {
		guard := newGuard(HTTPConfig{AllowPrivate: []netip.Prefix{netip.MustParsePrefix(allowed)}, AllowPorts: []Ports{{1, 1}}})
		_, err := guard.dial(t.Context(), "tcp", "127.0.0.1:1")
		if err == nil {
			t.Fatal("something listens on port 1")
		}
		if got, _, _ := strings.Cut(transportFault(err).Error(), ":"); got != want {
			t.Errorf("%s allowed: %v, want %s", allowed, err, want)
		}
	}
}
