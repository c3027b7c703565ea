package handlers

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestGuardRefusesSpecialAddresses(t *testing.T) {
	t.Parallel()
	guard := newGuard(nil)
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
		var blocked *blockedError
		if !errors.As(err, &blocked) {
			t.Errorf("%s: got %v, want it blocked", address, err)
		}
	}
}

func TestGuardLetsPublicAddressesPass(t *testing.T) {
	t.Parallel()
	guard := newGuard(nil)
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
	guard := newGuard([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fe80::/10")})
	for address, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "fe80::1%eth0": true, "10.2.0.1": false, "127.0.0.1": false, "fd00::1": false,
	} {
		if err := guard.check(net.JoinHostPort(address, "80")); (err == nil) != want {
			t.Errorf("%s: got %v, want allowed %t", address, err, want)
		}
	}
}

func TestGuardRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	if newGuard(nil).check("/run/socket") == nil {
		t.Error("a path passed as an address")
	}
}

// A name with one allowed address that fails and one that is blocked is an outage, not a blocked destination.
// localhost stands for it where it resolves to both families.
func TestGuardCallsAPartlyBlockedNameAnOutage(t *testing.T) {
	t.Parallel()
	addresses, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", "localhost")
	if err != nil || len(addresses) == 0 {
		t.Fatalf("look up localhost: %v, %v", addresses, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close() // so that connections to its port are refused

	_, err = newGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}).dial(context.Background(), "tcp",
		net.JoinHostPort("localhost", port))
	var blocked *blockedError
	if err == nil || errors.As(err, &blocked) {
		t.Errorf("error %v, want one that may pass", err)
	}
}
