package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// shape is a state of the table in which the cost of a claim is measured.
type shape struct {
	name string
	// row is a select list over g, the row's number from 1 to n: aggregate, event type, status, due time relative
	// to now, attempts.
	row string
	// healthy is how many claimable events of aggregates of their own stand behind the rows: where a whole pass is judged,
	// as many as drain_mixed has.
	healthy int
	// whole tells that it is the claims of a whole pass that are judged: the first ones may have to find their way
	// past what they can't take.
	whole bool
}

// shapes are those of the design, and two more: shared, where the rows of others stand in front of ours within the
// same aggregates, and waiting, where rows that failed are not due again yet.
func shapes() []shape {
	return []shape{
		{"spread", spread, 1000, false},
		{"history", "g % greatest(n / 2, 1), 'order.placed', 'processed', '0 s', 1", 1000, false},
		{"future", "g, 'order.placed', 'pending', '1 day', 0", 1000, false},
		{"foreign", "g, 'other.' || g % 4, 'pending', '0 s', 0", 1000, false},
		{"shared", "-1 - g % 1000, 'other.' || g % 4, 'pending', '0 s', 0", 1000, false},
		{"hot", "0, 'order.placed', 'pending', '0 s', 0", 50_000, true},
		{"blocked", "g / 10, 'order.placed', 'pending', case g % 10 when 0 then '1 day' else '0 s' end, 0", 50_000, true},
		{"discarded", "g % greatest(n / 2, 1), 'order.placed', 'discarded', '0 s', 8", 1000, false},
		{"waiting", "g, 'order.placed', 'failed', '1 day', 3", 1000, false},
		{"thaw", "g % greatest(n / 2, 1), 'order.placed', 'failed', '59 min', 3", 1000, false},
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

// payloadText is the length of the text in a payload, whose JSON then has some 300 bytes.
const payloadText = 280

// fillSQL inserts n rows, all created an hour ago.
const fillSQL = `
insert into outbox_events
  (aggregate_type, aggregate_id, event_type, idempotency_key, status, created_at, available_at, attempts, payload)
select 'order', md5(r.aggregate::text)::uuid, r.event_type, gen_random_uuid()::text, r.status,
       now() - interval '1 hour', now() - interval '1 hour' + r.due::interval, r.attempts,
       jsonb_build_object('text', repeat('x', %d))
from (
  select g, x.*
  from (values (%d)) as s (n)
  cross join lateral generate_series(1, n) as g
  cross join lateral (select %s) as x (aggregate, event_type, status, due, attempts)
) r
order by r.g;`

// fill returns the statement that inserts n rows of a select list, as [shape] has it.
func fill(n int, row string) string { return fmt.Sprintf(fillSQL, payloadText, n, row) }

// spread is the select list of an ordinary backlog: n / 2 aggregates, the two events of each half the table apart.
const spread = "g % greatest(n / 2, 1), 'order.placed', 'pending', '0 s', 0"

// backlog makes a database that holds n events, ready to be copied, and returns its name.
func (b *bench) backlog(ctx context.Context, n int) (string, error) {
	return b.rows(ctx, fill(n, spread))
}

// rows makes a database that holds what the statements insert.
func (b *bench) rows(ctx context.Context, statements string) (string, error) {
	return b.original(ctx, func(db *database) error {
		return db.load(ctx, statements, "vacuum (analyze) outbox_events")
	})
}

// States of the planner's statistics.
const (
	fresh  = "fresh"  // gathered after the rows came
	stale  = "stale"  // gathered over 100 rows that are gone
	absent = "absent" // never gathered
)

// fill gives the table n rows of the shape, with the healthy ones behind.
func (s shape) fill(ctx context.Context, db *database, n int, statistics string) error {
	if statistics == stale {
		few := fill(100, "-g, 'order.placed', 'pending', '0 s', 0")
		if err := db.exec(ctx, few, "analyze outbox_events", "delete from outbox_events"); err != nil {
			return err
		}
	}
	after := "select"
	if statistics == fresh {
		after = "vacuum (analyze) outbox_events"
	}
	return db.load(ctx, fill(n, s.row)+fill(s.healthy, "-1 - g % n, 'order.placed', 'pending', '0 s', 0"), after)
}

const indexesSQL = `
select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
from pg_index i
where i.indrelid = 'outbox_events'::regclass and not exists (select from pg_constraint c where c.conindid = i.indexrelid)`

// load fills the outbox while it has no indexes but those of its keys, which takes two thirds of the time, builds them
// again, and runs a last statement.
func (db *database) load(ctx context.Context, fill, after string) error {
	rows, err := db.Query(ctx, indexesSQL)
	if err != nil {
		return fmt.Errorf("list indexes: %w", err)
	}
	var drops, builds []string
	var name, definition string
	_, err = pgx.ForEachRow(rows, []any{&name, &definition}, func() error {
		drops, builds = append(drops, "drop index "+name), append(builds, definition)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list indexes: %w", err)
	}
	return db.exec(ctx, slices.Concat(drops, []string{fill}, builds, []string{after})...)
}
