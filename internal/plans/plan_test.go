package plans

import (
	"encoding/json"
	"fmt"
	"strings"
)

// table is whose scans are judged.
const table = "outbox_events"

// statement is one execution of an SQL statement, as auto_explain saw it.
type statement struct {
	Query string `json:"Query Text"`
	Plan  node   `json:"Plan"`
}

// node is a step of a plan. Rows, and rows left out, are averages over the loops; pages are sums, of the steps below too.
type node struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Condition string  `json:"Index Cond"`
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Hit       float64 `json:"Shared Hit Blocks"`
	Read      float64 `json:"Shared Read Blocks"`
	Plans     []node  `json:"Plans"`
}

// parse reads what auto_explain says at the end of a statement; other notices are none of ours.
func parse(notice string) (s statement, ours bool, err error) {
	_, plan, ours := strings.Cut(notice, " plan:\n")
	if !ours || !strings.HasPrefix(notice, "duration: ") {
		return s, false, nil
	}
	if err := json.Unmarshal([]byte(plan), &s); err != nil {
		return s, true, fmt.Errorf("read plan: %w", err)
	}
	return s, true, nil
}

// each visits a node and all below it.
func (n *node) each(visit func(*node)) {
	visit(n)
	for i := range n.Plans {
		n.Plans[i].each(visit)
	}
}

// scans tells whether a node reads rows of the table. A bitmap's index scan has no relation, its heap scan has.
func (n *node) scans() bool { return n.Relation == table && strings.HasSuffix(n.Type, "Scan") }

// reads tells whether a scan of the table is somewhere below the node.
func (n *node) reads() (found bool) {
	n.each(func(n *node) { found = found || n.scans() })
	return found
}

func (n *node) has(kind string) (found bool) {
	n.each(func(n *node) { found = found || n.Type == kind })
	return found
}

// touched is how many of the table's rows the scans below a node looked at.
func (n *node) touched() (rows float64) {
	n.each(func(n *node) {
		if n.scans() {
			rows += (n.Rows + n.Filtered + n.Rechecked) * n.Loops
		}
	})
	return rows
}

// sorted is how many rows went into the largest sort.
func (n *node) sorted() (rows float64) {
	n.each(func(n *node) {
		if strings.HasSuffix(n.Type, "Sort") {
			for _, input := range n.Plans {
				rows = max(rows, input.Rows)
			}
		}
	})
	return rows
}

// pages is how many pages a plan touched, found in the cache or not, but for those it touched to write new versions
// of rows: how many these are depends on the room that is left on the old ones' pages.
func (n *node) pages() float64 {
	pages := n.Hit + n.Read
	n.each(func(n *node) {
		if n.Type == "ModifyTable" {
			pages -= n.writing()
		}
	})
	return pages
}

// writing is how many pages a ModifyTable touched itself.
func (n *node) writing() float64 {
	pages := n.Hit + n.Read
	for _, input := range n.Plans {
		pages -= input.Hit + input.Read
	}
	return pages
}

// What a statement does to the table.
const (
	reading = "read"
	locking = "lock"
	writing = "write"
)

func (s *statement) kind() string {
	switch {
	case s.Plan.has("ModifyTable"):
		return writing
	case s.Plan.has("LockRows"):
		return locking
	default:
		return reading
	}
}

// tree draws a plan, one step a line: a fault is of use only where it can be seen.
func (n *node) tree(indent string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s%s %s%s: %.0f rows", indent, n.Type, n.Relation, strings.TrimSuffix(" by "+n.Index, " by "), n.Rows)
	if n.Loops != 1 {
		fmt.Fprintf(&out, " each of %.0f times", n.Loops)
	}
	if dropped := n.Filtered + n.Rechecked; dropped > 0 {
		fmt.Fprintf(&out, ", %.0f dropped", dropped)
	}
	fmt.Fprintf(&out, ", %.0f pages", n.Hit+n.Read)
	if n.Condition != "" {
		fmt.Fprintf(&out, ", where %s", n.Condition)
	}
	out.WriteString("\n")
	for i := range n.Plans {
		out.WriteString(n.Plans[i].tree(indent + "  "))
	}
	return out.String()
}
