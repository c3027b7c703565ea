package outbox_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// overtaken is a store in which a destination answers its probe while a claim of the others is under way.
type overtaken struct {
	*outboxtest.Memory
	closed chan struct{} // when the circuit is

	mu     sync.Mutex
	probed bool
	after  []outbox.ClaimRequest // those sent since
}

func (o *overtaken) Load(context.Context, []string, time.Duration) ([]outbox.Circuit, error) {
	return []outbox.Circuit{{Destination: "crm", Probe: true}}, nil
}

func (o *overtaken) Report(_ context.Context, report outbox.CircuitReport) (outbox.Circuit, error) {
	close(o.closed)
	return outbox.Circuit{Destination: report.Destination}, nil
}

func (o *overtaken) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	switch {
	case len(req.EventTypes) == 1 && req.EventTypes[0] == "crm":
		o.probed = true
		return o.Memory.Claim(ctx, req)
	case o.probed && len(req.HeldTypes) == 1:
		<-o.closed
		return outbox.Claim{Cursor: "of the others", End: true}, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.after = append(o.after, req)
	return o.Memory.Claim(ctx, req)
}

// A cursor tells of the types that its claim was for. That of a claim which the end of an outage has overtaken is of no use.
func TestQueueIsReadFromItsStartAfterAnOutage(t *testing.T) {
	t.Parallel()
	inBubble(t, "overtaken", func(t *testing.T) {
		store := &overtaken{Memory: &outboxtest.Memory{}, closed: make(chan struct{})}
		store.Insert(outboxtest.Row{Type: "crm", AggregateID: "1"})
		store.Insert(outboxtest.Row{Type: "crm", AggregateID: "2"})
		taking := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
			time.Sleep(time.Second) // meanwhile the others are claimed
			return outbox.Receipt{}, nil
		})
		worker, err := outbox.NewWorker(outbox.Config{Store: store, Circuits: store, Registry: outbox.Registry{
			"crm": {Handler: taking, Timeout: 5 * time.Second, Destination: "crm"},
			"erp": {Handler: taking, Timeout: 5 * time.Second, Destination: "erp"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: time.Minute})
		if err != nil || got.Processed != 2 {
			t.Errorf("got %+v, %v; want both events delivered", got, err)
		}
		for _, req := range store.after {
			if req.Cursor == "of the others" {
				t.Errorf("a claim of %v goes on where one of fewer types came to", req.EventTypes)
			}
		}
		if len(store.after) == 0 {
			t.Error("no claim came after the outage, and so the test proves nothing")
		}
	})
}
