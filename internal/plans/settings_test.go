package plans

import (
	"testing"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// settings are what a server, a database or a role may have been given by somebody who had other queries in mind.
func settings() []string {
	return []string{
		"random_page_cost = 100; set seq_page_cost = 0.01",
		"random_page_cost = 0.01; set seq_page_cost = 0.01; set cpu_tuple_cost = 10",
		"work_mem = '64kB'",
		"effective_cache_size = '8kB'",
		"jit = on; set jit_above_cost = 0; set jit_optimize_above_cost = 0; set jit_inline_above_cost = 0",
		"plan_cache_mode = force_custom_plan",
		"plan_cache_mode = force_generic_plan",
		"default_statistics_target = 1",
		"enable_partitionwise_join = on; set enable_partitionwise_aggregate = on",
		"join_collapse_limit = 1; set from_collapse_limit = 1",
		"geqo_threshold = 2; set geqo_effort = 1",
		"max_parallel_workers_per_gather = 8; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; set min_parallel_index_scan_size = 0",
		"cursor_tuple_fraction = 1",
		"constraint_exclusion = on",
		"enable_indexscan = off",
		"enable_indexonlyscan = off",
		"enable_nestloop = off",
		"enable_sort = off; set enable_hashagg = off; set enable_incremental_sort = off",
		"enable_material = off; set enable_tidscan = off; set enable_gathermerge = off",
	}
}

// TestPlansUnderOddSettings explains the same statements with settings that would lead the planner astray.
func TestPlansUnderOddSettings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"foreign", "thaw"} {
		shape := named(name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.URL(t)
			db := connect(t, url)
			db.do("alter table outbox_events set (autovacuum_enabled = false)")
			db.do(fill(5000, shape.row), fill(healthy, healthyRow), "vacuum (analyze) outbox_events")
			for _, setting := range settings() {
				s := connect(t, url)
				s.do("set " + setting)
				s.explain()
				s.judge(setting, shape, calls()[:few])
			}
		})
	}
}
