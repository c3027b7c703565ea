package plans

import "fmt"

// limits of one execution of a statement. Buffers and rows repeat on a busy machine; times do not.
type limits struct {
	pages  float64 // touched to find rows
	rows   float64 // of the table, looked at
	sorted float64 // in one sort
}

// Writing a row touches its pages in the table and the way down each index; finding room for new ones costs some more.
const (
	pagesPerRow = 40
	pagesOfRoom = 200
)

// faults says what is wrong with a statement: with the form of its plan, whatever the table's size, and with its cost.
func (s *statement) faults(most limits) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	s.Plan.each(func(n *node) {
		switch n.Type {
		case "Seq Scan", "Sample Scan":
			if n.Relation == table {
				fault("%s of %s", n.Type, table)
			}
		case "Bitmap Heap Scan", "Bitmap Index Scan":
			fault("%s of %s%s", n.Type, n.Relation, n.Index)
		case "Hash Join", "Merge Join":
			if n.reads() {
				fault("%s over rows of %s", n.Type, table)
			}
		case "Gather", "Gather Merge":
			fault("%s: workers are started", n.Type)
		case "Index Scan", "Index Only Scan":
			// One row off its end is how an index gives its first value.
			if n.Index == "outbox_events_event_type_idempotency_key_key" {
				fault("%s of %s, which holds the history", n.Type, n.Index)
			}
			if n.scans() && n.Condition == "" && n.Rows+n.Filtered > 1 {
				fault("%s of the whole of %s", n.Type, n.Index)
			}
		case "ModifyTable":
			// Without "returning" it says nothing of rows; what it got does.
			var rows float64
			for _, input := range n.Plans {
				rows += input.Rows
			}
			if got, most := n.writing(), pagesOfRoom+pagesPerRow*rows; got > most {
				fault("%.0f pages touched to write %.0f rows, at most %.0f go", got, rows, most)
			}
		}
	})
	above := func(what string, got, most float64) {
		if got > most {
			fault("%.0f %s, at most %.0f go", got, what, most)
		}
	}
	above("rows in one sort", s.Plan.sorted(), most.sorted)
	above("rows looked at", s.Plan.touched(), most.rows)
	above("pages touched", s.Plan.pages(), most.pages)
	return faults
}
