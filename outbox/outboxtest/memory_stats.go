package outboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// queueFigures are what PostgreSQL's store tells of the queue.
type queueFigures struct {
	Unfinished       int                    `json:"unfinished"`
	Capped           bool                   `json:"capped"` // never: Memory counts to the end
	OldestDueSeconds int64                  `json:"oldestDueSeconds"`
	ByEventType      map[string]typeFigures `json:"byEventType"`
}

type typeFigures struct {
	Unfinished       int   `json:"unfinished"`
	OldestDueSeconds int64 `json:"oldestDueSeconds"`
}

// QueueStats implements [outbox.Stats]: how many rows are unfinished and how many seconds the longest-waiting due one
// has waited, in all and by type.
func (m *Memory) QueueStats(ctx context.Context) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("queue statistics: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	all := queueFigures{ByEventType: map[string]typeFigures{}}
	for _, row := range m.rows {
		if !row.unfinished() {
			continue
		}
		of := all.ByEventType[row.Type]
		of.Unfinished++
		if row.Status != StatusProcessing {
			waited := int64(now.Sub(row.AvailableAt).Round(time.Second) / time.Second)
			of.OldestDueSeconds = max(of.OldestDueSeconds, waited)
		}
		all.ByEventType[row.Type] = of
		all.Unfinished++
		all.OldestDueSeconds = max(all.OldestDueSeconds, of.OldestDueSeconds)
	}
	return json.Marshal(all)
}
