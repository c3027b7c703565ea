package port_test

import (
	"context"
	"net"
	"testing"

	"github.com/openlup/outbox-dispatch/internal/stack/port"
)

func TestAFreePortCanBeListenedOn(t *testing.T) {
	t.Parallel()
	one, other, err := port.FreeAddresses(t.Context())
	if err != nil || one == other {
		t.Fatalf("FreeAddresses = %s, %s, %v, want two and no error", one, other, err)
	}
	var config net.ListenConfig
	for _, address := range []string{one, other} {
		listener, err := config.Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
	}
}

func TestNoPortIsSoughtForACallerThatGaveUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := port.Free(ctx); err == nil {
		t.Errorf("Free = %d, want an error", got)
	}
}
