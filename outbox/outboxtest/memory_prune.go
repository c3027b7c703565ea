package outboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// Prune implements [outbox.Pruner].
func (m *Memory) Prune(ctx context.Context, retention outbox.Retention, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	retention = retention.WithDefaults()
	now := m.now()
	var timed, others []*Row // the first in order of that time, the others of position
	for _, row := range m.rows {
		switch {
		case !row.over(retention, now):
		case row.ProcessedAt.IsZero():
			others = append(others, row)
		default:
			timed = append(timed, row)
		}
	}
	slices.SortStableFunc(timed, func(a, b *Row) int { return a.ProcessedAt.Compare(b.ProcessedAt) })
	pruned := map[*Row]bool{}
	for _, row := range slices.Concat(timed, others) {
		if len(pruned) < clamp(orDefault(limit, 1000), 1, 10_000) {
			pruned[row] = true
		}
	}
	m.rows = slices.DeleteFunc(m.rows, func(row *Row) bool { return pruned[row] })
	return len(pruned), nil
}

// over tells whether the row's time is over.
func (r Row) over(retention outbox.Retention, now time.Time) bool {
	keep, end := retention.Discarded, r.discardedAt()
	if r.Status == StatusProcessed {
		keep = retention.Processed
		if !r.ProcessedAt.IsZero() {
			end = r.ProcessedAt
		}
	}
	isOver := func(at time.Time, keep time.Duration) bool { return keep >= 0 && !at.After(now.Add(-keep)) }
	return !r.unfinished() && isOver(r.CreatedAt, keep) && isOver(end, keep) &&
		// Of a discarded row that was processed before, both ages must be over.
		(r.ProcessedAt.IsZero() || isOver(r.ProcessedAt, retention.Processed))
}

// discardedAt is what the metadata says or, where that cannot be read, the later of created_at and available_at.
func (r Row) discardedAt() time.Time {
	var metadata struct {
		DiscardedAt string `json:"discardedAt"`
	}
	if json.Unmarshal(r.Metadata, &metadata) == nil {
		if at, err := time.Parse(time.RFC3339Nano, metadata.DiscardedAt); err == nil {
			return at
		}
	}
	if r.AvailableAt.After(r.CreatedAt) {
		return r.AvailableAt
	}
	return r.CreatedAt
}
