package handlers

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
)

// nameServer answers every question for IPv4 addresses with what its answer says at that moment, whatever the name, for
// no longer than that moment (a TTL of 0); it has none for IPv6.
type nameServer struct {
	answer    atomic.Pointer[[]netip.Addr]
	questions atomic.Int64
	address   string
}

func newNameServer(t *testing.T, answer ...netip.Addr) *nameServer {
	t.Helper()
	socket, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	server := &nameServer{address: socket.LocalAddr().String()}
	server.says(answer...)
	go func() {
		packet := make([]byte, 1500)
		for {
			n, from, err := socket.ReadFrom(packet)
			if err != nil {
				return
			}
			if reply := server.reply(packet[:n]); reply != nil {
				socket.WriteTo(reply, from)
			}
		}
	}()
	return server
}

func (s *nameServer) says(answer ...netip.Addr) { s.answer.Store(&answer) }

// reply is as RFC 1035 lays it out, section 4.
func (s *nameServer) reply(query []byte) []byte {
	const header, typeA = 12, 1
	end := header
	for end < len(query) && query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5 // the root's length, type and class
	if end > len(query) {
		return nil
	}
	reply := append([]byte{}, query[:end]...)
	binary.BigEndian.PutUint16(reply[2:], 0x8180) // an answer, without error
	binary.BigEndian.PutUint16(reply[4:], 1)
	binary.BigEndian.PutUint64(reply[6:], 0)
	copy(reply[12:], query[header:end])
	if binary.BigEndian.Uint16(query[end-4:]) != typeA {
		return reply
	}
	s.questions.Add(1)
	answer := *s.answer.Load()
	binary.BigEndian.PutUint16(reply[6:], uint16(len(answer)))
	for _, address := range answer {
		reply = append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // the question's name, class IN, TTL 0
		reply = append(reply, address.AsSlice()...)
	}
	return reply
}

// resolver asks this server only.
func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", s.address)
	}}
}
