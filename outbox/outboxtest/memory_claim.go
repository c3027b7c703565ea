package outboxtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// spentPerClaim is how many spent rows one claim discards at most.
const spentPerClaim = 100

// Claim implements [outbox.Store]. What is blocked is found by one walk from the oldest row to the newest; the cursor is
// a position.
func (m *Memory) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	if err := ctx.Err(); err != nil {
		return outbox.Claim{}, fmt.Errorf("claim: %w", err)
	}
	if len(req.EventTypes) == 0 {
		return outbox.Claim{}, errors.New("claim: no event types, takes at least one")
	}
	after := int64(0)
	if req.Cursor != "" && !req.Again {
		var err error
		if after, err = strconv.ParseInt(req.Cursor, 10, 64); err != nil {
			return outbox.Claim{}, fmt.Errorf("claim: cursor: %w", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()

	now := m.now()
	ceiling := clamp(orDefault(req.MaxAttempts, 8), 1, 20)
	m.discardSpent(req, now, ceiling)

	batch, depth := clamp(orDefault(req.BatchSize, 25), 1, 1000), clamp(orDefault(req.LaneDepth, 25), 1, 1000)
	if req.Recover {
		batch, depth = 1, 1
	}
	seen, runs := m.runs(req, after, now, ceiling)
	var picks []pick
	result := outbox.Claim{End: true, Cursor: strconv.FormatInt(m.last, 10)}
	for _, of := range seen {
		run := runs[of]
		if run.leased {
			result.Leased = append(result.Leased, of)
		}
		if run.lost {
			result.Lost = append(result.Lost, of)
		} else {
			picks = append(picks, run.picks[:min(len(run.picks), depth)]...)
		}
	}
	// First each aggregate's oldest, then each one's second, and so on.
	slices.SortFunc(picks, func(a, b pick) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.row.Position, b.row.Position))
	})
	if len(picks) > batch {
		left := slices.MinFunc(picks[batch:], func(a, b pick) int { return cmp.Compare(a.row.Position, b.row.Position) })
		result.End, result.Cursor = false, strconv.FormatInt(max(left.row.Position-1, after), 10)
		picks = picks[:batch]
	}
	lease := clamp(wholeSeconds(orDefault(req.Visibility, 5*time.Minute)), 5*time.Minute, time.Hour)
	for _, p := range picks {
		takeLease(p.row, now, lease)
		event := p.row.event()
		event.Recovered, event.Age = req.Recover, now.Sub(p.row.CreatedAt)
		result.Events = append(result.Events, event)
	}
	return result, nil
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

// run is the oldest unfinished rows of an aggregate.
type run struct {
	picks   []pick
	blocked bool // the next row may not be taken
	leased  bool // somebody holds the oldest row
	lost    bool // the oldest row's lease ran out, and is only to be reported
}

// pick is a row that may be claimed, and its place in its run.
type pick struct {
	row  *Row
	rank int
}

// runs returns the aggregates to look at, in order of their oldest row, and what of each may be claimed.
func (m *Memory) runs(req outbox.ClaimRequest, after int64, now time.Time, ceiling int) (seen []outbox.Aggregate, runs map[outbox.Aggregate]*run) {
	runs = map[outbox.Aggregate]*run{}
	looked := map[outbox.Aggregate]bool{}
	for _, row := range m.rows {
		if !row.unfinished() || !m.blocks(req, row.Type) {
			continue
		}
		of := outbox.Aggregate{Type: row.AggregateType, ID: row.AggregateID}
		r := runs[of]
		if r == nil {
			r = &run{}
			runs[of] = r
		}
		delayed := row.Status == StatusFailed || row.AvailableAt.After(row.CreatedAt)
		behind := claims(req, row.Type) && (row.Position > after || delayed) && !req.Recover
		if !looked[of] && (behind || slices.Contains(req.Lanes, of)) {
			looked[of] = true
			seen = append(seen, of)
		}
		if r.blocked {
			continue
		}
		free := claims(req, row.Type) && row.due(now) && row.Attempts < ceiling
		lost := free && row.Status == StatusProcessing && !req.Recover
		r.blocked = !free || lost
		r.lost = lost && len(r.picks) == 0
		r.leased = row.Status == StatusProcessing && !row.due(now) && len(r.picks) == 0
		if !r.blocked {
			r.picks = append(r.picks, pick{row: row, rank: len(r.picks)})
		}
	}
	return seen, runs
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
