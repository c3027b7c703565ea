package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// mayRun tells whether a row whose turn it is goes to its handler. If not, it has been settled otherwise.
func (p *pass) mayRun(ctx context.Context, r *row) bool {
	route, routed := p.registry[r.event.Type]
	switch {
	case r.token == "":
		p.loseLease(ctx, r, slog.LevelError, "missing_claim_token")
		p.endLane(r.lane)
		p.close(r)
	case p.seen[r.event.ID]:
		p.counts.DuplicateInRun++
		p.count(r.event.Type, func(c *TypeCounts) { c.DuplicateInRun++ })
		p.release([]*row{r}, p.config.BackoffBase)
		p.endLane(r.lane)
	case !routed:
		p.add(r, Settlement{Outcome: Retry, Reason: ReasonHandlerMissing})
		p.endLane(r.lane)
	case p.isAged(r, route): // also where its circuit is open: there it would wait for ever
		p.add(r, Settlement{Outcome: Discarded, Reason: fmt.Sprintf("%s: older than %v", ReasonMaxAge, route.MaxAge)})
		p.endLane(r.lane)
	case p.circuits.isOpen(r.circuit) && !slices.Contains(r.probes, r.circuit): // it was on its way when the circuit opened
		p.circuits.probes = append(p.circuits.probes, r.probes...) // another row is to show whether the destination is back
		r.probes = nil
		p.putBack([]*row{r})
		p.endLane(r.lane)
	case !p.budget.fits(route.Timeout, min(p.budget.soft, r.leaseEnd)):
		p.setAside(append([]*row{r}, p.lanes.take(r.lane)...))
	default:
		return true
	}
	p.circuits.unprobed(r.probes...)
	return false
}

// isAged tells whether an event is not worth delivering any more. Its age at the claim is the store's; what came since is
// measured here.
func (p *pass) isAged(r *row, route Route) bool {
	return route.MaxAge > 0 && r.event.Age+p.budget.elapsed()-(r.leaseEnd-p.lease) > route.MaxAge
}

// setAside keeps rows that were not started for want of time. With one slot they go back together, when no other row
// is left; otherwise at once.
func (p *pass) setAside(rows []*row) {
	if p.config.Concurrency > 1 {
		p.release(rows, 0)
		return
	}
	p.aside = append(p.aside, rows...)
}

// returned takes what became of a handler.
func (p *pass) returned(ctx context.Context, h handled) {
	r := h.row
	if r.back {
		return // abandoned before
	}
	r.back = true
	r.call.answered(p)
	if h.abandoned {
		p.report.log(ctx, slog.LevelError, "handler_abandoned", slog.StringValue(r.event.ID))
	}
	if h.panicked != "" {
		p.report.log(ctx, slog.LevelError, "handler_panic", slog.GroupValue(
			slog.String("eventId", r.event.ID), slog.String("eventType", r.event.Type), slog.String("panic", h.panicked)))
	}
	s, benign, opened := p.judge(ctx, h)
	p.unsettled = append(p.unsettled, entry{row: r, settlement: p.addressed(r, s), benign: benign})
	switch {
	case opened:
		p.flush(ctx) // the outcome is a call of its own before the break's release
		p.breakCircuit(r.lane, r.circuit)
	case s.Outcome != Processed:
		p.endLane(r.lane)
	}
	p.lanes.setBusy(r.lane, false)
}

// breakCircuit hands back the rows of a destination that is out; the rest of their lanes, and of the lane where it
// showed, follows without delay. When every destination is out, the pass is over and all rows wait.
func (p *pass) breakCircuit(failed *lane, key string) {
	p.ended = true
	for _, route := range p.registry {
		p.ended = p.ended && route.Part == nil && p.circuits.isOpen(route.Destination)
	}
	isOut := func(r *row) bool { return p.ended || r.circuit == key }
	var out, stay []*row
	for _, r := range p.aside {
		if isOut(r) {
			out = append(out, r)
		} else {
			stay = append(stay, r)
		}
	}
	p.aside = stay
	waiting, rest := p.lanes.takeIf(isOut)
	p.putBack(append(out, waiting...))
	p.release(append(rest, p.lanes.take(failed)...), 0)
	failed.ended = true
}

// putBack hands back rows of places that are out. Where only a part of the destination is, its rows can't be left out of
// claims: they are snoozed, uncharged, for as long as the place is sure to be out.
func (p *pass) putBack(rows []*row) {
	for _, r := range rows {
		route := p.registry[r.event.Type]
		if route.Part == nil || r.token == "" || !p.circuits.isOpen(r.circuit) {
			p.release([]*row{r}, p.outDelay())
			continue
		}
		p.add(r, Settlement{
			Outcome: Snoozed, Uncharged: true, Delay: p.circuits.waitOf(r.circuit, p.config.Snooze),
			Reason: ReasonCircuitOpen + ": " + r.circuit,
		})
	}
}

// outDelay is how long rows of a destination that is out wait. Where the store remembers the circuit they need not wait
// by themselves.
func (p *pass) outDelay() time.Duration {
	if p.circuits.store != nil {
		return 0
	}
	return p.config.Snooze
}

// endLane hands back the rows behind one that was not delivered.
func (p *pass) endLane(l *lane) {
	l.ended = true
	p.release(p.lanes.take(l), 0)
}

// release hands rows back untried. Rows without a token can't be.
func (p *pass) release(rows []*row, delay time.Duration) {
	for _, r := range rows {
		p.circuits.unprobed(r.probes...)
		if r.token != "" {
			p.add(r, Settlement{Outcome: Released, Delay: delay})
		} else {
			p.close(r)
		}
	}
}

func (p *pass) add(r *row, s Settlement) {
	p.unsettled = append(p.unsettled, entry{row: r, settlement: p.addressed(r, s)})
}

func (p *pass) addressed(r *row, s Settlement) Settlement {
	s.EventID, s.ClaimToken = r.event.ID, r.token
	return s
}

// close ends what the pass knows of a row.
func (p *pass) close(r *row) {
	p.open--
	p.openBytes -= len(r.event.Payload)
	p.cycle.settled = true
	if !p.lanes.close(r) || r.lane.ended {
		return
	}
	if r.lane.more {
		p.revisit = append(p.revisit, r.lane.key)
	} else if p.claiming {
		p.closed = append(p.closed, r.lane)
	}
}
