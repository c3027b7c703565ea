package outbox

import (
	"context"
	"encoding/json"
	"time"
)

// Store keeps the events. Implementations must be safe for concurrent use, also by several processes on the same
// data; package outboxtest holds the suite that says what each method must do.
type Store interface {
	// Claim takes due events for this caller, oldest first, and leases them to it. The events come in any order.
	// No two of them, and none that anybody else holds, belong to one aggregate in such a way that one blocks
	// the other. An empty answer means that nothing is claimable now.
	Claim(ctx context.Context, req ClaimRequest) ([]Event, error)
	// Settle writes outcomes, each fenced by its claim token, and answers each in its place. A lost lease is the
	// answer [Missed], never an error; on an error nothing is known to have been written.
	Settle(ctx context.Context, batch []Settlement, backoff Backoff) ([]Answer, error)
}

// Stats is what a Store may offer beside: figures about the queue as a JSON value, which the pass puts into its
// result unread. Nil means that there are none.
type Stats interface {
	QueueStats(ctx context.Context) (json.RawMessage, error)
}

// ClaimRequest says what to claim.
type ClaimRequest struct {
	// EventTypes are the types to claim; empty is an error of the store.
	EventTypes []string
	// KnownTypes are types that exist but are left to others: unlike unknown types they don't block.
	KnownTypes []string
	// HeldTypes are types of this worker's that must wait: not claimed, and always blocking.
	HeldTypes []string
	// BatchSize is the largest number of events to return. The store clamps it to 1..100; zero means 25.
	BatchSize int
	// Visibility is the lease's length in whole seconds. The store clamps it to 5 min..1 h; zero means 5 min.
	Visibility time.Duration
	// MaxAttempts is the ceiling: due events at or past it are discarded. Clamped to 1..20; zero means 8.
	MaxAttempts int
	// PreferRecovered asks for one event whose lease ran out, alone, before any other. Otherwise such an event
	// is returned, alone too, only when nothing else is claimable.
	PreferRecovered bool
}

// Outcome says what became of a claimed event.
type Outcome string

// The five outcomes.
const (
	Processed Outcome = "processed" // delivered
	Retry     Outcome = "retry"     // failed; the attempt counts
	Snoozed   Outcome = "snooze"    // the destination failed; no attempt counts
	Discarded Outcome = "discard"   // never deliverable
	Released  Outcome = "release"   // never tried; no attempt counts
)

// Settlement is the outcome of one claimed event.
type Settlement struct {
	EventID    string
	ClaimToken string
	Outcome    Outcome
	// Reason of a retry, snooze or discard; the store keeps 2,000 characters of it.
	Reason string
	// Detail of a processed event: a JSON object, or nil.
	Detail json.RawMessage
	// Delay of a snooze (clamped to 60 s..1 h, zero means 5 min) or of a release (clamped to 0..1 h), in whole
	// seconds, rounded up.
	Delay time.Duration
}

// Backoff holds the numbers by which the store settles a retry; each clamps and defaults as SQL does.
type Backoff struct {
	Base        time.Duration // 5 s..1 h, zero means 60 s
	Cap         time.Duration // Base..24 h, zero means 1 h
	MaxAttempts int           // 1..20, zero means 8
}

// Answer is what a store made of a settlement.
type Answer string

// The answers. A retry whose attempts are spent answers AnswerDiscarded.
const (
	AnswerProcessed Answer = "processed"
	AnswerFailed    Answer = "failed"
	AnswerSnoozed   Answer = "snoozed"
	AnswerDiscarded Answer = "discarded"
	AnswerReleased  Answer = "released"
	Missed          Answer = "missed" // not held under that token any more; nothing changed
)
