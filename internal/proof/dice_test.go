package proof_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// dice decides what a step is. The same seed on the same rows makes the same step.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 4))} }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

func eventTypes() []string { return []string{"a", "b", "c", "d"} }

func aggregate(n int) outbox.Aggregate {
	return outbox.Aggregate{Type: "order", ID: fmt.Sprintf("0000000a-0000-4000-8000-%012d", n)}
}

// caller draws which types a reader claims, knows and holds: often all, so that rows meet.
func (d dice) caller(s shape) outbox.ClaimRequest {
	var req outbox.ClaimRequest
	own := 1 + d.IntN(s.types)
	if d.chance(40) {
		own = s.types
	}
	order := append(d.Perm(s.types), s.types, s.types+1, s.types+2)[:len(eventTypes())] // those that there are come first
	if d.chance(10) {
		order = d.Perm(len(eventTypes()))
	}
	for i, at := range order {
		name := eventTypes()[at%len(eventTypes())]
		switch {
		case i < own:
			req.EventTypes = append(req.EventTypes, name)
		case d.chance(40):
			req.KnownTypes = append(req.KnownTypes, name)
		case d.chance(20):
			req.HeldTypes = append(req.HeldTypes, name)
		}
	}
	if d.chance(5) { // held wins over claimed, and over known
		req.HeldTypes = append(req.HeldTypes, pick(d, eventTypes()...))
	}
	return req
}

// sizes draws the numbers of a claim.
func (d dice) sizes(req *outbox.ClaimRequest) {
	req.BatchSize = pick(d, 0, 1, 1, 2, 3, 5, 10, 25, 1000, -1, 2000)
	req.LaneDepth = pick(d, 0, 1, 1, 2, 3, 10, 25, 1000, -1, 2000)
	req.Visibility = pick(d, 0, time.Second, 5*time.Minute, 301*time.Second, time.Hour, 2*time.Hour)
	req.MaxAttempts = pick(d, 0, 0, 20, 20, 1, 2, 3, -1, 30)
}

func (d dice) aggregates(s shape) []outbox.Aggregate {
	var list []outbox.Aggregate
	for range 1 + d.IntN(3) {
		list = append(list, aggregate(d.IntN(s.lanes+1)))
	}
	return list
}

// moment is due or not, by a lot or just so.
func (d dice) moment(now micros) micros {
	return pick(d, now, now, now-1, now+1, now-3600*second, now+60*second, now+600*second, now+3600*second, math.MinInt64)
}

func (d dice) attempts() int { return pick(d, 0, 0, 1, 1, 2, 3, 7, 8, 19, 20, 25) }

// rows are what one producer's transaction inserts: mostly fresh, some put off, some as history left them.
func (d dice) rows(h *history) []row {
	n := 1 + d.IntN(4)
	if h.shape.rows > 100 && d.chance(20) {
		n = 40
	}
	rows := make([]row, 0, n)
	late, one := d.chance(h.shape.late), aggregate(h.last%h.shape.lanes)
	for i := range n {
		r := row{
			aggregate: aggregate(d.IntN(h.shape.lanes)), eventType: eventTypes()[d.IntN(h.shape.types)], status: "pending",
			created: h.model.now - pick(d, 0, 0, 1, second, 3600*second, -3600*second),
		}
		r.available = max(r.created, h.model.now)
		if d.chance(70) {
			r.created, r.available = h.model.now, h.model.now
		}
		if d.chance(15) {
			r.available = d.moment(h.model.now)
		}
		if d.chance(15) {
			r.status = pick(d, "failed", "failed", "processing", "processed", "discarded")
			r.attempts, r.available = d.attempts(), d.moment(h.model.now)
		}
		if late { // a lane behind a row that waits
			r.aggregate, r.status, r.created, r.available = one, "pending", h.model.now, h.model.now
			if i == 0 {
				r.attempts = pick(d, 0, 0, 25)
				r.available += pick(d, 20*second, 600*second, 3600*second)
			}
		}
		if d.chance(20) {
			r.meta.Kept = 1 + d.IntN(3)
		}
		r.id, _ = h.number()
		rows = append(rows, r)
	}
	return rows
}

// settlements draws a batch of outcomes.
func (d dice) settlements(h *history) []outbox.Settlement {
	batch := []outbox.Settlement{}
	for range pick(d, 0, 1, 1, 2, 3, 6) {
		s := d.settlement(h)
		batch = append(batch, s)
		if d.chance(15) {
			d.outcome(&s)
			batch = append(batch, s)
		}
	}
	return batch
}

// settlement draws one: mostly of a claim that holds, often of one that does not any more.
func (d dice) settlement(h *history) outbox.Settlement {
	s := outbox.Settlement{EventID: "00000000-0000-4000-8000-999999999999", ClaimToken: "00000000-0000-4000-8000-999999999999"}
	if n := len(h.held); n > 0 && d.chance(95) {
		s = h.held[d.IntN(n)]
		for try := 0; try < 8 && d.chance(85); try++ {
			if r := h.model.find(s.EventID); r != nil && r.status == "processing" && r.meta.Token == s.ClaimToken {
				break
			}
			s = h.held[d.IntN(n)]
		}
	}
	if d.chance(3) {
		s.ClaimToken = pick(d, "", "x", h.model.rowToken(d))
	}
	d.outcome(&s)
	return s
}

// rowToken is a token of some row's.
func (m *model) rowToken(d dice) string {
	if len(m.rows) == 0 {
		return ""
	}
	return pick(d, m.rows...).meta.Token
}

func (d dice) outcome(s *outbox.Settlement) {
	s.Outcome = pick(d, outbox.Processed, outbox.Processed, outbox.Retry, outbox.Retry, outbox.Released, outbox.Snoozed,
		outbox.Discarded, "unknown")
	s.Reason, s.Detail, s.Delay, s.Uncharged = "", nil, 0, false
	switch s.Outcome {
	case outbox.Processed:
		if d.chance(30) {
			s.Detail = json.RawMessage(fmt.Sprintf(`{"receipt": %d, "claimToken": "stolen", "snoozeCount": 99}`, receipt))
		}
	case outbox.Snoozed, outbox.Released:
		s.Delay = seconds(pick(d, 0, 1, 59, 60, 300, 3600, 4000))
		s.Reason, s.Uncharged = pick(d, "", "down"), d.chance(30)
	default:
		s.Reason = pick(d, "refused", "")
	}
}

func (d dice) backoff() outbox.Backoff {
	return outbox.Backoff{
		Base:        seconds(pick(d, 0, 1, 5, 60, 3600, 4000)),
		Cap:         seconds(pick(d, 0, 1, 60, 600, 86400, 90000)),
		MaxAttempts: pick(d, 0, 0, 1, 2, 3, 20, 30),
	}
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
