package plans

import (
	"regexp"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// mutant is a function as somebody might simplify it.
type mutant struct {
	name, function, from, to string
	shape                    string
	statistics               string // of few rows in that shape; empty: none
	call                     string
	want                     string // in some fault
}

func mutants() []mutant {
	const restrictions = `SET enable_\w+ TO 'off'`
	return []mutant{
		{"a claim planned without restrictions", "outbox_claim_lanes", restrictions, "", "spread", "hot", "claim of lanes", "Seq Scan"},
		{"figures planned without restrictions", "outbox_queue_stats", restrictions, "", "spread", "", "statistics", "rows in one sort"},
		{"a window without a limit", "outbox_claim_lanes", `limit v_window\b`, "limit 100000", "spread", "", "claim of lanes", "rows looked at"},
	}
}

// TestMutants shows that the checks see what they are there for, in the real functions made worse.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.URL(t)
			db := connect(t, url)
			db.do("alter table outbox_events set (autovacuum_enabled = false)")
			var text string
			err := db.conn.QueryRow(t.Context(), "select pg_get_functiondef(oid) from pg_proc where proname = $1", m.function).Scan(&text)
			if err != nil {
				t.Fatalf("read %s: %v", m.function, err)
			}
			changed := regexp.MustCompile(m.from).ReplaceAllString(text, m.to)
			if changed == text {
				t.Fatalf("%s no longer says %s: change this test along with it", m.function, m.from)
			}
			db.do(changed)
			shape := named(m.shape)
			db.do(fill(5000, shape.row), fill(healthy, healthyRow))
			if db.do(forget()...); m.statistics != "" {
				db.do(believe(m.statistics)...)
			}
			for _, call := range calls() {
				if call.name != m.call {
					continue
				}
				_, faults := explained(t, url).examine(call, call.most(shape))
				if !strings.Contains(strings.Join(faults, "\n"), m.want) {
					t.Errorf("got %d faults, %v, want one that says %q", len(faults), faults, m.want)
				}
			}
		})
	}
}
