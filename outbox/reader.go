package outbox

import (
	"context"
	"runtime"
	"slices"
	"time"
)

const (
	// pollInterval is how often a pass that lingers looks again.
	pollInterval = 20 * time.Millisecond
	// While events are in flight the queue is read again from its start, for what they blocked: for at most a fifth of
	// the time, and soon after an outcome was written, else less and less often.
	rereadShare       = 4
	rereadAfterSettle = 5 * time.Millisecond
	rereadFirst       = 100 * time.Millisecond
	rereadLast        = time.Second
	// maxOpenBytes of payloads stop reading ahead.
	maxOpenBytes = 32 << 20
	// maxLanes is how many lanes one claim is told to look at.
	maxLanes = 1000
	// readAhead is how many batches may be claimed and not answered, beside what calls hold.
	readAhead = 4
)

// reader knows what to claim next. The queue is read in cycles, each from its start to its end.
type reader struct {
	claiming bool
	cursor   string
	again    bool // the next claim begins at the start again
	outdated bool // the claim under way was sent for fewer types than there are now
	cycle    cycle
	revisit  []Aggregate // lanes that are done, and seem to have more in the store
	closed   []*lane     // lanes done since the claim under way was sent
	lost     []Aggregate // lanes whose oldest row's lease ran out
	// lostTurn says that a row of these comes before any other: it runs with nothing else in flight.
	lostTurn bool
	// lostProbe is a destination that is out and only has such rows to be probed with, those of lostOf.
	lostProbe string
	lostOf    []Aggregate
	alone     bool          // the rows in flight are such a row
	foundAt   time.Duration // when the last event was claimed
}

// cycle is one reading of the queue.
type cycle struct {
	begun   time.Duration
	idle    bool // nothing was in flight when it began
	found   bool // some event
	settled bool // some outcome, since it began
	ended   bool
	cost    time.Duration // of its claims
}

// claimed is the answer of one claim call.
type claimed struct {
	claim   Claim
	rows    []*row         // of the claim's events, oldest first
	parts   *circuitAnswer // the circuits of their places, when there are such
	recover bool
	probe   string        // the destination that the row is to probe; empty: none
	sent    time.Duration // before the call: the lease can't end earlier than by this count
	err     error
}

// read starts the next claim when there is room for its rows. It returns how long to wait before asking again; zero
// when only a message can change the answer, or nothing.
func (p *pass) read(ctx context.Context) time.Duration {
	if p.saturate() {
		p.beginAgain()
	}
	switch idle := p.open == 0; {
	case p.claiming || p.ended || p.failure != nil || ctx.Err() != nil || p.budget.left() <= 0:
		return 0
	case !idle && (p.alone || p.isLostTurn()):
		p.clearGates(ctx)
		return 0
	case p.lostProbe != "":
		p.probeNext(ctx, p.lostProbe, p.lostOf)
		p.lostProbe, p.lostOf = "", nil
		return 0
	case p.isLostTurn():
		p.claimNext(ctx, true)
		return 0
	case !p.hasRoom():
		return 0
	case len(p.circuits.probes) > 0:
		destination := p.circuits.probes[0]
		p.circuits.probes = p.circuits.probes[1:]
		p.probeNext(ctx, destination, nil)
		return 0
	}
	if p.cycle.ended && len(p.revisit) == 0 {
		wait, again := p.reread()
		if !again {
			return wait
		}
		p.again = true
		p.cycle = cycle{begun: p.budget.elapsed(), idle: p.open == 0}
	}
	p.claimNext(ctx, false)
	return 0
}

// isLostTurn tells that a lost row comes next, once nothing is in flight.
func (p *pass) isLostTurn() bool { return p.lostTurn && len(p.lost) > 0 || p.lostProbe != "" }

// hasRoom is the back-pressure: it keeps the handlers busy, and what is claimed ahead bounded.
func (p *pass) hasRoom() bool {
	if p.open == 0 {
		return true
	}
	idle := p.lanes.queues.Len() == 0 && p.running < p.config.Concurrency
	return p.mayReadAhead() && (p.lanes.waiting-p.gated <= p.config.BatchSize || idle)
}

// mayReadAhead bounds what is claimed and not answered, beside what calls hold and what waits for gates: else a few batches
// would end the reading that the next ones wait for, and a few slow destinations everybody's.
func (p *pass) mayReadAhead() bool {
	return p.config.Concurrency > 1 && p.openBytes < maxOpenBytes &&
		p.open-p.inCalls-p.gated < readAhead*p.config.BatchSize+p.config.Concurrency
}

// reread tells whether to read the queue again from its start, and if not, when to ask again; zero means never.
func (p *pass) reread() (wait time.Duration, again bool) {
	now := p.budget.elapsed()
	next := p.cycle.begun + rereadShare*p.cycle.cost
	switch {
	case p.open == 0 && (p.cycle.found || !p.cycle.idle):
		return 0, true
	case p.open == 0: // a whole cycle found nothing while nothing was in flight
		if now-p.foundAt >= p.config.Linger {
			return 0, false
		}
		next = max(next, p.cycle.begun+pollInterval)
	case p.cycle.settled:
		next = max(next, p.cycle.begun+rereadAfterSettle)
	default:
		next = max(next, p.cycle.begun+min(max(p.cycle.begun-p.foundAt, rereadFirst), rereadLast))
	}
	return min(max(next-now, 0), p.budget.left()), next <= now
}

// claimNext starts a claim: of one lost row, or of what comes next in the queue.
func (p *pass) claimNext(ctx context.Context, recoverOne bool) {
	claimable, held := p.types()
	if len(claimable) == 0 {
		return
	}
	req := ClaimRequest{
		EventTypes: claimable, KnownTypes: p.config.KnownTypes, HeldTypes: held,
		BatchSize: p.config.BatchSize, LaneDepth: p.config.LaneDepth,
		Visibility: p.config.Visibility, MaxAttempts: p.config.MaxAttempts,
		Cursor: p.cursor, Again: p.again, Recover: recoverOne,
	}
	if recoverOne {
		req.Cursor, req.Lanes, req.Again = "", p.lost, false
	} else {
		n := min(len(p.revisit), maxLanes)
		req.Lanes, p.revisit, p.again = p.revisit[:n:n], p.revisit[n:], false
	}
	p.send(ctx, req, claimed{recover: recoverOne})
}

// send makes the call.
func (p *pass) send(ctx context.Context, req ClaimRequest, c claimed) {
	p.claiming, p.outdated, p.closed = true, false, nil
	c.sent = p.budget.elapsed()
	go func() {
		c.claim, c.err = p.claim(ctx, req)
		p.prepare(ctx, c.claim.Events)
		c.rows = p.rowsOf(c.claim.Events, c.sent+p.lease)
		c.parts = p.askParts(ctx, c.rows)
		p.claimed <- c
	}()
	runtime.Gosched() // the call is to be on its way before a batch of handlers is started
}

// rowsOf makes rows of a claim's events, oldest first.
func (p *pass) rowsOf(events []Event, leaseEnd time.Duration) []*row {
	rows := make([]*row, 0, len(events))
	for _, event := range events {
		route := p.registry[event.Type]
		rows = append(rows, &row{
			event: event, token: event.ClaimToken(), leaseEnd: leaseEnd, circuit: route.circuit(event),
		})
	}
	slices.SortStableFunc(rows, byPosition)
	return rows
}

func (p *pass) claim(ctx context.Context, req ClaimRequest) (Claim, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.budget.statement(), errStoreLate)
	defer cancel()
	return p.config.Store.Claim(ctx, req)
}

// accept takes what a claim found.
func (p *pass) accept(ctx context.Context, c claimed) {
	p.claiming = false
	switch {
	case c.err != nil && ctx.Err() != nil:
		return // the invocation was cancelled: that ends the pass, and is no fault of the store
	case c.err != nil:
		p.failure = &StoreError{Op: opClaim, Err: c.err}
		return
	}
	p.alone = c.recover
	if c.probe == "" {
		p.turnPage(c)
	}
	if len(c.claim.Events) == 0 {
		switch {
		case c.probe == "":
		case len(c.claim.Lost) > 0 && !c.recover:
			p.lostProbe, p.lostOf = c.probe, c.claim.Lost
		default:
			p.circuits.unprobed(c.probe) // it has nothing to be probed with
		}
		return
	}
	p.foundAt = p.budget.elapsed()
	p.counts.Batches++
	p.counts.Claimed += len(c.claim.Events)
	p.report.observe("claimed", len(c.claim.Events))
	p.forget()
	p.heardParts(ctx, c.parts)
	for _, r := range c.rows {
		if c.probe != "" {
			r.probes = append(r.probes, c.probe) // to whichever part of the destination the row goes
		}
		if p.circuits.probedBy(r) {
			r.probes = append(r.probes, r.circuit)
		}
		p.open++
		p.openBytes += len(r.event.Payload)
		p.lanes.add(r)
	}
	if p.ended {
		p.release(p.lanes.takeAll(), p.config.Snooze)
	}
	p.read(ctx) // before anything else: claims follow each other, and a pass is as fast as they are
}

// beginAgain reads the queue from its start, without what the cursor knows of it: there are more types than before.
func (p *pass) beginAgain() {
	p.cursor, p.again, p.outdated = "", false, p.claiming
	p.cycle = cycle{begun: p.budget.elapsed(), idle: p.open == 0}
}

// turnPage notes where a claim came to. Lost rows and others take turns, so that neither can starve the other.
func (p *pass) turnPage(c claimed) {
	found := len(c.claim.Events) > 0
	if c.recover {
		p.lostTurn = false
		p.lost = slices.DeleteFunc(p.lost, func(a Aggregate) bool { return !found || a == c.claim.Events[0].Aggregate() })
		p.cycle.found = p.cycle.found || found
		return
	}
	p.lostTurn = true
	for _, a := range c.claim.Lost {
		if !slices.Contains(p.lost, a) {
			p.lost = append(p.lost, a)
		}
	}
	p.cycle.found = p.cycle.found || found
	if !p.cycle.ended { // what comes after the end is new rows and lanes by name
		p.cycle.cost += p.budget.elapsed() - c.sent
	}
	if !p.outdated {
		p.cursor, p.cycle.ended = c.claim.Cursor, p.cycle.ended || c.claim.End
	}
	if len(c.claim.Leased) == 0 {
		return
	}
	closed := map[Aggregate]bool{}
	for _, l := range p.closed {
		closed[l.key] = true
	}
	for _, a := range c.claim.Leased {
		if open := p.lanes.byAggregate[a]; open != nil {
			open.more = true
		} else if closed[a] && !slices.Contains(p.revisit, a) {
			p.revisit = append(p.revisit, a)
		}
	}
}

// forget drops events confirmed done: all when nothing is in flight, else those from before the last claim. Until then a
// store that claims an event twice must not make it run twice.
func (p *pass) forget() {
	for _, id := range p.done[1] {
		delete(p.seen, id)
	}
	p.done[1], p.done[0] = p.done[0], nil
	if p.open == 0 && len(p.done[1]) > 0 {
		p.forget()
	}
}
