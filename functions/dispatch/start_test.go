package main

import (
	"net"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

func TestProcessConnectsWhileItStarts(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	start(t, &logs{}, map[string]string{"DATABASE_URL": "postgres://app:hunter2@" + listener.Addr().String() + "/shop"})
	if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatalf("no connection before the first invocation: %v", err)
	}
	_ = conn.Close()
}

func TestStartEndsWithTheFirstBatchOrPass(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		events    string
		delivered int
	}{"no event": {"", 0}, "events": {insert, 6}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := postgrestest.URL(t)
			execute(t, db, test.events)
			hook, bodies := receiver(t)
			a := start(t, &logs{}, map[string]string{"DATABASE_URL": db, "HOOK_URL": hook})
			before := -1 // deliveries
			a.started = func() {
				if before < 0 {
					before = len(bodies())
				}
			}
			got, err := invoke(t, a, `{}`)
			if err != nil || got.Processed != test.delivered {
				t.Fatalf("got %+v, %v; want %d delivered", got, err, test.delivered)
			}
			if before != 0 {
				t.Errorf("the start ended after %d deliveries, want none (-1: it never ended)", before)
			}
		})
	}
}
