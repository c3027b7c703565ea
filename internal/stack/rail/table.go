package rail

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const insertSQL = `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
values ($1, $2, $3, $4, $5)`

func (r *run) insert(ctx context.Context, events []event) error {
	aggregates := map[string]bool{}
	for _, e := range events {
		aggregates[e.aggregate()] = true
		if _, err := r.conn.Exec(ctx, insertSQL, e.aggregateType, e.aggregateID, e.eventType, e.key, e.payload); err != nil {
			return fmt.Errorf("insert %s: %w", e.key, err)
		}
	}
	r.say("%s %d events of %d aggregates, by plain SQL\n", r.bold("inserted  "), len(events), len(aggregates))
	return nil
}

const (
	ageSQL = `
with circuits as (update outbox_circuits set open_until = now(), probe_until = null where open_until > now() or probe_until > now())
update outbox_events set available_at = now() where status in ('failed', 'pending') and available_at > now()`
	leftSQL = `select count(*) from outbox_events where status in ('pending', 'failed', 'processing') and event_type <> 'order.archived'`
)

// age makes delayed events due, as waiting would, and tells how many are left.
func (r *run) age(ctx context.Context) (left int64, err error) {
	if err := r.conn.QueryRow(ctx, leftSQL).Scan(&left); err != nil {
		return 0, fmt.Errorf("count what is left: %w", err)
	}
	if _, err := r.conn.Exec(ctx, ageSQL); err != nil {
		return 0, fmt.Errorf("age events: %w", err)
	}
	return left, nil
}

const rowsSQL = `
select id::text, position, idempotency_key, status, attempts, coalesce((metadata->>'snoozeCount')::int, 0),
       coalesce(error, ''), payload::text
from outbox_events order by position`

// rows reads the events' ends beside what was meant to become of them.
func (r *run) rows(ctx context.Context) ([]row, error) {
	meant := map[string]event{}
	for _, e := range scenario() {
		meant[e.key] = e
	}
	found, err := r.conn.Query(ctx, rowsSQL)
	if err != nil {
		return nil, fmt.Errorf("read the events: %w", err)
	}
	return pgx.CollectRows(found, func(from pgx.CollectableRow) (row, error) {
		var end row
		var key string
		err := from.Scan(&end.id, &end.position, &key, &end.status, &end.attempts, &end.snoozes, &end.reason, &end.stored)
		end.event = meant[key]
		end.key = key
		return end, err
	})
}
