package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// A worker delivers what is due, one pass at a time. In production the store is PostgreSQL's, from outbox/postgres.
func ExampleWorker_Run() {
	store := &outboxtest.Memory{}
	store.Insert(
		outboxtest.Row{Type: "order.placed", AggregateID: "order-1", Payload: json.RawMessage(`{"total": 12}`)},
		outboxtest.Row{Type: "order.paid", AggregateID: "order-1", Payload: json.RawMessage(`{"by": "card"}`)},
	)
	deliver := func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
		fmt.Printf("%s %s\n", event.Type, event.Payload)
		return outbox.Receipt{"status": 200}, nil
	}
	worker, err := outbox.NewWorker(outbox.Config{
		Store: store,
		Registry: outbox.Registry{
			"order.placed": {Handler: outbox.HandlerFunc(deliver)},
			"order.paid":   {Handler: outbox.HandlerFunc(deliver)},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := worker.Run(context.Background(), outbox.Pass{SoftBudget: time.Minute})
	fmt.Println(result.OK, result.Claimed, result.Processed, err)
	// Output:
	// order.placed {"total": 12}
	// order.paid {"by": "card"}
	// true 2 2 <nil>
}

// All faults of a configuration are reported together.
func ExampleNewWorker() {
	_, err := outbox.NewWorker(outbox.Config{BatchSize: -1, Registry: outbox.Registry{"order.placed": {}}})
	fmt.Println(err)
	// Output:
	// configure worker: registry: "order.placed" has no handler
	// store: nil, takes a Store
	// batch size: -1, takes a positive number or zero for the default
}

// A handler is anything that delivers one event. Its receipt is stored with the event, its error decides what comes
// next.
func ExampleHandler() {
	var handler outbox.Handler = outbox.HandlerFunc(func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
		var order struct{ Email string }
		if err := json.Unmarshal(event.Payload, &order); err != nil {
			return nil, outbox.Discard(errors.New("payload is no order")) // never deliverable: don't try again
		}
		if order.Email == "" {
			return nil, outbox.Benign(errors.New("nobody to tell")) // not worth an alarm
		}
		return outbox.Receipt{"messageId": "m-1"}, nil // event.ID is the key for the destination to deduplicate by
	})
	for _, payload := range []string{`{"email": "a@example.com"}`, `{}`, `[]`} {
		fmt.Println(handler.Handle(context.Background(), outbox.Event{Payload: json.RawMessage(payload)}))
	}
	// Output:
	// map[messageId:m-1] <nil>
	// map[] nobody to tell
	// map[] payload is no order
}

// Discard ends an event that can never be delivered; what waits behind it in its aggregate goes on.
func ExampleDiscard() {
	store := &outboxtest.Memory{}
	ids := store.Insert(
		outboxtest.Row{Type: "mail", AggregateID: "customer-1", Payload: json.RawMessage(`"nobody@invalid"`)},
		outboxtest.Row{Type: "mail", AggregateID: "customer-1", Payload: json.RawMessage(`"a@example.com"`)},
	)
	run(store, outbox.Registry{"mail": {Handler: outbox.HandlerFunc(
		func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
			if string(event.Payload) == `"nobody@invalid"` {
				return nil, outbox.Discard(errors.New("no such domain"))
			}
			return outbox.Receipt{"messageId": "m-1"}, nil
		})}})
	for _, id := range ids {
		fmt.Println(store.Row(id).Status, store.Row(id).Error)
	}
	// Output:
	// discarded no such domain
	// processed
}

// Snooze says that the destination is out: no attempt is spent, and its other events wait.
func ExampleSnooze() {
	store := &outboxtest.Memory{}
	ids := store.Insert(outboxtest.Row{Type: "crm.sync"}, outboxtest.Row{Type: "crm.sync"}, outboxtest.Row{Type: "mail"})
	down := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
		return nil, outbox.Snooze(errors.New("503 service unavailable"), 2*time.Minute)
	})
	result := run(store, outbox.Registry{
		"crm.sync": {Handler: down, Destination: "crm"},
		"mail":     {Handler: &outboxtest.Recorder{}, Destination: "mail"},
	})
	fmt.Println(result.Reason)
	for _, id := range ids {
		row := store.Row(id)
		fmt.Println(row.Type, row.Status, row.Attempts)
	}
	// Output:
	// provider_outage
	// crm.sync failed 0
	// crm.sync pending 0
	// mail processed 1
}

// A registry says who handles which type, how long that may take, and which destination an outage belongs to.
func ExampleRegistry() {
	crm := &outboxtest.Recorder{}
	registry := outbox.Registry{
		"customer.created": {Handler: crm, Timeout: 5 * time.Second, Destination: "crm"},
		"customer.merged":  {Handler: crm, Timeout: 20 * time.Second, Destination: "crm"}, // out whenever the other is
		"invoice.sent":     {Handler: &outboxtest.Recorder{}},                             // 10 s; a destination of its own
	}
	store := &outboxtest.Memory{}
	store.Insert(outboxtest.Row{Type: "customer.created"}, outboxtest.Row{Type: "customer.unheard_of"})
	result := run(store, registry) // what the registry lacks stays where it is
	fmt.Println(result.Claimed, len(crm.Events()))
	// Output: 1 1
}

// run runs one pass, with one handler at a time.
func run(store outbox.Store, registry outbox.Registry) outbox.Result {
	worker, err := outbox.NewWorker(outbox.Config{Store: store, Registry: registry, Concurrency: 1})
	if err != nil {
		panic(err)
	}
	result, err := worker.Run(context.Background(), outbox.Pass{SoftBudget: time.Minute})
	if err != nil {
		panic(err)
	}
	return result
}
