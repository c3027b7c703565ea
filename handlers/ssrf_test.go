package handlers

import (
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox"
)

// victim listens on all of this machine, and counts who came.
type victim struct {
	port     string
	accepted atomic.Int64
}

func newVictim(t *testing.T, address string) *victim {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	v := &victim{}
	_, v.port, _ = net.SplitHostPort(listener.Addr().String())
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			v.accepted.Add(1)
			// Answered, so that a request that came through would be told as such.
			go func() {
				defer conn.Close()
				conn.Read(make([]byte, 4096))
				conn.Write([]byte("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"))
			}()
		}
	}()
	return v
}

// guarded is a handler that asks the given name server.
func guarded(t *testing.T, config HTTPConfig, names *nameServer) *HTTP {
	t.Helper()
	handler, err := NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	guard := newGuard(config)
	guard.resolver = names.resolver()
	handler.transport.DialContext = guard.dial
	return handler
}

// forbiddenHosts are addresses, and ways of writing them, that must not be reached, with how they are refused: the start of
// the reason, or "fault" for a URL that the configuration refuses. What "name" says is looked up, and everything
// looked up is 127.0.0.1 here, as a name server of an attacker would have it.
func forbiddenHosts() map[string]string {
	const blocked, fault, name = "address_blocked", "fault", "name"
	return map[string]string{
		// Loopback, in every form.
		"127.0.0.1": blocked, "127.0.0.53": blocked, "127.1.2.3": blocked, "127.255.255.254": blocked,
		"0.0.0.0": blocked, "0.0.0.1": blocked, "0.1.2.3": blocked,
		"localhost": blocked, "LOCALHOST": blocked, "LocalHost": blocked, "localhost.": blocked, "api.localhost": name,
		"localhost.localdomain": name, "ip6-localhost": name, "127.0.0.1.": name, "127.0.0.1.nip.io": name, "localtest.me": name,
		"[::1]": blocked, "[::]": blocked, "[0:0:0:0:0:0:0:1]": blocked, "[0000:0000:0000:0000:0000:0000:0000:0001]": blocked,
		"[::1%25lo]": blocked, "[::127.0.0.1]": blocked, "[::ffff:127.0.0.1]": blocked, "[::FFFF:127.0.0.1]": blocked,
		"[::ffff:7f00:1]": blocked, "[0:0:0:0:0:ffff:7f00:0001]": blocked, "[::ffff:0:127.0.0.1]": blocked,
		"[::ffff:0.0.0.0]": blocked,
		// Decimal, octal, hexadecimal and short forms: no addresses to Go, so at most names.
		"2130706433": name, "017700000001": name, "0x7f000001": name, "0X7F000001": name, "127.1": name, "127.0.1": name,
		"0177.0.0.1": name, "0x7f.0.0.1": name, "0x7f.1": name, "00127.0.0.1": name, "127.000.000.001": name, "0": name,
		"127.0.0.1.1": name, "256.0.0.1": name, "2852039166": name, "0xa9fea9fe": name, "169.16689662": name, "4294967295": name,
		// Metadata of instances, tasks, functions; other clouds'.
		"169.254.169.254": blocked, "169.254.170.2": blocked, "169.254.170.23": blocked, "169.254.100.1": blocked,
		"169.254.169.123": blocked, "169.254.169.253": blocked, "100.100.100.200": blocked, "192.0.0.192": blocked, "168.63.129.16.": name,
		"[fd00:ec2::254]": blocked, "[fd00:ec2::23]": blocked, "[fd00:ec2::253]": blocked, "[FD00:EC2::254]": blocked,
		"[::ffff:169.254.169.254]": blocked, "[::ffff:a9fe:a9fe]": blocked, "[::169.254.169.254]": blocked,
		"metadata.google.internal": name, "instance-data": name, "169.254.169.254.": name, "169.254.169.254.xip.io": name,
		// Private, shared and special networks, from edge to edge.
		"10.0.0.0": blocked, "10.255.255.255": blocked, "172.16.0.1": blocked, "172.31.255.255": blocked, "192.168.0.1": blocked,
		"192.168.255.255": blocked, "100.64.0.1": blocked, "100.127.255.255": blocked, "192.0.0.1": blocked, "192.0.2.1": blocked,
		"192.88.99.1": blocked, "198.18.0.1": blocked, "198.19.255.255": blocked, "198.51.100.1": blocked, "203.0.113.1": blocked,
		"224.0.0.1": blocked, "239.255.255.250": blocked, "240.0.0.1": blocked, "255.255.255.255": blocked,
		"[fc00::1]": blocked, "[fdff::1]": blocked, "[fe80::1]": blocked, "[fe80::1%25eth0]": blocked, "[febf::1]": blocked,
		"[fec0::1]": blocked, "[ff02::1]": blocked, "[ff05::2]": blocked, "[100::1]": blocked, "[2001:db8::1]": blocked,
		"[3fff::1]": blocked, "[5f00::1]": blocked,
		// IPv4 inside IPv6: NAT64, 6to4, Teredo, translated.
		"[64:ff9b::127.0.0.1]": blocked, "[64:ff9b::7f00:1]": blocked, "[64:ff9b::a9fe:a9fe]": blocked, "[64:ff9b:1::7f00:1]": blocked,
		"[64:ff9b::8.8.8.8]": blocked, "[2002:7f00:1::]": blocked, "[2002:a9fe:a9fe::]": blocked, "[2002:a00:1::1]": blocked,
		"[2001::7f00:1]": blocked, "[2001:0:4136:e378:8000:63bf:3fff:fdd2]": blocked, "[2001::1]": blocked,
		// Digits that are none in ASCII, and dots that are none: a lookup turns them into ASCII, the way browsers do.
		"１２７.０.０.１": blocked, "①②⑦.⓪.⓪.①": blocked, "127。0。0。1": blocked, "127．0．0．1": blocked, "127｡0｡0｡1": blocked,
		"ⓛocalhost": blocked, "ｌｏｃａｌｈｏｓｔ": blocked, "loc\u00adalhost": blocked, "𝟏𝟐𝟕.𝟎.𝟎.𝟏": blocked, "１６９.２５４.１６９.２５４": blocked,
		// Percent-encoding, user information, fragments, backslashes: two readers of one URL see two hosts.
		"%31%32%37.0.0.1": fault, "127%2e0%2e0%2e1": fault, "%6c%6fcalhost": fault, "example.com@127.0.0.1": fault,
		"127.0.0.1@example.com": fault, "example.com:443@127.0.0.1": fault, "example.com%40127.0.0.1": fault,
		"example.com#@127.0.0.1": fault, "127.0.0.1#.example.com": fault, `example.com\@127.0.0.1`: fault, `127.0.0.1\.example.com`: fault,
		"127.0.0.1 .example.com": fault, "127.0.0.1%00.example.com": fault, "127.0.0.1\t": fault, "127.0.0.1\n": fault,
		"[::1": fault, "::1": fault, "[127.0.0.1]": fault, "[::1%25]": fault, "": fault,
	}
}

func TestNoFormOfAForbiddenHostIsReached(t *testing.T) {
	t.Parallel()
	victim := newVictim(t, ":0")
	names := newNameServer(t, netip.MustParseAddr("127.0.0.1"))
	hosts := forbiddenHosts()
	if len(hosts) < 80 {
		t.Errorf("%d hosts, want at least 80", len(hosts))
	}
	t.Run("hosts", func(t *testing.T) {
		for host, want := range hosts {
			t.Run(host, func(t *testing.T) {
				t.Parallel()
				got := refusal(t, "http://"+host+":"+victim.port+"/hook", names)
				switch {
				case want == "name" && (strings.HasPrefix(got, "address_blocked") || strings.HasPrefix(got, "dns_")):
				case !strings.HasPrefix(got, want):
					t.Errorf("%q: %s, want %s", host, got, want)
				}
			})
		}
	})
	if n := victim.accepted.Load(); n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
	if names.questions.Load() == 0 {
		t.Error("no name was looked up, so the name server proves nothing")
	}
}

// refusal posts to a URL and returns what came of it: "fault" when no handler was made, else the reason of the discard.
func refusal(t *testing.T, url string, names *nameServer) string {
	t.Helper()
	config := HTTPConfig{URL: url, AllowHTTP: true, AllowPorts: []Ports{{1, 65535}}}
	if len(config.Faults()) > 0 {
		return "fault: " + config.Faults()[0].Problem
	}
	receipt, err := guarded(t, config, names).Handle(t.Context(), outbox.Event{ID: "1", Payload: []byte(`{}`)})
	if err == nil {
		return "delivered"
	}
	if receipt != nil {
		t.Errorf("a receipt %v with an error", receipt)
	}
	return err.Error()
}
