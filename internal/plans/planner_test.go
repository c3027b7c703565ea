package plans

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

var size = flag.Int("rows", 20_000, "rows of the large tables; what claims cost is logged, see -v")

// TestPlans explains every statement of the functions that drive the queue, in every shape, for a table that grew since
// its plans were made, with statistics of other times, with none, and with fresh ones.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, shape := range shapes() {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			many := explainAll(t, shape, *size)
			if shape.few == 0 {
				return
			}
			for call, small := range explainClaims(t, shape) {
				if large := many[call]; large.pages > 1.5*small.pages || large.rows > 1.5*small.rows {
					t.Errorf("%s: %v at %d rows, %v at %d: more than 1.5 times as much", call, small, shape.few, large, *size)
				}
			}
		})
	}
}

// cost of all statements of a call, but for writing.
type cost struct{ pages, rows float64 }

func (c cost) String() string { return fmt.Sprintf("%.0f pages and %.0f rows", c.pages, c.rows) }

// explainAll explains each call in a database of n rows, and answers what each costs once statistics are fresh.
func explainAll(t *testing.T, shape shape, n int) map[string]cost {
	t.Helper()
	url := postgrestest.URL(t)
	db := connect(t, url)
	early := explained(t, url)
	db.do("alter table outbox_events set (autovacuum_enabled = false)")
	for _, call := range calls() {
		early.do(call.sql) // plans are made here, of an empty table
	}
	db.do(fill(n, shape.row), fill(healthy, healthyRow))
	early.judge(fmt.Sprintf("%d rows, planned when there were none", n), shape, calls())
	for _, before := range []string{"history", "hot"} {
		db.do(believe(before)...)
		explained(t, url).judge(fmt.Sprintf("%d rows, statistics of few, %s", n, before), shape, calls()[:few])
	}
	db.do(forget()...)
	explained(t, url).judge(fmt.Sprintf("%d rows, no statistics", n), shape, calls()[:few])
	db.do("vacuum (analyze) outbox_events")
	return explained(t, url).judge(fmt.Sprintf("%d rows, fresh statistics", n), shape, calls())
}

// explainClaims explains claims in a small table.
func explainClaims(t *testing.T, shape shape) map[string]cost {
	t.Helper()
	url := postgrestest.URL(t)
	db := connect(t, url)
	db.do("alter table outbox_events set (autovacuum_enabled = false)")
	db.do(fill(shape.few, shape.row), fill(healthy, healthyRow), "vacuum (analyze) outbox_events")
	return explained(t, url).judge(fmt.Sprintf("%d rows, fresh statistics", shape.few), shape, flat())
}

// judge makes each call, takes it back, fails the test for what is wrong with its statements, and answers its cost.
func (s *session) judge(where string, shape shape, calls []call) map[string]cost {
	s.t.Helper()
	costs := map[string]cost{}
	for _, call := range calls {
		found, faults := s.examine(call, call.most(shape))
		for _, fault := range faults {
			s.t.Errorf("%s, %s: %s", where, call.name, fault)
		}
		total, worst, sorted := sums(found)
		s.t.Logf("%s, %s: %v; of one statement %v, %.0f sorted", where, call.name, total, worst, sorted)
		costs[call.name] = total
	}
	return costs
}

// examine makes a call, takes it back, and finds fault with its statements.
func (s *session) examine(call call, most limits) (found []statement, faults []string) {
	s.t.Helper()
	s.plans()
	s.do("begin", call.sql, "rollback")
	found = s.plans()
	var kinds []string
	for i := range found {
		kinds = append(kinds, found[i].kind())
		for _, fault := range found[i].faults(most) {
			faults = append(faults, fmt.Sprintf("%s, in\n%s\n%s", fault, found[i].Query, found[i].Plan.tree("  ")))
		}
	}
	for _, kind := range call.kinds {
		if !slices.Contains(kinds, kind) {
			faults = append(faults, fmt.Sprintf("saw statements %v, none of kind %s", kinds, kind))
		}
	}
	return found, faults
}

// sums answers what statements cost together, and at most.
func sums(found []statement) (total, worst cost, sorted float64) {
	for i := range found {
		pages, rows := found[i].Plan.pages(), found[i].Plan.touched()
		total.pages, total.rows = total.pages+pages, total.rows+rows
		worst.pages, worst.rows = max(worst.pages, pages), max(worst.rows, rows)
		sorted = max(sorted, found[i].Plan.sorted())
	}
	return total, worst, sorted
}
