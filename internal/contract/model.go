// Package contract holds a second, deliberately plain implementation of the rail's SQL protocol, version 1.
//
// The model keeps both tables in memory and answers the four functions by walking every row. It was written
// from the text of the contract without sight of the SQL, so that the package's tests can run both side by
// side and compare every column of every row after every call. Nothing in the product imports it.
//
// Maturity: internal, for tests.
package contract

import (
	"slices"
	"strings"
)

// Row is one row of outbox_events. Times are microseconds since 1970; the infinities are the ends of int64.
type Row struct {
	ID            string
	Position      int64
	CreatedAt     int64
	AvailableAt   int64
	ProcessedAt   *int64
	AggregateType string
	AggregateID   string
	EventType     string
	Key           string
	Status        string
	Attempts      int64
	Payload       string // as PostgreSQL writes the jsonb
	Error         *string
	Metadata      Document
}

// Clock is the time of the transaction that makes the call.
type Clock struct {
	Now  int64  // microseconds since 1970
	Text string // the same instant as jsonb writes a timestamptz in that session
}

// Fault is an error that the contract fixes: a caller may branch on either part.
type Fault struct {
	Code    string // SQLSTATE
	Message string
}

// List is an array argument. Null is the array being null; a nil item is a null element.
type List struct {
	Null  bool
	Items []*string
	// Nested passes the elements as an array of arrays; only the elements count.
	Nested bool
}

// Model is the state of both tables. Rows stand in order of position, oldest first.
type Model struct {
	Rows    []*Row
	Dormant map[string]bool
	// Issued holds every claim token handed out so far: a fresh one is in none of them.
	Issued map[string]bool
	// Hits counts how often each clause of the contract decided something.
	Hits map[string]int
}

const (
	second       = int64(1_000_000)
	errorLimit   = 2000
	discardLimit = 100
	invalidCode  = "22023"
)

// ClaimArgs are the arguments of outbox_claim_batch; a nil number is null.
type ClaimArgs struct {
	Types, Known                   List
	Batch, Visibility, MaxAttempts *int64
}

// Claim is outbox_claim_batch. What chance decides (tokens) is taken from seen once it is found lawful.
func (m *Model) Claim(now Clock, args ClaimArgs, seen Observed) ([]Row, *Fault) {
	m.hitIf(args.Types.Null, "claim 1: allowlist null")
	m.hitIf(!args.Types.Null && len(args.Types.Items) == 0, "claim 1: allowlist empty")
	if args.Types.Null || len(args.Types.Items) == 0 {
		return nil, &Fault{invalidCode, "outbox_claim_allowlist_required"}
	}
	batch := m.clamp("claim 2: batch", args.Batch, 25, 1, 100)
	visibility := m.clamp("claim 2: visibility", args.Visibility, 300, 300, 3600)
	ceiling := m.clamp("claim 2: max attempts", args.MaxAttempts, 8, 1, 20)
	allowed, known := m.typeSets(args)

	spent := m.discardExhausted(now, allowed, ceiling)

	// Who is blocked is decided before the first row is claimed: one call, one picture.
	var picked []*Row
	for _, row := range m.Rows {
		if !allowed[row.EventType] || !unfinished(row) || row.AvailableAt > now.Now || row.Attempts >= ceiling {
			continue
		}
		if m.blocked(now, row, allowed, known, ceiling) {
			continue
		}
		if int64(len(picked)) == batch {
			m.hit("claim 6: batch full")
			break
		}
		m.notePicked(row, picked, spent)
		picked = append(picked, row)
	}
	out := make([]Row, 0, len(picked))
	for _, row := range picked {
		m.lease(now, row, visibility, seen)
		out = append(out, *row)
	}
	return out, nil
}

// typeSets are the types this caller claims and the types it knows, without nulls and blanks.
func (m *Model) typeSets(args ClaimArgs) (allowed, known map[string]bool) {
	allowed = m.typeSet("claim 3: allowlist", args.Types)
	known = m.typeSet("claim 3: known", args.Known)
	m.hitIf(args.Known.Null, "claim 3: known null")
	m.hitIf(len(allowed) == 0, "claim 1: allowlist of nulls and blanks only")
	for name := range allowed {
		known[name] = true
	}
	return allowed, known
}

func (m *Model) typeSet(clause string, list List) map[string]bool {
	set := map[string]bool{}
	m.hitIf(list.Nested, clause+" nested")
	for _, item := range list.Items {
		switch {
		case item == nil:
			m.hit(clause + " holds a null")
		case strings.Trim(*item, " ") == "":
			m.hit(clause + " holds a blank")
		default:
			m.hitIf(set[*item], clause+" holds a duplicate")
			set[*item] = true
		}
	}
	return set
}

// discardExhausted is step 4: the hundred oldest due rows at the ceiling, blocked or not.
func (m *Model) discardExhausted(now Clock, allowed map[string]bool, ceiling int64) map[*Row]bool {
	spent := map[*Row]bool{}
	for _, row := range m.Rows {
		if !allowed[row.EventType] || !unfinished(row) || row.Attempts < ceiling || row.AvailableAt > now.Now {
			continue
		}
		if len(spent) == discardLimit {
			m.hit("claim 4: hundred and first waits")
			break
		}
		old := ""
		if row.Error != nil {
			old = *row.Error
		}
		text := old + " | max_attempts_exhausted_at_claim"
		m.hitIf(old == "", "claim 4: no old error")
		m.hitIf(old != "", "claim 4: old error kept")
		m.hitIf(len([]rune(text)) > errorLimit, "claim 4: error cut")
		m.hitIf(row.Metadata.object() == nil, "claim 4: metadata no object")
		m.hit("claim 4: discards " + row.Status)
		row.Status = "discarded"
		row.Error = cut(&text)
		row.Metadata = row.Metadata.with(
			"discardReason", "max_attempts", "discardedAt", now.Text, "finalAttempts", number(row.Attempts))
		spent[row] = true
	}
	return spent
}

// blocked tells whether an older unfinished row of the same aggregate holds the row back.
func (m *Model) blocked(now Clock, row *Row, allowed, known map[string]bool, ceiling int64) bool {
	for _, prior := range m.Rows {
		if prior.Position >= row.Position || !sameAggregate(prior, row) || !unfinished(prior) {
			continue
		}
		own := allowed[prior.EventType]
		foreign := !known[prior.EventType] && !m.Dormant[prior.EventType]
		m.hitIf(!own && known[prior.EventType], "claim 5: a known prior does not block")
		m.hitIf(!own && !known[prior.EventType] && !foreign, "claim 5: a dormant prior does not block")
		if !own && !foreign {
			continue
		}
		m.hitIf(own && !m.Dormant[prior.EventType], "claim 5: an allowlisted prior blocks")
		m.hitIf(own && m.Dormant[prior.EventType], "claim 5: an allowlisted dormant prior blocks")
		m.hitIf(foreign, "claim 5: a foreign prior blocks")
		m.hitIf(prior.AvailableAt > now.Now, "claim 5: a prior that is not due blocks")
		m.hitIf(own && prior.Attempts >= ceiling, "claim 4: an exhausted prior left over blocks")
		m.hitIf(prior.CreatedAt > row.CreatedAt, "older: position against created_at")
		m.hit("claim 5: blocks while " + prior.Status)
		return true
	}
	return false
}

// notePicked records which clauses let the row through.
func (m *Model) notePicked(row *Row, picked []*Row, spent map[*Row]bool) {
	m.hit("claim 6: takes " + row.Status)
	m.hitIf(m.Dormant[row.EventType], "claim 5: dormant is still claimed")
	m.hitIf(row.Metadata.object() == nil, "claim 7: metadata no object")
	m.hitIf(row.Metadata.text("claimToken") != nil, "claim 7: an old token is replaced")
	m.hitIf(row.Error != nil, "claim 7: error stays")
	m.hitIf(row.ProcessedAt != nil, "claim 7: processed_at stays")
	for prior := range spent {
		m.hitIf(prior.Position < row.Position && sameAggregate(prior, row), "claim 4: frees its follower at once")
	}
	for _, other := range picked {
		m.hitIf(sameAggregate(other, row), "impossible: two rows of one aggregate")
	}
}

// lease is step 7.
func (m *Model) lease(now Clock, row *Row, visibility int64, seen Observed) {
	token := seen.token(row.ID, m.Issued)
	m.Issued[token] = true
	row.Status = "processing"
	row.Attempts++
	row.AvailableAt = now.Now + visibility*second
	row.Metadata = row.Metadata.with("lastClaimedAt", now.Text, "claimToken", token)
}

func unfinished(row *Row) bool {
	return slices.Contains([]string{"pending", "failed", "processing"}, row.Status)
}

func sameAggregate(a, b *Row) bool {
	return a.AggregateType == b.AggregateType && a.AggregateID == b.AggregateID
}

// clamp puts the default in the place of null, then holds the number inside its range.
func (m *Model) clamp(clause string, value *int64, byDefault, low, high int64) int64 {
	if value == nil {
		m.hit(clause + " null")
		return byDefault
	}
	m.hitIf(*value < low, clause+" below its range")
	m.hitIf(*value > high, clause+" above its range")
	return min(max(*value, low), high)
}

// cut keeps the first 2,000 characters; null stays null.
func cut(text *string) *string {
	if text == nil {
		return nil
	}
	runes := []rune(*text)
	short := string(runes[:min(len(runes), errorLimit)])
	return &short
}

func (m *Model) hit(clause string) { m.Hits[clause]++ }

func (m *Model) hitIf(condition bool, clause string) {
	if condition {
		m.hit(clause)
	}
}
