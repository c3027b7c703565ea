package plans

import (
	"testing"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// step claims 100 rows from a cursor on, the aggregates of the last step first, and settles them.
const step = `
with c as materialized (
  select * from outbox_claim_lanes(` + ours + `, ` + known + `, '{}', 100, 100, p_cursor => $1::text::jsonb,
    p_aggregate_types => array_fill('order'::text, array[cardinality($2::text[])]), p_aggregate_ids => $2::text[]::uuid[])
), settled as materialized (
  select count(*) as rows from outbox_settle(
    array(select id from c where state is null order by position),
    array(select metadata ->> 'claimToken' from c where state is null order by position),
    array(select 'processed' from c where state is null), array(select null::text from c where state is null),
    array(select null::jsonb from c where state is null), array(select null::int from c where state is null))
)
select s.rows, array(select distinct aggregate_id::text from c where state is null),
       (c.state ->> 'cursor'), (c.state ->> 'end')::boolean
from c, settled s where c.state is not null`

// TestPassesCostByTheRow drains queues of two sizes in which claims must find their way past rows that they can't take.
// Such claims differ; but a pass must not look at the same rows again and again.
func TestPassesCostByTheRow(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes() {
		if !shape.pass {
			continue
		}
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			small, large := drain(t, shape, 1000), drain(t, shape, 3000)
			// Pages are no measure here: claims pass dead entries of indexes until no transaction of the whole server,
			// other tests' among them, is older than they are.
			if large.rows > 1.5*small.rows {
				t.Errorf("a pass costs %v for a hundred rows of 1,000, %v for a hundred of 3,000: more than 1.5 times as much", small, large)
			}
		})
	}
}

// drain settles all that can be claimed, and answers the cost for each hundred rows of the queue.
func drain(t *testing.T, shape shape, n int) cost {
	t.Helper()
	url := postgrestest.URL(t)
	db := connect(t, url)
	db.do("alter table outbox_events set (autovacuum_enabled = false)")
	db.do(fill(n, shape.row), fill(n/2, "-1 - g, 'ours', 'pending', '0 s', 0"), "vacuum (analyze) outbox_events")
	s := explained(t, url)
	cursor, lanes, settled, claims, idle := "{}", []string{}, 0, 0, 0
	var total cost
	for idle < 2 { // twice from the start, for nothing
		var rows int
		var end bool
		if err := s.conn.QueryRow(t.Context(), step, cursor, lanes).Scan(&rows, &lanes, &cursor, &end); err != nil {
			t.Fatalf("claim and settle: %v", err)
		}
		cost, _, _ := sums(s.plans())
		total.pages, total.rows = total.pages+cost.pages, total.rows+cost.rows
		settled, claims = settled+rows, claims+1
		switch {
		case rows > 0:
			idle = 0
		case end:
			cursor = "{}"
			idle++
		}
	}
	t.Logf("%d rows: %d settled by %d claims, %v", n, settled, claims, total)
	if settled < n/2 {
		t.Errorf("%d events were settled, want %d at least", settled, n/2)
	}
	hundreds := float64(n+n/2) / 100
	return cost{total.pages / hundreds, total.rows / hundreds}
}
