package outboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// spentPerClaim is how many spent rows one claim discards at most.
const spentPerClaim = 100

// aggregate names what stays in order.
type aggregate struct{ kind, id string }

// Claim implements [outbox.Store]. Blocked rows are found by one walk from the oldest row to the newest.
func (m *Memory) Claim(ctx context.Context, req outbox.ClaimRequest) ([]outbox.Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	if len(req.EventTypes) == 0 {
		return nil, errors.New("claim: no event types, takes at least one")
	}
	m.mu.Lock()
	defer m.mu.Unlock()

	now := m.now()
	ceiling := clamp(orDefault(req.MaxAttempts, 8), 1, 20)
	m.discardSpent(req, now, ceiling)

	ordinary, recovered := m.candidates(req, now, ceiling)
	chosen := ordinary[:min(len(ordinary), clamp(orDefault(req.BatchSize, 25), 1, 100))]
	// A row whose lease ran out may be what killed its process: it goes alone.
	alone := len(recovered) > 0 && (req.PreferRecovered || len(ordinary) == 0)
	if alone {
		chosen = recovered[:1]
	}
	lease := clamp(wholeSeconds(orDefault(req.Visibility, 5*time.Minute)), 5*time.Minute, time.Hour)
	events := make([]outbox.Event, 0, len(chosen))
	for _, row := range chosen {
		takeLease(row, now, lease)
		event := row.event()
		event.Recovered = alone
		events = append(events, event)
	}
	return events, nil
}

// discardSpent discards the oldest due rows that have no attempt left, blocked or not.
func (m *Memory) discardSpent(req outbox.ClaimRequest, now time.Time, ceiling int) {
	left := spentPerClaim
	for _, row := range m.rows {
		if left == 0 {
			return
		}
		if claims(req, row.Type) && row.unfinished() && row.due(now) && row.Attempts >= ceiling {
			row.Error = cut(row.Error + " | max_attempts_exhausted_at_claim")
			discard(row, now, "max_attempts")
			left--
		}
	}
}

// candidates returns the rows that may be claimed, oldest first: those never claimed or given back, and those whose
// lease ran out.
func (m *Memory) candidates(req outbox.ClaimRequest, now time.Time, ceiling int) (ordinary, recovered []*Row) {
	blocked := map[aggregate]bool{}
	for _, row := range m.rows {
		if !row.unfinished() {
			continue
		}
		of := aggregate{row.AggregateType, row.AggregateID}
		if !blocked[of] && claims(req, row.Type) && row.due(now) && row.Attempts < ceiling {
			if row.Status == StatusProcessing {
				recovered = append(recovered, row)
			} else {
				ordinary = append(ordinary, row)
			}
		}
		if m.blocks(req, row.Type) {
			blocked[of] = true
		}
	}
	return ordinary, recovered
}

func claims(req outbox.ClaimRequest, eventType string) bool {
	return slices.Contains(req.EventTypes, eventType) && !slices.Contains(req.HeldTypes, eventType)
}

// blocks tells whether an unfinished row of that type keeps younger rows of its aggregate from this caller.
func (m *Memory) blocks(req outbox.ClaimRequest, eventType string) bool {
	if slices.Contains(req.EventTypes, eventType) || slices.Contains(req.HeldTypes, eventType) {
		return true
	}
	return !slices.Contains(req.KnownTypes, eventType) && !slices.Contains(m.dormant, eventType)
}

func (r Row) due(now time.Time) bool { return !r.AvailableAt.After(now) }

func takeLease(row *Row, now time.Time, length time.Duration) {
	row.Status = StatusProcessing
	row.Attempts++
	row.AvailableAt = now.Add(length)
	merge(row, map[string]json.RawMessage{"lastClaimedAt": timestamp(now), "claimToken": quote(newUUID())})
}

func (r Row) event() outbox.Event {
	c := r.clone()
	return outbox.Event{
		ID: c.ID, Position: c.Position, CreatedAt: c.CreatedAt, AggregateType: c.AggregateType,
		AggregateID: c.AggregateID, Type: c.Type, IdempotencyKey: c.IdempotencyKey, Attempts: c.Attempts,
		Payload: c.Payload, Metadata: c.Metadata,
	}
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func clamp[T int | time.Duration](value, low, high T) T { return min(max(value, low), high) }
