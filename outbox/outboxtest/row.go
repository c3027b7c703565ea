package outboxtest

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// The statuses of a row. Pending, processing and failed rows are unfinished.
const (
	StatusPending    = "pending"
	StatusProcessing = "processing"
	StatusProcessed  = "processed"
	StatusFailed     = "failed"
	StatusDiscarded  = "discarded"
)

// Row is one row of the outbox: what a producer inserts, and what a test reads back. For an insert the zero value
// of every field but Type is good: it means what its comment says.
type Row struct {
	// ID is the event's UUID; empty means a random one.
	ID string
	// Position is the place in insert order. The store gives it; an insert ignores it.
	Position int64
	// CreatedAt is when the producer's transaction began; zero means now.
	CreatedAt time.Time
	// AvailableAt is when the row is due, or when its lease ends; zero means now.
	AvailableAt time.Time
	// ProcessedAt is when the event was delivered; zero means never.
	ProcessedAt time.Time
	// AggregateType and AggregateID name the aggregate; empty means "test" and a random UUID, an aggregate of the
	// row's own.
	AggregateType, AggregateID string
	// Type is the event's type, which selects the handler.
	Type string
	// IdempotencyKey is unique together with Type; empty means a random one.
	IdempotencyKey string
	// Status is one of the five; empty means pending.
	Status string
	// Attempts counts the tries charged so far.
	Attempts int
	// Payload is any JSON; nil means {}.
	Payload json.RawMessage
	// Error is the last failure; empty stands for SQL's null too.
	Error string
	// Metadata is any JSON, also what is no object; nil means {}.
	Metadata json.RawMessage
}

// WithDefaults returns the row as an insert at that time stores it, but for its position.
func (r Row) WithDefaults(now time.Time) Row {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&r.ID, newUUID())
	set(&r.AggregateType, "test")
	set(&r.AggregateID, newUUID())
	set(&r.IdempotencyKey, newUUID())
	set(&r.Status, StatusPending)
	if r.CreatedAt.IsZero() {
		r.CreatedAt = now
	}
	if r.AvailableAt.IsZero() {
		r.AvailableAt = now
	}
	if r.Payload == nil {
		r.Payload = json.RawMessage("{}")
	}
	if r.Metadata == nil {
		r.Metadata = json.RawMessage("{}")
	}
	return r
}

func (r Row) unfinished() bool {
	return r.Status == StatusPending || r.Status == StatusProcessing || r.Status == StatusFailed
}

// clone shares no memory with r.
func (r Row) clone() Row {
	r.Payload = bytes.Clone(r.Payload)
	r.Metadata = bytes.Clone(r.Metadata)
	return r
}

// newUUID returns a random version 4 UUID in its text form.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
