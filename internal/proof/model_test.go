// Package proof_test plays random histories on the stores, and compares every answer and every row with a plain model of
// what they promise: protocol and contract once more, as a list of rows and a few loops over it.
//
// What fails is made as short as it can and told step by step, under the seed that led there. "go test ./internal/proof -times 10
// -timeout 60m" plays ten times as much, -seed plays what was printed.
package proof_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// micros is a time: microseconds since 1970. The smallest value stands for -infinity.
type micros = int64

const second = micros(1_000_000)

// row is a row of the outbox as far as the rail may change it.
type row struct {
	id        string
	position  int64
	aggregate outbox.Aggregate
	eventType string
	status    string
	attempts  int
	created   micros
	available micros
	processed micros // 0: never
	reason    string // "" stands for null too
	meta      meta
}

// String tells a row in a line; times count from the start of the history, in seconds.
func (r row) String() string {
	since := func(at micros) float64 { return float64(at-start) / float64(second) }
	return fmt.Sprintf("%s at %d: %s of %s, %s after %d attempts, created %f, due %f, processed %f, error %q, %+v", r.id[24:],
		r.position, r.eventType, r.aggregate.ID[24:], r.status, r.attempts, since(r.created), since(r.available),
		since(r.processed), r.reason, r.meta)
}

// meta is the metadata: the rail's keys, one of the producer's, and one of a receipt.
type meta struct {
	Token       string `json:"claimToken"`
	ClaimedAt   stamp  `json:"lastClaimedAt"`
	Snoozes     int    `json:"snoozeCount"`
	SnoozedAt   stamp  `json:"lastSnoozedAt"`
	Discard     string `json:"discardReason"`
	DiscardedAt stamp  `json:"discardedAt"`
	Final       int    `json:"finalAttempts"`
	Kept        int    `json:"kept"`
	Receipt     int    `json:"receipt"`
}

// stamp is a time as jsonb writes it.
type stamp micros

func (s *stamp) UnmarshalJSON(text []byte) error {
	at, err := time.Parse(`"2006-01-02T15:04:05.999999-07:00"`, string(text))
	*s = stamp(at.UnixMicro())
	return err
}

// model is the queue as it must be.
type model struct {
	now     micros
	rows    []*row // in order of position
	dormant map[string]bool
	tokens  map[string]bool // every one ever issued
	// touched are the rows that were written since somebody emptied it.
	touched map[*row]bool
	// changed is when rows of an aggregate were last written, and steps counts what happened.
	changed map[outbox.Aggregate]change
	steps   int
	// between are rows whose available_at chance decides: not before this, and at most as the row says.
	between map[*row]micros
}

type change struct {
	at   micros
	step int
}

func newModel(now micros) *model {
	return &model{
		now: now, dormant: map[string]bool{}, tokens: map[string]bool{},
		touched: map[*row]bool{}, changed: map[outbox.Aggregate]change{}, between: map[*row]micros{},
	}
}

func (m *model) add(rows ...row) {
	for _, r := range rows {
		m.rows = append(m.rows, &r)
		m.touch(&r)
	}
	slices.SortFunc(m.rows, func(a, b *row) int { return cmp.Compare(a.position, b.position) })
}

func (m *model) touch(r *row) {
	m.touched[r] = true
	m.changed[r.aggregate] = change{m.now, m.steps}
}

func (m *model) find(id string) *row {
	for _, r := range m.rows {
		if r.id == id {
			return r
		}
	}
	return nil
}

func (r row) unfinished() bool {
	return r.status == "pending" || r.status == "failed" || r.status == "processing"
}

func (m *model) due(r *row) bool { return r.available <= m.now }

// caller is who claims: which types it takes, and which don't block it.
type caller struct {
	types, known, held []string
	ceiling            int
}

func callerOf(req outbox.ClaimRequest) caller {
	return caller{req.EventTypes, req.KnownTypes, req.HeldTypes, clamped(req.MaxAttempts, 8, 1, 20)}
}

func (c caller) takes(eventType string) bool {
	return slices.Contains(c.types, eventType) && !slices.Contains(c.held, eventType)
}

// passes tells whether unfinished rows of that type let younger ones of their aggregate by.
func (m *model) passes(c caller, eventType string) bool {
	return !c.takes(eventType) && !slices.Contains(c.held, eventType) &&
		(slices.Contains(c.known, eventType) || m.dormant[eventType])
}

// discardSpent is what every claim begins with: the hundred oldest due rows at the ceiling are discarded.
func (m *model) discardSpent(c caller) {
	left := 100
	for _, r := range m.rows {
		if left > 0 && r.unfinished() && m.due(r) && c.takes(r.eventType) && r.attempts >= c.ceiling {
			r.reason += " | max_attempts_exhausted_at_claim"
			m.discard(r, "max_attempts")
			left--
		}
	}
}

func (m *model) discard(r *row, reason string) {
	r.status = "discarded"
	r.meta.Discard, r.meta.DiscardedAt, r.meta.Final = reason, stamp(m.now), r.attempts
	m.touched[r] = true // but time did that, nobody else: a cursor must know
}

// lane is what a caller may have of one aggregate.
type lane struct {
	free []*row // its oldest rows, up to the first that may not be taken
	// lost is its oldest row, when nothing but a lease that ran out keeps it; leased, when somebody holds it.
	lost, leased *row
	waits        bool // a due row that the caller takes stands behind the one leased
}

// head is the oldest row when it is free.
func (l *lane) head() *row {
	if len(l.free) == 0 {
		return nil
	}
	return l.free[0]
}

// lanes looks at every aggregate. With expired, rows whose lease ran out are free like any other.
func (m *model) lanes(c caller, expired bool) map[outbox.Aggregate]*lane {
	lanes := map[outbox.Aggregate]*lane{}
	closed := map[outbox.Aggregate]bool{}
	for _, r := range m.rows {
		if !r.unfinished() || m.passes(c, r.eventType) {
			continue
		}
		l := lanes[r.aggregate]
		if closed[r.aggregate] {
			l.waits = l.waits || r.status != "processing" && c.takes(r.eventType) && m.due(r)
			continue
		}
		if l == nil {
			l = &lane{}
			lanes[r.aggregate] = l
		}
		takeable := c.takes(r.eventType) && m.due(r) && r.attempts < c.ceiling
		switch {
		case takeable && (expired || r.status != "processing"):
			l.free = append(l.free, r)
			continue
		case takeable && len(l.free) == 0:
			l.lost = r
		case r.status == "processing" && !m.due(r) && len(l.free) == 0:
			l.leased = r
		}
		closed[r.aggregate] = true
	}
	return lanes
}

// lease makes a claimed row's new state; token is what the claim answered.
func (m *model) lease(r *row, visibility int, token string) {
	m.tokens[token] = true
	m.touch(r)
	r.status = "processing"
	r.attempts++
	r.available = m.now + micros(visibility)*second
	r.meta.Token, r.meta.ClaimedAt = token, stamp(m.now)
}

// settle is one outcome.
func (m *model) settle(s outbox.Settlement, b outbox.Backoff) outbox.Answer {
	r := m.find(s.EventID)
	if r == nil || r.status != "processing" || s.ClaimToken == "" || r.meta.Token != s.ClaimToken {
		return outbox.Missed
	}
	delay := int(s.Delay / time.Second)
	switch s.Outcome {
	case outbox.Processed:
		r.status, r.processed, r.reason = "processed", m.now, ""
		if s.Detail != nil {
			r.meta.Receipt = receipt
		}
	case outbox.Released:
		r.status, r.attempts, r.available = "pending", max(r.attempts-1, 0), m.now+second*micros(clamped(delay, 0, 0, 3600))
	case outbox.Snoozed:
		r.status, r.attempts, r.available = "failed", max(r.attempts-1, 0), m.now+second*micros(clamped(delay, 300, 60, 3600))
		r.reason = s.Reason
		if !s.Uncharged {
			r.meta.Snoozes++
		}
		r.meta.SnoozedAt = stamp(m.now)
	case outbox.Discarded:
		r.reason = s.Reason
		m.discard(r, "permanent_error")
	case outbox.Retry:
		r.reason = s.Reason
		if r.attempts >= clamped(b.MaxAttempts, 8, 1, 20) {
			m.discard(r, "max_attempts")
			m.touch(r)
			return outbox.AnswerDiscarded
		}
		m.retry(r, b)
	default:
		return outbox.Missed
	}
	m.touch(r)
	return map[outbox.Outcome]outbox.Answer{
		outbox.Processed: outbox.AnswerProcessed, outbox.Released: outbox.AnswerReleased,
		outbox.Snoozed: outbox.AnswerSnoozed, outbox.Discarded: outbox.AnswerDiscarded, outbox.Retry: outbox.AnswerFailed,
	}[s.Outcome]
}

// retry waits the base, doubled per attempt after the first up to the cap; at least half of that.
func (m *model) retry(r *row, b outbox.Backoff) {
	base := clamped(int(b.Base/time.Second), 60, 5, 3600)
	longest := min(max(clamped(int(b.Cap/time.Second), 3600, -1<<30, 1<<30), base), 86400)
	delay := micros(min(base<<min(max(r.attempts-1, 0), 16), longest)) * second
	r.status, r.available = "failed", m.now+delay
	m.between[r] = m.now + delay/2
}

// receipt is what a detail leaves in the metadata.
const receipt = 7

// clamped puts a default in the place of zero, and holds n within its bounds.
func clamped(n, byDefault, low, high int) int {
	if n == 0 {
		n = byDefault
	}
	return min(max(n, low), high)
}

// differ says how rows of the store, all or some, differ from the model's; "" when they don't.
func (m *model) differ(got []row, all bool) string {
	var faults []string
	seen := map[string]bool{}
	for _, r := range got {
		want := m.find(r.id)
		if want == nil {
			faults = append(faults, fmt.Sprintf("one too many: %+v", r))
			continue
		}
		seen[r.id] = true
		if earliest, found := m.between[want]; found && r.available >= earliest && r.available <= want.available {
			want.available = r.available
			delete(m.between, want)
		}
		if r != *want {
			faults = append(faults, fmt.Sprintf("row:\n got %+v\nwant %+v", r, *want))
		}
	}
	for _, want := range m.rows {
		if !seen[want.id] && (all || m.touched[want]) {
			faults = append(faults, fmt.Sprintf("unchanged, or missing: %+v", *want))
		}
	}
	clear(m.between)
	return strings.Join(faults, "\n")
}
