package plans

import (
	"fmt"
	"slices"
)

// shape is a state of the queue in which claims are explained.
type shape struct {
	name string
	// row is a select list over g, a row's number from 1 to n: aggregate, event type, status, due time relative to an
	// hour ago, attempts.
	row string
	// few is how many rows a small table has in which a claim costs what it costs in a large one; 0: in none.
	few int
	// pass: what a whole pass costs, by row of the queue, is the same at any size.
	pass bool
}

// A claim reads a thousand delayed rows, those of thaw and spent: its cost is flat from there on.
func shapes() []shape {
	return []shape{
		{name: "spread", row: spread, few: 1000},
		{name: "history", row: "g % greatest(n / 2, 1), 'ours', 'processed', '0 s', 1", few: 1000},
		{name: "future", row: "g, 'ours', 'pending', '1 day', 0", few: 1000},
		{name: "foreign", row: "g, 'other.' || g % 4, 'pending', '0 s', 0", few: 1000},
		{name: "shared", row: "-1 - g % 1000, 'other.' || g % 4, 'pending', '0 s', 0"},
		{name: "hot", row: "0, 'ours', 'pending', '0 s', 0", pass: true},
		{name: "blocked", row: "g / 10, 'ours', 'pending', case g % 10 when 0 then '1 day' else '0 s' end, 0", pass: true},
		{name: "discarded", row: "g % greatest(n / 2, 1), 'ours', 'discarded', '0 s', 8", few: 1000},
		{name: "waiting", row: "g, 'ours', 'failed', '1 day', 3", few: 1000},
		{name: "thaw", row: "g % greatest(n / 2, 1), 'ours', 'failed', '59 min', 3", few: 2000},
		{name: "spent", row: "g, 'ours', 'failed', '59 min', 8", few: 3000},
	}
}

func named(name string) shape {
	all := shapes()
	return all[slices.IndexFunc(all, func(s shape) bool { return s.name == name })]
}

const spread = "g % greatest(n / 2, 1), 'ours', 'pending', '0 s', 0"

// healthy rows, claimable all, stand behind those of the shape, in aggregates -1 to -1000.
const (
	healthy    = 1000
	healthyRow = "-1 - (g - 1) % 1000, 'ours', 'pending', '0 s', 0"
)

// fill returns the statement that inserts n rows of a select list.
func fill(n int, row string) string { return fillTable("outbox_events", n, row) }

func fillTable(name string, n int, row string) string {
	return fmt.Sprintf(`%s
insert into %s
  (aggregate_type, aggregate_id, event_type, idempotency_key, status, created_at, available_at, attempts, payload)
select 'order', md5(r.aggregate::text)::uuid, r.event_type, r.g || '/' || clock_timestamp(), r.status, now() - interval '1 hour',
       now() - interval '1 hour' + r.due::interval, r.attempts, jsonb_build_object('text', repeat('x', 100))
from (
  select g, x.*
  from (values (%d)) as s (n)
  cross join lateral generate_series(1, n) as g
  cross join lateral (select %s) as x (aggregate, event_type, status, due, attempts)
) r
order by r.g`, ownMark, name, n, row)
}

// forget makes the planner know nothing of the table.
func forget() []string {
	return []string{
		"delete from pg_statistic where starelid = 'outbox_events'::regclass",
		"update pg_class set reltuples = -1, relpages = 0, relallvisible = 0 where oid = 'outbox_events'::regclass",
	}
}

// believe makes the planner know what was true when the table held 200 rows of a shape.
func believe(name string) []string {
	return append(forget(),
		"create table twin (like outbox_events including all)",
		fillTable("twin", 200, named(name).row),
		"analyze twin",
		"update pg_statistic set starelid = 'outbox_events'::regclass where starelid = 'twin'::regclass",
		`update pg_class e set reltuples = t.reltuples, relpages = t.relpages from pg_class t
			where e.oid = 'outbox_events'::regclass and t.oid = 'twin'::regclass`,
		"drop table twin")
}
