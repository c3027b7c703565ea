package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// outage runs a pass a minute at the defaults against a destination that fails every event with err, until an event is
// discarded, and returns after how many minutes that was. It gives up after a day.
func outage(t *testing.T, err error) int {
	t.Helper()
	var store outboxtest.Memory
	for range 40 {
		store.Insert(outboxtest.Row{Type: "order.placed"})
	}
	worker, faults := outbox.NewWorker(outbox.Config{Store: &store, Registry: outbox.Registry{
		"order.placed": {Handler: outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) { return nil, err })},
	}})
	if faults != nil {
		t.Fatal(faults)
	}
	const day = 24 * 60
	for minute := range day {
		result, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if result.Discarded > 0 {
			return minute
		}
		store.Advance(time.Minute)
	}
	return day
}

// What docs/guarantees.md says of long outages while circuits live for one pass.
func TestHowLongAnOutageMayLast(t *testing.T) {
	t.Parallel()
	if got := outage(t, outbox.Snooze(errors.New("http_503"), 0)); got < 150 {
		t.Errorf("a destination that says it is out loses an event after %d minutes, want 150 at least", got)
	}
	if got := outage(t, errors.New("connection_refused")); got < 60 {
		t.Errorf("a destination that refuses connections loses an event after %d minutes, want 60 at least", got)
	}
}
