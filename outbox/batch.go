package outbox

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"
)

// gatherTime is how long an outcome waits for others at most: a settle call costs more than that.
const gatherTime = time.Millisecond

// batch delivers what one claim returned: a single loop owns all its state, and hears from the handlers and from the
// one settle call in flight by channels. Outcomes that come while a settle is under way go together with the next.
type batch struct {
	*pass
	leaseEnd time.Duration // by the pass's clock
	queue    []*row        // not started, oldest first
	aside    []*row        // not started for want of time
	running  int           // handlers
	ended    bool          // every destination is out: nothing more is started
	done     []string      // events confirmed processed or discarded

	unsettled []entry
	settling  bool
	failure   error // of the store

	handled chan handled
	settled chan settled
	over    chan struct{} // closed at the end: nobody listens any more
}

// row is one claimed event on its way.
type row struct {
	event Event
	token string
	lane  *lane
	timer *time.Timer // abandons the handler
	back  bool        // the handler returned, or was abandoned
}

// lane is the rows of one aggregate in a batch: they run one after the other.
type lane struct{ busy bool }

// entry is a settlement under way.
type entry struct {
	row        *row
	settlement Settlement
	benign     bool
}

type settled struct {
	entries []entry
	answers []Answer
	err     error
}

func newBatch(p *pass, events []Event, leaseEnd time.Duration) *batch {
	b := &batch{
		pass: p, leaseEnd: leaseEnd,
		handled: make(chan handled), settled: make(chan settled), over: make(chan struct{}),
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(x, y Event) int { return cmp.Compare(x.Position, y.Position) })
	lanes := map[aggregate]*lane{}
	for _, event := range events {
		key := aggregate{event.AggregateType, event.AggregateID}
		if lanes[key] == nil {
			lanes[key] = &lane{}
		}
		b.queue = append(b.queue, &row{event: event, token: event.ClaimToken(), lane: lanes[key]})
	}
	return b
}

func (b *batch) run(ctx context.Context) error {
	defer close(b.over)
	for {
		b.startRows(ctx)
		b.flush(ctx)
		if b.running == 0 && !b.settling {
			break
		}
		select {
		case h := <-b.handled:
			b.returned(ctx, h)
			b.gather(ctx)
		case s := <-b.settled:
			b.answered(ctx, s)
		}
	}
	return b.finish(ctx)
}

// gather takes the handlers that return within the next moment too, so that their outcomes share one settle call.
func (b *batch) gather(ctx context.Context) {
	if b.settling {
		return // what returns meanwhile shares the next call anyway
	}
	moment := time.NewTimer(gatherTime)
	defer moment.Stop()
	for b.startRows(ctx); b.running > 0; b.startRows(ctx) {
		select {
		case h := <-b.handled:
			b.returned(ctx, h)
		case <-moment.C:
			return
		}
	}
}

// finish hands back what was not started, and what a failing store did not take at first. Events confirmed done are
// forgotten only now: a store that claims one twice in a batch must not make it run twice.
func (b *batch) finish(ctx context.Context) error {
	b.release(append(b.aside, b.queue...), 0)
	b.aside, b.queue = nil, nil
	if len(b.unsettled) > 0 {
		entries := b.unsettled
		b.unsettled = nil
		b.answered(ctx, b.settleNow(ctx, entries))
	}
	for _, id := range b.done {
		delete(b.seen, id)
	}
	if b.failure != nil {
		return &StoreError{Op: "settle", Err: b.failure}
	}
	return nil
}

// mayStart tells whether a slot is free. With one slot a row's acknowledgement belongs to its turn.
func (b *batch) mayStart(ctx context.Context) bool {
	if b.ended || b.failure != nil || ctx.Err() != nil || b.running >= b.config.Concurrency {
		return false
	}
	return b.config.Concurrency > 1 || (!b.settling && len(b.unsettled) == 0)
}

func (b *batch) startRows(ctx context.Context) {
	for b.mayStart(ctx) {
		i := slices.IndexFunc(b.queue, func(r *row) bool { return !r.lane.busy })
		if i < 0 {
			return
		}
		next := b.queue[i]
		b.queue = slices.Delete(b.queue, i, i+1)
		b.begin(ctx, next)
	}
}

// begin gives a row its turn.
func (b *batch) begin(ctx context.Context, r *row) {
	route, routed := b.registry[r.event.Type]
	switch {
	case r.token == "":
		b.loseLease(ctx, r, slog.LevelError, "missing_claim_token")
		b.endLane(r.lane)
	case b.seen[r.event.ID]:
		b.counts.DuplicateInRun++
		b.count(r.event.Type, func(c *TypeCounts) { c.DuplicateInRun++ })
		b.release([]*row{r}, b.config.BackoffBase)
		b.endLane(r.lane)
	case !routed:
		b.add(r, Settlement{Outcome: Retry, Reason: ReasonHandlerMissing})
		b.endLane(r.lane)
	case !b.budget.fits(route.Timeout, b.budget.soft) || !b.budget.fits(route.Timeout, b.leaseEnd):
		b.aside = append(append(b.aside, r), b.takeLane(r.lane)...)
	default:
		b.seen[r.event.ID] = true
		r.lane.busy = true
		b.running++
		b.start(ctx, r, route)
	}
}

// returned takes what became of a handler.
func (b *batch) returned(ctx context.Context, h handled) {
	r := h.row
	if r.back {
		return // abandoned before
	}
	r.back = true
	r.timer.Stop()
	r.lane.busy = false
	b.running--
	route := b.registry[r.event.Type]
	if h.abandoned {
		b.report.log(ctx, slog.LevelError, "handler_abandoned", slog.StringValue(r.event.ID))
	}
	if h.panicked != "" {
		b.report.log(ctx, slog.LevelError, "handler_panic", slog.GroupValue(
			slog.String("eventId", r.event.ID), slog.String("eventType", r.event.Type), slog.String("panic", h.panicked)))
	}
	s, benign, opened := b.judge(ctx, h, route)
	b.unsettled = append(b.unsettled, entry{row: r, settlement: b.addressed(r, s), benign: benign})
	switch {
	case opened:
		b.flush(ctx) // the outcome is a call of its own before the break's release
		b.breakCircuit(r.lane, route.Destination)
	case s.Outcome != Processed:
		b.endLane(r.lane)
	}
}

// breakCircuit hands back the rows of a destination that is out; the rest of their lanes, and of the lane where it
// showed, follows without delay. When every destination is out, the pass is over and all rows wait.
func (b *batch) breakCircuit(failed *lane, destination string) {
	b.ended = true
	for _, route := range b.registry {
		b.ended = b.ended && b.circuits.isOpen(route.Destination)
	}
	waiting := append(slices.Clone(b.aside), b.queue...)
	lost := map[*lane]bool{failed: true}
	var out, rest []*row
	for _, r := range waiting {
		route, routed := b.registry[r.event.Type]
		switch {
		case b.ended || (routed && route.Destination == destination):
			out = append(out, r)
			lost[r.lane] = true
		case lost[r.lane]:
			rest = append(rest, r)
		}
	}
	gone := func(r *row) bool { return slices.Contains(out, r) || slices.Contains(rest, r) }
	b.aside = slices.DeleteFunc(b.aside, gone)
	b.queue = slices.DeleteFunc(b.queue, gone)
	b.release(out, b.config.Snooze)
	b.release(rest, 0)
}

// takeLane removes a lane's rows from the queue.
func (b *batch) takeLane(l *lane) []*row {
	var rows []*row
	b.queue = slices.DeleteFunc(b.queue, func(r *row) bool {
		if r.lane != l {
			return false
		}
		rows = append(rows, r)
		return true
	})
	return rows
}

// endLane hands back the rows behind one that was not delivered.
func (b *batch) endLane(l *lane) { b.release(b.takeLane(l), 0) }

// release hands rows back untried. Rows without a token can't be.
func (b *batch) release(rows []*row, delay time.Duration) {
	for _, r := range rows {
		if r.token != "" {
			b.add(r, Settlement{Outcome: Released, Delay: delay})
		}
	}
}

func (b *batch) add(r *row, s Settlement) {
	b.unsettled = append(b.unsettled, entry{row: r, settlement: b.addressed(r, s)})
}

func (b *batch) addressed(r *row, s Settlement) Settlement {
	s.EventID, s.ClaimToken = r.event.ID, r.token
	return s
}
