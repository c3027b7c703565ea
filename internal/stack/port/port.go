// Package port finds free ports for programs that take one as an argument.
package port

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports below the range that systems give to outgoing connections: one that is free now is not taken a moment later
// by somebody's request, as happens to ports that the system chose.
const (
	first    = 15_000
	last     = 31_999
	attempts = 1000
)

// Free returns a loopback port that nobody listened on a moment ago. Another program may take it first, which is
// rare.
func Free(ctx context.Context) (int, error) {
	var config net.ListenConfig
	var fault error
	for range attempts {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		port := first + rand.IntN(last-first+1) //nolint:gosec // nothing to guess
		listener, err := config.Listen(ctx, "tcp", Address(port))
		if err == nil {
			return port, listener.Close()
		}
		fault = err
	}
	return 0, fmt.Errorf("find a free port: %w", fault)
}

// FreeAddresses returns two different addresses of free ports.
func FreeAddresses(ctx context.Context) (one, other string, err error) {
	for range attempts {
		a, err1 := Free(ctx)
		b, err2 := Free(ctx)
		if err := errors.Join(err1, err2); err != nil || a != b {
			return Address(a), Address(b), err
		}
	}
	return "", "", errors.New("find two free ports: there is only one")
}

// Address is the port on the loopback.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
