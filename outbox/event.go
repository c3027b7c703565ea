package outbox

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Event is one claimed row of the outbox, as it is after the claim.
type Event struct {
	// ID is the row's UUID in its text form; it is the same in every delivery of the event, so destinations can
	// use it as their idempotency key.
	ID string
	// Position is the place in insert order; "older" means a smaller position, everywhere.
	Position int64
	// CreatedAt is when the producer's transaction began.
	CreatedAt time.Time
	// Age is how long before its claim the event was created, by the store's clock; negative when it is dated in the
	// future, as far as the store can tell.
	Age time.Duration
	// AggregateType and AggregateID (a UUID) together name the aggregate whose events stay in order.
	AggregateType, AggregateID string
	// Type selects the handler.
	Type string
	// IdempotencyKey is the producer's own key, unique together with Type.
	IdempotencyKey string
	// Attempts counts the tries charged so far, this one included; 1 on the first delivery.
	Attempts int
	// Recovered tells that the event was claimed with [ClaimRequest].Recover, after the process that held it died:
	// it came alone, and the pass runs it with nothing else in flight.
	Recovered bool
	// Payload is the producer's JSON, byte for byte as PostgreSQL returns it. Handlers must not change it.
	Payload json.RawMessage
	// Metadata is the rail's own JSON object; it holds the claim token.
	Metadata json.RawMessage
}

// maxSnoozeDigits is the longest snooze count, sign included, that SQL takes for one.
const maxSnoozeDigits = 16

// Aggregate returns what the event stays in order with.
func (e Event) Aggregate() Aggregate { return Aggregate{Type: e.AggregateType, ID: e.AggregateID} }

// ClaimToken returns the token that fences this claim, or "" when Metadata carries none, none that is text, or an
// empty one.
func (e Event) ClaimToken() string {
	raw := e.metadata("claimToken")
	if len(raw) > 1 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1]) // plain, as each token of the store is
	}
	var token string
	if json.Unmarshal(raw, &token) != nil {
		return ""
	}
	return token
}

// SnoozeCount returns how often the event was snoozed over its whole life: an integer, or a text that holds one, as
// SQL reads it; anything else counts as 0.
func (e Event) SnoozeCount() int {
	raw := string(e.metadata("snoozeCount"))
	var text string
	if json.Unmarshal([]byte(raw), &text) == nil {
		raw = strings.Trim(text, " ")
	}
	n, err := strconv.Atoi(raw)
	if err != nil || len(raw) > maxSnoozeDigits {
		return 0
	}
	return n
}

// metadata returns the raw value of a key, nil when there is none. Keys compare exactly, as SQL compares them, and as
// PostgreSQL prints them, without escapes. Each claimed event is asked for its token, so the object is read once, into
// nothing: a map of it takes several times as long.
func (e Event) metadata(key string) (value json.RawMessage) {
	var name []byte // the last string of the object itself
	depth, from := 0, -1
	for i := 0; i < len(e.Metadata); i++ {
		switch c := e.Metadata[i]; c {
		case '"':
			start := i + 1
			for i++; i < len(e.Metadata) && e.Metadata[i] != '"'; i++ {
				if e.Metadata[i] == '\\' {
					i++
				}
			}
			if depth == 1 {
				name = e.Metadata[start:min(i, len(e.Metadata))]
			}
		case '{', '[':
			depth++
		case ':':
			if depth == 1 && string(name) == key {
				from = i + 1
			}
		case ',', '}', ']':
			if depth == 1 && from >= 0 {
				value, from = bytes.TrimSpace(e.Metadata[from:i]), -1
			}
			if c != ',' {
				depth--
			}
		}
	}
	return value
}
