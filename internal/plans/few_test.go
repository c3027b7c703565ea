package plans

import (
	"fmt"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// TestPlansOfAFewRows explains statements whose plans a session made when the table was known to hold a few rows, and keeps
// while it fills: so looks one that is swept often, when a burst comes. Of a single page, the scan of a whole index costs as
// little as a search.
func TestPlansOfAFewRows(t *testing.T) {
	t.Parallel()
	shape := named("spread")
	for _, few := range []int{1, 5, 50} {
		t.Run(fmt.Sprintf("%d rows", few), func(t *testing.T) {
			t.Parallel()
			url := postgrestest.URL(t)
			db := connect(t, url)
			db.do("alter table outbox_events set (autovacuum_enabled = false)")
			db.do(fill(few, shape.row), "vacuum (analyze) outbox_events")
			early := explained(t, url)
			for _, call := range calls() {
				early.do("begin", call.sql, "rollback")
			}
			early.plans()
			db.do(fill(5000, shape.row), fill(healthy, healthyRow))
			early.judge(fmt.Sprintf("planned for %d rows", few), shape, calls())
		})
	}
}
