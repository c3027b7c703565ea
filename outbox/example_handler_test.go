package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// Ledger is a handler of one's own: it books entries, several in one request.
type Ledger struct {
	// Book stands for the request to the ledger. It answers each entry: nil once it is booked.
	Book func(ctx context.Context, entries []Entry) ([]error, error)
}

// Entry is what the ledger takes. Its key makes a repetition harmless.
type Entry struct {
	Key    string `json:"-"`
	Amount int    `json:"amount"`
}

var (
	_ outbox.BatchHandler = (*Ledger)(nil)

	errClosed = errors.New("the books are closed")
)

// BatchLimit is how many entries the ledger takes at once.
func (*Ledger) BatchLimit() int { return 100 }

// Handle books one entry.
func (l *Ledger) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	delivery := l.HandleBatch(ctx, []outbox.Event{event})[0]
	return delivery.Receipt, delivery.Err
}

// HandleBatch books many.
func (l *Ledger) HandleBatch(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	deliveries := make([]outbox.Delivery, len(events))
	var entries []Entry
	var places []int // of the entries, among the events
	for i, event := range events {
		entry := Entry{Key: event.ID} // the same in every delivery
		if json.Unmarshal(event.Payload, &entry) != nil || entry.Amount == 0 {
			deliveries[i].Err = outbox.Discard(errors.New("ledger_no_entry: the payload has no amount"))
			continue
		}
		entries, places = append(entries, entry), append(places, i)
	}
	if len(entries) == 0 {
		return deliveries
	}
	answers, err := l.Book(ctx, entries)
	for n, i := range places {
		switch {
		case ctx.Err() != nil:
			deliveries[i].Err = fmt.Errorf("ledger_cut_off: %w", ctx.Err())
		case errors.Is(err, errClosed): // the ledger's fault, not the entry's: its other events wait, too
			deliveries[i].Err = outbox.Snooze(errors.New("ledger_closed"), time.Hour)
		case err != nil:
			deliveries[i].Err = errors.New("ledger_failed") // tried again; err may hold anything, so it is not shown
		case answers[n] != nil:
			deliveries[i].Err = outbox.Discard(errors.New("ledger_refused"))
		default:
			deliveries[i].Receipt = outbox.Receipt{"ledger": "booked"}
		}
	}
	return deliveries
}

// ledgerOf is a ledger that books everything but what is over its limit.
func ledgerOf(requests *[]string) *Ledger {
	return &Ledger{Book: func(ctx context.Context, entries []Entry) ([]error, error) {
		answers := make([]error, len(entries))
		for i, entry := range entries {
			if entry.Amount > 1000 {
				answers[i] = errors.New("over the limit")
			}
		}
		*requests = append(*requests, fmt.Sprintf("%d entries", len(entries)))
		return answers, ctx.Err()
	}}
}

// A handler may take several events in one call: a pass collects what is ready, each of another aggregate, and every event is
// answered in its place.
func ExampleBatchHandler() {
	store, requests := &outboxtest.Memory{}, []string{}
	for _, payload := range []string{`{"amount": 5}`, `{"amount": 5000}`, `{"amount": 7}`, `[]`} {
		store.Insert(outboxtest.Row{Type: "entry.made", Payload: json.RawMessage(payload)})
	}
	worker, err := outbox.NewWorker(outbox.Config{
		Store:    store,
		Registry: outbox.Registry{"entry.made": {Handler: ledgerOf(&requests), Timeout: 5 * time.Second, Destination: "ledger"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := worker.Run(context.Background(), outbox.Pass{SoftBudget: time.Minute})
	fmt.Println(strings.Join(requests, ", "), result.Processed, result.Discarded, err)
	for _, row := range store.Rows() {
		fmt.Println(strings.TrimSpace(row.Status + ": " + row.Error))
	}
	// Output:
	// 3 entries 2 2 <nil>
	// processed:
	// discarded: ledger_refused
	// processed:
	// discarded: ledger_no_entry: the payload has no amount
}

// TestLedger is the whole test of a handler's manners; its own deeds are for tests of its own.
func TestLedger(t *testing.T) {
	t.Parallel()
	outboxtest.TestHandler(t, func(t *testing.T) outboxtest.HandlerHarness {
		t.Parallel()
		book := func(ctx context.Context, entries []Entry) ([]error, error) {
			return make([]error, len(entries)), ctx.Err()
		}
		return outboxtest.HandlerHarness{
			Handler: &Ledger{Book: book},
			Event:   func(n int) outbox.Event { return outbox.Event{Payload: fmt.Appendf(nil, `{"amount": %d}`, n+1)} },
			Poison: func() []outbox.Event {
				return []outbox.Event{{Payload: json.RawMessage(`{"note": "not an entry at all"}`)}}
			},
		}
	})
}

// Disable says that a destination is gone for good: its events wait until an operator says otherwise.
func ExampleDisable() {
	store := &outboxtest.Memory{}
	store.Insert(outboxtest.Row{Type: "hook"}, outboxtest.Row{Type: "hook"})
	gone := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
		return nil, outbox.Disable(errors.New("http_410: gone"))
	})
	result := run(store, outbox.Registry{"hook": {Handler: gone, Destination: "crm"}})
	for _, row := range store.Rows() {
		fmt.Println(row.Status, row.Attempts)
	}
	fmt.Println(result.Reason)
	// Output:
	// discarded 1
	// pending 0
	// provider_outage
}

// A limit keeps a destination's events apart; they wait in the pass, not in their handlers.
func ExampleLimit() {
	store := &outboxtest.Memory{}
	store.Insert(outboxtest.Row{Type: "mail"}, outboxtest.Row{Type: "mail"}, outboxtest.Row{Type: "mail"})
	began := time.Now()
	run(store, outbox.Registry{"mail": {Handler: &outboxtest.Recorder{}, Limit: outbox.NewLimit(20)}})
	fmt.Println(time.Since(began) >= 90*time.Millisecond)
	// Output: true
}

// OutcomeOf tells what a handler's error asks for, as a decorator of handlers needs it.
func ExampleOutcomeOf() {
	for _, err := range []error{
		nil, errors.New("refused"), outbox.Discard(errors.New("no such user")), outbox.Snooze(errors.New("maintenance"), time.Hour),
	} {
		fmt.Println(outbox.OutcomeOf(err))
	}
	// Output:
	// processed
	// retry
	// discard
	// snooze
}
