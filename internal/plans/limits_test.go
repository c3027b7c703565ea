package plans

// Limits are some twice what was measured at 20,000 rows; a bad plan costs ten times as much, or the whole backlog.

// claims are the limits of one statement in a claim of 100.
func (s shape) claims() limits {
	switch s.name {
	case "thaw": // a thousand delayed rows are read, and the aggregates of all of them
		return limits{pages: 8000, rows: 4500, sorted: 2200}
	case "spent": // the same, all blocked but those that are discarded
		return limits{pages: 14000, rows: 4500, sorted: 2200}
	case "hot": // ten thousand rows are read at most, of one aggregate
		return limits{pages: 8000, rows: 20000, sorted: 2000}
	case "blocked": // ten thousand rows are read at most, of a tenth as many aggregates; by the contract's claim, which has no cursor, all
		return limits{pages: 16000, rows: 24000, sorted: 2000}
	case "shared": // rows of others within our aggregates are looked at one by one, however many there are
		deep := float64(*size) / 1000
		return limits{pages: 1500 + 150*deep, rows: 300 + 150*deep, sorted: 250}
	default:
		return limits{pages: 1500, rows: 300, sorted: 250}
	}
}

// large are the limits of one statement in a call that may look at 10,000 rows of each type.
func (s shape) large() limits {
	switch s.name {
	case "foreign", "shared": // five types
		return limits{pages: 60000, rows: 60000, sorted: 1000}
	case "blocked": // 10,000, and one more in each of a thousand aggregates
		return limits{pages: 20000, rows: 18000, sorted: 3000}
	default:
		return limits{pages: 20000, rows: 15000, sorted: 3000}
	}
}

// tells is the same whatever the history.
func (shape) tells() limits { return limits{pages: 1500, rows: 500, sorted: 200} }
