package outbox

import (
	"context"
	"log/slog"
	"time"
)

// begin gives a row its turn.
func (p *pass) begin(ctx context.Context, r *row) {
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
	case p.circuits.isOpen(route.Destination) && !r.probe: // it was on its way from the store when the circuit opened
		p.release([]*row{r}, p.outDelay())
		p.endLane(r.lane)
	case !p.budget.fits(route.Timeout, p.budget.soft) || !p.budget.fits(route.Timeout, r.leaseEnd):
		p.setAside(append([]*row{r}, p.lanes.take(r.lane)...))
	default:
		p.seen[r.event.ID] = true
		p.lanes.setBusy(r.lane, true)
		p.running++
		p.start(ctx, r, route)
	}
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
	r.timer.Stop()
	p.running--
	route := p.registry[r.event.Type]
	if h.abandoned {
		p.report.log(ctx, slog.LevelError, "handler_abandoned", slog.StringValue(r.event.ID))
	}
	if h.panicked != "" {
		p.report.log(ctx, slog.LevelError, "handler_panic", slog.GroupValue(
			slog.String("eventId", r.event.ID), slog.String("eventType", r.event.Type), slog.String("panic", h.panicked)))
	}
	s, benign, opened := p.judge(ctx, h, route)
	p.unsettled = append(p.unsettled, entry{row: r, settlement: p.addressed(r, s), benign: benign})
	switch {
	case opened:
		p.flush(ctx) // the outcome is a call of its own before the break's release
		p.breakCircuit(r.lane, route.Destination)
	case s.Outcome != Processed:
		p.endLane(r.lane)
	}
	p.lanes.setBusy(r.lane, false)
}

// breakCircuit hands back the rows of a destination that is out; the rest of their lanes, and of the lane where it
// showed, follows without delay. When every destination is out, the pass is over and all rows wait.
func (p *pass) breakCircuit(failed *lane, destination string) {
	p.ended = true
	for _, route := range p.registry {
		p.ended = p.ended && p.circuits.isOpen(route.Destination)
	}
	isOut := func(r *row) bool {
		route, routed := p.registry[r.event.Type]
		return p.ended || (routed && route.Destination == destination)
	}
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
	p.release(append(out, waiting...), p.outDelay())
	p.release(append(rest, p.lanes.take(failed)...), 0)
	failed.ended = true
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
		p.closed[r.lane.key] = true
	}
}
