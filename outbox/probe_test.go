package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// openCircuit lets a pass find that a destination is out; only is what it may claim.
func openCircuit(t *testing.T, store *outboxtest.Memory, registry outbox.Registry, b *batcher, only string) {
	t.Helper()
	b.answer = func(context.Context, outbox.Event) error { return outbox.Snooze(errors.New("503"), 0) }
	worker, err := outbox.NewWorker(outbox.Config{Store: store, Circuits: store, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Run(t.Context(), outbox.Pass{EventTypes: []string{only}}); err != nil {
		t.Fatal(err)
	}
	b.answer = nil
}

// delivered runs a pass a minute and counts what they deliver.
func delivered(t *testing.T, store *outboxtest.Memory, registry outbox.Registry, minutes int) (processed int) {
	t.Helper()
	for range minutes {
		time.Sleep(time.Minute)
		processed += runOn(t, store, outbox.Config{Circuits: store, Registry: registry}).Processed
	}
	return processed
}

// TestALostRowProbesWhereThereIsNoOther lets a process die while it probes, with a row that all others wait for.
func TestALostRowProbesWhereThereIsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := &outboxtest.Memory{}, &batcher{}
		registry := outbox.Registry{"t": {Handler: b}, "other": {Handler: &batcher{}}}
		insertMany(store, "t", 3, 1)
		openCircuit(t, store, registry, b, "t")
		time.Sleep(10 * time.Minute)
		claim, err := store.Claim(t.Context(), outbox.ClaimRequest{EventTypes: []string{"t"}, BatchSize: 1})
		if err != nil || len(claim.Events) != 1 {
			t.Fatalf("the process that dies claimed %d events, error %v, want 1", len(claim.Events), err)
		}
		insertMany(store, "other", 5, 5)
		if got := delivered(t, store, registry, 20); got != 8 {
			t.Errorf("%d of 8 events delivered in 20 minutes, want all: the destination is back", got)
		}
	})
}

// TestADeadPartDoesNotKeepTheWholeOut has a part that is out for long, whose rows are the oldest.
func TestADeadPartDoesNotKeepTheWholeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, dead, single := &outboxtest.Memory{}, newCustomers(), &batcher{}
		dead.out["test"] = outbox.Snooze(errors.New("503"), time.Hour)
		many := dead.route()
		many.Gate = "many"
		registry := outbox.Registry{"many": many, "single": {Handler: single, Destination: many.Destination, Gate: "single"}}
		insertMany(store, "many", 20, 20)
		runOn(t, store, outbox.Config{Circuits: store, Registry: registry})
		dead.calls = nil
		insertMany(store, "many", 20, 20)
		insertMany(store, "single", 20, 20)
		openCircuit(t, store, registry, single, "single")
		if got := delivered(t, store, registry, 15); got != 20 {
			t.Errorf("%d of 20 events of the destination that is back delivered in a quarter of an hour, want all", got)
		}
		if tries := dead.tries("test"); tries > 0 {
			t.Errorf("%d requests to the part that asked to be left alone for an hour, want none", tries)
		}
	})
}
