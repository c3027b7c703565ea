package outboxtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// A handler is tested with rows in a [outboxtest.Memory] and a worker, as it will run.
func Example() {
	mail := outbox.HandlerFunc(func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
		var order struct{ Email string }
		if err := json.Unmarshal(event.Payload, &order); err != nil || order.Email == "" {
			return nil, outbox.Discard(errors.New("no address"))
		}
		return outbox.Receipt{"messageId": "m-1"}, nil
	})

	store := &outboxtest.Memory{}
	ids := store.Insert(
		outboxtest.Row{Type: "order.placed", Payload: json.RawMessage(`{"email": "ada@example.org"}`)},
		outboxtest.Row{Type: "order.placed"},
	)
	worker, err := outbox.NewWorker(outbox.Config{
		Store:    store,
		Registry: outbox.Registry{"order.placed": {Handler: mail}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := worker.Run(context.Background(), outbox.Pass{})
	fmt.Println(result.Processed, "processed,", result.Discarded, "discarded, error", err)
	for _, id := range ids {
		row := store.Row(id)
		fmt.Printf("%s %q\n", row.Status, row.Error)
	}
	// Output:
	// 1 processed, 1 discarded, error <nil>
	// processed ""
	// discarded "no address"
}

// Advance lets back-offs end; Recorder shows each delivery.
func ExampleRecorder() {
	flaky := &outboxtest.Recorder{Reply: func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
		if event.Attempts < 3 {
			return nil, errors.New("connection refused")
		}
		return outbox.Receipt{"accepted": true}, nil
	}}
	store := &outboxtest.Memory{}
	store.Insert(outboxtest.Row{Type: "order.placed", IdempotencyKey: "order-7"})
	worker, err := outbox.NewWorker(outbox.Config{
		Store:    store,
		Registry: outbox.Registry{"order.placed": {Handler: flaky}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		if _, err := worker.Run(context.Background(), outbox.Pass{}); err != nil {
			fmt.Println(err)
		}
		store.Advance(time.Hour)
	}
	for _, event := range flaky.Events() {
		fmt.Println(event.IdempotencyKey, "attempt", event.Attempts)
	}
	fmt.Println(store.Rows()[0].Status)
	// Output:
	// order-7 attempt 1
	// order-7 attempt 2
	// order-7 attempt 3
	// processed
}

// A store's own test is one call and the hands on its data.
func ExampleTestStore() {
	_ = func(t *testing.T) { // func TestStore(t *testing.T)
		outboxtest.TestStore(t, func(t *testing.T) outboxtest.Harness {
			t.Parallel()
			store := &outboxtest.Memory{} // yours: on an empty database of its own
			return outboxtest.Harness{
				Store:  store,
				Insert: func(row outboxtest.Row) string { return store.Insert(row)[0] },
				Row:    store.Row,
				Update: func(row outboxtest.Row) {
					store.Update(row.ID, func(r *outboxtest.Row) { *r = row })
				},
				DeclareDormant: func(eventType string) { store.DeclareDormant(eventType) },
				AgeCircuits:    store.Advance,
				Exists:         store.Exists,
				Now:            time.Now, // yours: the database's
			}
		})
	}
	fmt.Println("run it by go test")
	// Output: run it by go test
}

// Claims and settles can be played by hand, to see what a store makes of them.
func ExampleMemory() {
	store := &outboxtest.Memory{}
	order := "7b1f6a0e-3c1b-4c53-9a0e-2f4d1c9b8a77"
	store.Insert(
		outboxtest.Row{Type: "order.placed", AggregateID: order, IdempotencyKey: "placed"},
		outboxtest.Row{Type: "order.paid", AggregateID: order, IdempotencyKey: "paid"},
	)
	ctx := context.Background()
	for range 2 {
		claim, err := store.Claim(ctx, outbox.ClaimRequest{
			EventTypes: []string{"order.placed", "order.paid"}, LaneDepth: 1,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, event := range claim.Events {
			answers, err := store.Settle(ctx, []outbox.Settlement{
				{EventID: event.ID, ClaimToken: event.ClaimToken(), Outcome: outbox.Processed},
			}, outbox.Backoff{})
			fmt.Println(event.IdempotencyKey, answers, err)
		}
	}
	// Output:
	// placed [processed] <nil>
	// paid [processed] <nil>
}
