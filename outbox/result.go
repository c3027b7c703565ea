package outbox

import "encoding/json"

// Reasons of a result.
const (
	ReasonRegistryEmpty    = "outbox_registry_empty"
	ReasonBudgetTooSmall   = "budget_too_small"
	ReasonProviderOutage   = "provider_outage"
	ReasonCancelled        = "invocation_cancelled"
	ReasonHandlerMissing   = "outbox_handler_missing"
	ReasonHandlerTimeout   = "handler_timeout"
	ReasonHandlerPanic     = "handler_panic"
	ReasonSnoozesExhausted = "snooze_budget_exhausted"
	ReasonMaxAge           = "max_age_exceeded" // older than its route's MaxAge
	ReasonCircuitOpen      = "circuit_open"     // of the part of a destination that the event goes to
	ReasonUnanswered       = "batch_unanswered" // by a BatchHandler
)

// Result is the outcome of one pass, the dispatch function's JSON reply. Existing keys are never renamed.
type Result struct {
	// OK is false only beside an error.
	OK bool `json:"ok"`
	// Checked, Updated and Failures repeat Claimed, Processed and Retried + Discarded.
	Checked  int `json:"checked"`
	Updated  int `json:"updated"`
	Failures int `json:"failures"`
	// Skipped tells that nothing was claimed on purpose; Reason says why. Reason is also set to
	// provider_outage when the circuit of any destination opened.
	Skipped bool   `json:"skipped"`
	Reason  string `json:"reason,omitempty"`

	Claimed        int `json:"claimed"`
	Processed      int `json:"processed"`
	Retried        int `json:"retried"`
	Snoozed        int `json:"snoozed"`
	Discarded      int `json:"discarded"`
	Released       int `json:"released"`
	DuplicateInRun int `json:"duplicateInRun"`
	LeaseLost      int `json:"leaseLost"`
	Batches        int `json:"batches"`
	// Pruned counts the finished events that the pass deleted.
	Pruned int `json:"pruned,omitempty"`
	// DiscardsTold counts the discards, of this pass and others, of which somebody was told.
	DiscardsTold int `json:"discardsTold,omitempty"`
	// Held are the destinations that were out as the pass ended, where the store remembers that: their events are not claimed.
	Held []string `json:"held,omitempty"`
	// RunMs is the pass's length in whole milliseconds, statistics included.
	RunMs int64 `json:"runMs"`
	// ByEventType holds the non-zero counters of each type.
	ByEventType map[string]TypeCounts `json:"byEventType"`
	// DiscardedEventIDs lists the first 25 discarded events, in order of discard.
	DiscardedEventIDs []string `json:"discardedEventIds"`
	// Queue is what the store's [Stats] gave, absent when they were late or failed.
	Queue json.RawMessage `json:"queue,omitempty"`
}

// TypeCounts counts the outcomes of one event type.
type TypeCounts struct {
	Processed      int `json:"processed,omitempty"`
	Retried        int `json:"retried,omitempty"`
	Snoozed        int `json:"snoozed,omitempty"`
	Discarded      int `json:"discarded,omitempty"`
	LeaseLost      int `json:"leaseLost,omitempty"`
	DuplicateInRun int `json:"duplicateInRun,omitempty"`
}
