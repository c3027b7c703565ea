package outbox

import (
	"context"
	"time"
)

// Circuits is what a Store may offer beside: it remembers which destinations are out, for all workers on the same data.
// Without it each pass finds out by itself, at the cost of a few attempts. Implementations must be safe for concurrent
// use; package outboxtest holds the suite that says what each method must do.
type Circuits interface {
	// Load returns the circuits among these that are open, or hold retries; all others are closed. Of an open one
	// whose time is over at most one caller is told to probe, until it reports or the lease ends.
	Load(ctx context.Context, destinations []string, lease time.Duration) ([]Circuit, error)
	// Report takes what a pass found of one destination and returns its circuit.
	Report(ctx context.Context, report CircuitReport) (Circuit, error)
}

// Circuit is the state of one destination.
type Circuit struct {
	Destination string
	// Open tells that its events must not be claimed.
	Open bool
	// Probe tells that this caller alone may claim one of them, to see whether the destination is back.
	Probe bool
	// Wait is how long an open circuit stays so at least; negative when only an operator ends it.
	Wait time.Duration
	// Openings counts how often it opened in a row.
	Openings int
	// Retried are events that were retried since the destination's last success, five at most.
	Retried []string
}

// CircuitReport is what a pass found. Exactly one of Success, Failure, Hold and Retried is set.
type CircuitReport struct {
	Destination string
	// Success closes the circuit, and forgets retries.
	Success bool
	// Failure opens it: for 30 s, doubling with each opening in a row up to 5 min, or for Wait if that is longer.
	Failure bool
	// Hold keeps it open until an operator resets it: the destination is gone for good.
	Hold bool
	// Retried are events that failed since the destination's last success. The fifth different one opens it.
	Retried []string
	// Error says why, of a failure or of retries.
	Error string
	// Wait is how long the destination asked to be left alone; at most an hour counts.
	Wait time.Duration
}
