package outboxtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/openlup/outbox-dispatch/outbox"
)

// Untold implements [outbox.Discards].
func (m *Memory) Untold(ctx context.Context, eventTypes []string, limit int) ([]outbox.Notice, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("untold discards: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var untold []outbox.Notice
	for _, row := range m.rows {
		if row.isUntold() && slices.Contains(eventTypes, row.Type) {
			untold = append(untold, row.notice())
		}
	}
	slices.SortFunc(untold, func(a, b outbox.Notice) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Position, b.Position))
	})
	return untold[:min(len(untold), clamp(orDefault(limit, 100), 1, 1000))], nil
}

// Told implements [outbox.Discards].
func (m *Memory) Told(ctx context.Context, notices []outbox.Notice) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("tell of discards: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, notice := range notices {
		if row := m.find(notice.EventID); row != nil && row.isUntold() && row.mark() == notice.Mark {
			merge(row, map[string]json.RawMessage{"discardTold": quote(row.mark())})
		}
	}
	return nil
}

// isUntold tells whether the row was discarded, and nobody was told of that discard.
func (r Row) isUntold() bool {
	told, isTold := r.metadataText("discardTold")
	return r.Status == StatusDiscarded && (!isTold || told != r.mark())
}

// mark tells the discards of a row apart.
func (r Row) mark() string {
	at, _ := r.metadataText("discardedAt")
	return at
}

func (r Row) notice() outbox.Notice {
	reason, _ := r.metadataText("discardReason")
	return outbox.Notice{
		EventID: r.ID, Position: r.Position, AggregateType: r.AggregateType, AggregateID: r.AggregateID, Type: r.Type,
		IdempotencyKey: r.IdempotencyKey, Attempts: r.Attempts, Reason: r.Error, DiscardReason: reason,
		CreatedAt: r.CreatedAt, DiscardedAt: r.discardedAt(), Mark: r.mark(),
	}
}

// metadataText returns the text of a key, as ->> does for texts; others count as their JSON.
func (r Row) metadataText(key string) (string, bool) {
	var object map[string]json.RawMessage
	raw, found := json.RawMessage(nil), false
	if json.Unmarshal(r.Metadata, &object) == nil {
		raw, found = object[key]
	}
	if !found || string(raw) == "null" {
		return "", false
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return string(raw), true
	}
	return text, true
}
