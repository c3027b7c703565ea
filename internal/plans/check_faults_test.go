package plans

import (
	"strings"
	"testing"
)

// TestFaults judges plans as auto_explain writes them.
func TestFaults(t *testing.T) {
	t.Parallel()
	most := limits{pages: 100, rows: 100, sorted: 100}
	scan := func(kind, more string) string {
		return `{"Node Type": "` + kind + `", "Relation Name": "outbox_events", "Actual Rows": 10, "Actual Loops": 1` + more + `}`
	}
	found := scan("Index Scan", `, "Index Name": "i", "Index Cond": "(id = 1)"`)
	over := func(kind, more, below string) string {
		return `{"Node Type": "` + kind + `", "Actual Rows": 10, "Actual Loops": 1` + more + `, "Plans": [` + below + `]}`
	}
	for name, test := range map[string]struct{ plan, want string }{
		"nothing wrong":              {over("Nested Loop", "", found), ""},
		"a sequential scan":          {scan("Seq Scan", ""), "Seq Scan of outbox_events"},
		"one below others":           {over("Nested Loop", "", over("Limit", "", scan("Seq Scan", ""))), "Seq Scan of outbox_events"},
		"one of another table":       {`{"Node Type": "Seq Scan", "Relation Name": "other", "Actual Rows": 500, "Actual Loops": 1}`, ""},
		"a bitmap":                   {scan("Bitmap Heap Scan", ""), "Bitmap Heap Scan of outbox_events"},
		"a hash join over the table": {over("Hash Join", "", over("Hash", "", found)), "Hash Join over rows of outbox_events"},
		"a merge join":               {over("Merge Join", "", found), "Merge Join over rows of outbox_events"},
		"a hash join beside it":      {over("Hash Join", "", `{"Node Type": "CTE Scan", "Actual Rows": 1, "Actual Loops": 1}`), ""},
		"parallel workers":           {over("Gather", "", found), "Gather: workers are started"},
		"a whole index":              {scan("Index Scan", `, "Index Name": "i"`), "Index Scan of the whole of i"},
		"an index's first row":       {strings.Replace(scan("Index Only Scan", `, "Index Name": "i"`), `: 10,`, `: 1,`, 1), ""},
		"a sort of too many":         {over("Sort", "", strings.Replace(found, ": 10,", ": 101,", 1)), "101 rows in one sort"},
		"rows that a filter dropped": {scan("Index Scan", `, "Index Cond": "c", "Rows Removed by Filter": 91`), "101 rows looked at"},
		"rows of many loops":         {strings.Replace(found, `"Actual Loops": 1`, `"Actual Loops": 11`, 1), "110 rows looked at"},
		"too many pages":             {over("Limit", `, "Shared Hit Blocks": 60, "Shared Read Blocks": 41`, found), "101 pages touched"},
		"pages of writing":           {over("ModifyTable", `, "Shared Hit Blocks": 500`, found), ""},
		"too many pages of writing":  {over("ModifyTable", `, "Shared Hit Blocks": 601`, found), "601 pages touched to write 10 rows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ours, err := parse("duration: 0.1 ms  plan:\n{\"Query Text\": \"select\", \"Plan\": " + test.plan + "}")
			if !ours || err != nil {
				t.Fatalf("got ours %t, error %v", ours, err)
			}
			got := strings.Join(s.faults(most), "; ")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestNotices: what else the server says is no plan, and a plan that can't be read is no silence.
func TestNotices(t *testing.T) {
	t.Parallel()
	for notice, want := range map[string]struct{ ours, fails bool }{
		"relation exists, skipping":            {false, false},
		"duration: 1 ms  plan:\n{\"Plan\": 1}": {true, true},
		"duration: 1 ms  plan:\n{}":            {true, false},
	} {
		if _, ours, err := parse(notice); ours != want.ours || (err != nil) != want.fails {
			t.Errorf("%q: got %t, error %v, want %+v", notice, ours, err, want)
		}
	}
}
