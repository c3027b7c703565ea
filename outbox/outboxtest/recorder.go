package outboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/openlup/outbox-dispatch/outbox"
)

var _ outbox.Handler = (*Recorder)(nil)

// Recorder is a handler that remembers what it was given, and answers as told. The zero value delivers everything.
// It is safe for concurrent use.
type Recorder struct {
	// Reply decides the outcome of an event, its Attempts telling the tries apart; nil delivers with no receipt.
	Reply outbox.HandlerFunc

	mu     sync.Mutex
	events []outbox.Event
}

// Handle records the event and then answers by Reply.
func (r *Recorder) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	r.mu.Lock()
	r.events = append(r.events, event)
	r.mu.Unlock()
	if r.Reply == nil {
		return nil, nil //nolint:nilnil // a nil receipt is a delivery without one
	}
	return r.Reply(ctx, event)
}

// Events returns the recorded events in the order in which they came.
func (r *Recorder) Events() []outbox.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}
