package plans

import "fmt"

const (
	ours  = "array['ours', 'ours.too']"
	known = "array['other.0', 'other.1', 'other.2', 'other.3']"

	claimLanes = "select id, metadata ->> 'claimToken' from outbox_claim_lanes(" + ours + ", " + known + ", '{}', 100, 25)"
	claimBatch = "select id, metadata ->> 'claimToken' from outbox_claim_batch(" + ours + ", " + known + ", 100)"
	lanes      = "p_aggregate_types => array['order', 'order'], p_aggregate_ids => array[md5('-1'), md5('1')]::uuid[]"
	queueStats = "select outbox_queue_stats()"
)

// call is one use of the functions that drive the queue.
type call struct {
	name string
	sql  string
	// kinds are the statements that must be seen if rows are claimed: a plan that nobody sees can't be at fault.
	kinds []string
	most  func(shape) limits
}

// calls are those whose statements are looked at. The first few of them reach every statement; what others ask for
// changes what a statement costs.
func calls() []call {
	return []call{
		{"settle", settle(claimLanes, true), append(claiming(), locking, writing), shape.claims},
		{"claim at a ceiling of 1", `select from outbox_claim_batch(` + ours + `, ` + known + `, 100, 300, 1)`, claiming(), shape.large},
		{"statistics", queueStats, []string{reading}, shape.large},
		{"claim of lanes", claimLanes, claiming(), shape.claims},
		{"claim of a batch", claimBatch, claiming(), shape.claims},
		{"settle without waiting", settle(claimLanes, false), append(claiming(), locking, writing), shape.claims},
		{"claim of a thousand", `select from outbox_claim_lanes(` + ours + `, ` + known + `, '{}', 1000, 1000)`, claiming(), shape.large},
		{"claim behind a cursor", `select from outbox_claim_lanes(` + ours + `, ` + known + `, '{}', 100, 25,
			p_cursor => jsonb_build_object('fresh', 100, 'wakeAt', now() - interval '2 minutes', 'wakePosition', 100))`, nil, shape.claims},
		{"claim of named aggregates", `select from outbox_claim_lanes(` + ours + `, ` + known + `, '{}', 100, 25, ` + lanes + `)`, claiming(), shape.claims},
		{"recovery", `select from outbox_claim_lanes(` + ours + `, ` + known + `, '{}', 100, 25, p_lost => 'recover', ` + lanes + `)`, claiming(), shape.claims},
		{"claim of many types", `select from outbox_claim_batch(
			array(select 'type.' || g from generate_series(1, 50) g) || ` + ours + `,
			array(select 'kind.' || g from generate_series(1, 200) g) || ` + known + `, 100)`, claiming(), shape.claims},
		{"telling of discards", `with u as materialized (select * from outbox_discards_untold(` + ours + `, 100))
			select outbox_discards_told(array(select id from u), array(select mark from u))`, nil, shape.tells},
	}
}

// few of calls reach every statement.
const few = 3

func claiming() []string { return []string{reading, locking, writing} }

// settle claims rows and settles them, each fifth of them by another outcome.
func settle(claim string, wait bool) string {
	return fmt.Sprintf(`%s
with c as materialized (
  select r.id, r.token, row_number() over () as n from (%s) as r (id, token) where r.id is not null
)
select s.answer from outbox_settle(
  array(select id from c order by n), array(select token from c order by n),
  array(select (array['processed', 'retry', 'discard', 'snooze', 'release'])[1 + n %% 5] from c order by n),
  array(select 'why' from c), array(select null::jsonb from c), array(select 60 from c), p_wait => %t) as s`, ownMark, claim, wait)
}

// flat are the claims that cost the same at any size.
func flat() []call { return calls()[few : few+2] }
