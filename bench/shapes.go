package main

import (
	"context"
	"fmt"
)

// healthy is how many claimable events of aggregates of their own stand behind the rows of a shape.
const healthy = 1_000

// shape is a state of the table in which the cost of a claim is measured.
type shape struct {
	name string
	// row is a select list over g, the row's number from 1 to n: aggregate, event type, status, due time relative
	// to now, attempts.
	row string
	// flat tells that a claim of the last size is to cost at most 1.5 times what one of the first costs. Others are
	// to be judged over a whole pass, which one claim does not show.
	flat bool
}

// shapes are those of the design, and two more: shared, where the rows of others stand in front of ours within the
// same aggregates, and waiting, where rows that failed are not due again yet.
func shapes() []shape {
	return []shape{
		{"spread", "g % (n / 2), 'order.placed', 'pending', '0 s', 0", true},
		{"history", "g % (n / 2), 'order.placed', 'processed', '0 s', 1", true},
		{"future", "g, 'order.placed', 'pending', '1 day', 0", true},
		{"foreign", "g, 'other.' || g % 4, 'pending', '0 s', 0", true},
		{"shared", "-1 - g % 1000, 'other.' || g % 4, 'pending', '0 s', 0", true},
		{"hot", "0, 'order.placed', 'pending', '0 s', 0", false},
		{"blocked", "g / 10, 'order.placed', 'pending', case g % 10 when 0 then '1 day' else '0 s' end, 0", false},
		{"discarded", "g % (n / 2), 'order.placed', 'discarded', '0 s', 8", true},
		{"waiting", "g, 'order.placed', 'failed', '1 day', 3", true},
		{"thaw", "g % (n / 2), 'order.placed', 'failed', '59 min', 3", true},
	}
}

// eventType is what the benchmark claims; knownTypes are left to others.
const eventType = "order.placed"

func knownTypes() []string { return []string{"other.0", "other.1", "other.2", "other.3"} }

func shapeNames() []string {
	var names []string
	for _, s := range shapes() {
		names = append(names, s.name)
	}
	return names
}

// fillSQL inserts n rows, all created an hour ago, with a payload of some 300 bytes.
const fillSQL = `
insert into outbox_events
  (aggregate_type, aggregate_id, event_type, idempotency_key, status, created_at, available_at, attempts, payload)
select 'order', md5(r.aggregate::text)::uuid, r.event_type, gen_random_uuid()::text, r.status,
       now() - interval '1 hour', now() - interval '1 hour' + r.due::interval, r.attempts,
       jsonb_build_object('text', repeat('x', 280))
from (
  select g, x.*
  from (values (%d)) as s (n)
  cross join lateral generate_series(1, n) as g
  cross join lateral (select %s) as x (aggregate, event_type, status, due, attempts)
) r
order by r.g`

// backlog fills the table with n pending events over n / 2 aggregates, the two of one aggregate half the table apart.
func backlog(ctx context.Context, db *database, n int) error {
	return db.exec(ctx, fmt.Sprintf(fillSQL, n, "g % greatest(n / 2, 1), 'order.placed', 'pending', '0 s', 0"),
		"vacuum (analyze) outbox_events")
}

// States of the planner's statistics.
const (
	fresh  = "fresh"  // gathered after the rows came
	stale  = "stale"  // gathered over 100 rows that are gone
	absent = "absent" // never gathered
)

// fill gives the table n rows of the shape, with the healthy ones behind.
func (s shape) fill(ctx context.Context, db *database, n int, statistics string) error {
	ours := fmt.Sprintf(fillSQL, healthy, "-1 - g % 1000, 'order.placed', 'pending', '0 s', 0")
	if statistics == stale {
		few := fmt.Sprintf(fillSQL, 100, "-g, 'order.placed', 'pending', '0 s', 0")
		if err := db.exec(ctx, few, "analyze outbox_events", "delete from outbox_events"); err != nil {
			return err
		}
	}
	if err := db.exec(ctx, fmt.Sprintf(fillSQL, n, s.row), ours); err != nil {
		return err
	}
	if statistics == fresh {
		return db.exec(ctx, "vacuum (analyze) outbox_events")
	}
	return nil
}
