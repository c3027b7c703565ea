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
	// Those of one aggregate are its oldest unfinished ones, without a gap; none of them, and none that anybody
	// else holds, is blocked by an event of the aggregate outside the answer.
	Claim(ctx context.Context, req ClaimRequest) (Claim, error)
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
	// BatchSize is the largest number of events to return. The store clamps it to 1..1,000; zero means 25.
	BatchSize int
	// LaneDepth is the largest number of events of one aggregate. Clamped to 1..1,000; zero means 25.
	LaneDepth int
	// Visibility is the lease's length in whole seconds. The store clamps it to 5 min..1 h; zero means 5 min.
	Visibility time.Duration
	// MaxAttempts is the ceiling: due events at or past it are discarded. Clamped to 1..20; zero means 8.
	MaxAttempts int
	// Cursor is where to go on reading the queue, from a [Claim]; empty means its start. What an earlier claim of
	// the same pass left behind its cursor is not looked at again.
	Cursor string
	// Again begins at the start again. A cursor beside it may spare the store rows that it has seen blocked until a
	// time still to come, for half a minute at most: what becomes free otherwise is found after that.
	Again bool
	// Lanes are aggregates to look at wherever the cursor stands.
	Lanes []Aggregate
	// Recover asks for one event of Lanes and nothing else: the oldest that nothing blocks, also when its lease
	// ran out. Otherwise such events are reported, in [Claim].Lost, and left.
	Recover bool
}

// Aggregate names events that stay in order: those of one entity.
type Aggregate struct {
	Type string
	ID   string // a UUID in its text form
}

// Claim is what a claim found.
type Claim struct {
	Events []Event
	// Cursor is where the next claim goes on. It is opaque, and good for the same types or fewer.
	Cursor string
	// End tells that every event behind the request's cursor was considered.
	End bool
	// Leased are aggregates, seen on the way, of which events wait behind one that somebody holds, this claim included.
	Leased []Aggregate
	// Lost are aggregates, seen on the way, whose oldest event is free for a claim with Recover: its lease ran out.
	Lost []Aggregate
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
	// Uncharged tells that a snooze does not count among the event's snoozes.
	Uncharged bool
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
