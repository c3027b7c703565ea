package outbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// abandonAfter is how long past its timeout a handler that ignores its context is waited for.
const abandonAfter = 250 * time.Millisecond

var errHandlerTimeout = errors.New(ReasonHandlerTimeout)

// handled is what became of one handler. It is plain data: what a handler returned may panic when it is looked at.
type handled struct {
	row       *row
	detail    []byte // of the receipt
	refused   error  // why the receipt is not stored
	failed    bool
	beside    bool   // others of its batch were delivered: its own failure says nothing of the destination
	reason    string // the error's text, clean
	discard   *discardError
	snooze    *snoozeError
	cut       bool   // the error is the context's end
	timedOut  bool   // its own timeout passed
	abandoned bool   // it did not return
	panicked  string // what it panicked with, safe to log
}

// start has a call's handler run in a goroutine of its own. What happens first to a row, its answer or its abandonment,
// counts.
func (p *pass) start(ctx context.Context, c *call) {
	for _, r := range c.rows {
		r.call = c
	}
	c.timer = time.AfterFunc(c.route.Timeout+abandonAfter, func() {
		for _, r := range c.rows {
			p.tell(handled{row: r, failed: true, reason: ReasonHandlerTimeout, timedOut: true, abandoned: true})
		}
	})
	select {
	case p.calls <- c: // to a goroutine that waits
	default:
		go p.work(ctx, c)
	}
}

// work makes one call after the other. A new goroutine for each would have to grow its stack each time.
func (p *pass) work(ctx context.Context, c *call) {
	for {
		p.deliver(ctx, c)
		select {
		case c = <-p.calls:
		case <-p.over:
			return
		}
	}
}

func (p *pass) deliver(ctx context.Context, c *call) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.route.Timeout, errHandlerTimeout)
	defer cancel()
	var answers []handled
	defer func() {
		if answers == nil {
			answers = c.panicked("runtime.Goexit")
		}
		timedOut := errors.Is(context.Cause(ctx), errHandlerTimeout)
		for _, h := range answers {
			h.timedOut = timedOut
			p.tell(h)
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			answers = c.panicked(panicked(v))
		}
	}()
	answers = c.handle(ctx)
}

func (p *pass) tell(h handled) {
	select {
	case p.handled <- h:
	case <-p.over:
	}
}

// panicked answers every row of a call whose handler did.
func (c *call) panicked(with string) []handled {
	answers := make([]handled, len(c.rows))
	for i, r := range c.rows {
		answers[i] = handled{row: r, failed: true, reason: ReasonHandlerPanic, panicked: with}
	}
	return answers
}

// handle calls the handler, and answers every row.
func (c *call) handle(ctx context.Context) []handled {
	answers := make([]handled, len(c.rows))
	if len(c.rows) == 1 {
		receipt, err := c.route.Handler.Handle(ctx, c.rows[0].event)
		answers[0] = taken(c.rows[0], receipt, err)
		return answers
	}
	events := make([]Event, len(c.rows))
	for i, r := range c.rows {
		events[i] = r.event
	}
	deliveries := c.route.Handler.(BatchHandler).HandleBatch(ctx, events) //nolint:forcetypeassert // only it gets batches
	arrived := false
	for i, r := range c.rows {
		if i < len(deliveries) {
			answers[i] = taken(r, deliveries[i].Receipt, deliveries[i].Err)
			arrived = arrived || !answers[i].failed
		} else {
			answers[i] = handled{row: r, failed: true, reason: ReasonUnanswered}
		}
	}
	for i := range answers {
		answers[i].beside = arrived
	}
	return answers
}

// taken reads what a handler returned. A panic in the error's methods is the handler's own.
func taken(r *row, receipt Receipt, err error) (h handled) {
	defer func() {
		if v := recover(); v != nil {
			h = handled{row: r, failed: true, reason: ReasonHandlerPanic, panicked: panicked(v)}
		}
	}()
	if err != nil {
		return refused(r, err)
	}
	h.row = r
	h.detail, h.refused = cleanDetail(receipt)
	return h
}

// refused reads a handler's error.
func refused(r *row, err error) handled {
	h := handled{row: r, failed: true, reason: cleanText(err.Error())}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded, errHandlerTimeout} {
		h.cut = h.cut || errors.Is(err, end)
	}
	errors.As(err, &h.discard)
	errors.As(err, &h.snooze)
	return h
}

// judge turns what a handler answered into the row's outcome, and tells whether it opened the row's circuit.
func (p *pass) judge(ctx context.Context, h handled) (s Settlement, benign, opened bool) {
	r := h.row
	switch {
	case !h.failed:
		p.answers(r)
		return Settlement{Outcome: Processed, Detail: p.detail(ctx, h)}, false, false
	case ctx.Err() != nil && !h.timedOut && h.panicked == "" && (h.cut || (h.discard == nil && h.snooze == nil)):
		p.circuits.unprobed(r.probes...)
		return Settlement{Outcome: Released}, false, false // cut off with the whole invocation
	case h.discard != nil:
		if h.discard.disable {
			opened = !p.circuits.isOpen(r.circuit)
			p.circuits.disable(r.circuit, h.reason)
			r.probes = slices.DeleteFunc(r.probes, func(key string) bool { return key == r.circuit })
		}
		if len(r.probes) > 0 {
			p.answers(r)
		}
		return Settlement{Outcome: Discarded, Reason: h.reason}, h.discard.benign, opened
	case h.snooze != nil:
		return p.snooze(h)
	}
	reason := h.reason
	if h.timedOut && h.cut {
		reason = ReasonHandlerTimeout
	}
	switch {
	case len(r.probes) > 0:
		return p.stillOut(r, reason, 0), false, false
	case p.circuits.isOpen(r.circuit) && r.event.SnoozeCount() < p.config.MaxSnoozes:
		return Settlement{Outcome: Snoozed, Reason: reason, Delay: p.outWait(r.circuit)}, false, false
	}
	if !h.beside {
		opened = p.circuits.failed(r.circuit, r.event.ID, reason)
	}
	return Settlement{Outcome: Retry, Reason: reason}, false, opened
}

// snooze holds a destination back, unless the event was snoozed so often that its error must be taken for permanent.
func (p *pass) snooze(h handled) (s Settlement, benign, opened bool) {
	reason, key := h.reason, h.row.circuit
	if len(h.row.probes) > 0 {
		return p.stillOut(h.row, reason, h.snooze.delay), false, false
	}
	if h.row.event.SnoozeCount() >= p.config.MaxSnoozes {
		reason = ReasonSnoozesExhausted + ":" + reason
		opened := p.circuits.failed(key, h.row.event.ID, reason)
		return Settlement{Outcome: Retry, Reason: reason}, false, opened
	}
	opened = !p.circuits.isOpen(key)
	if opened {
		p.circuits.trip(key, reason, h.snooze.delay)
		return Settlement{Outcome: Snoozed, Reason: reason, Delay: orDefault(h.snooze.delay, p.config.Snooze)}, false, true
	}
	return Settlement{Outcome: Snoozed, Reason: reason, Delay: orDefault(h.snooze.delay, p.outWait(key))}, false, false
}

// outWait is how long an event waits that was under way when its circuit opened: where the store remembers the circuit that
// holds it back anyhow, and it need not wait longer.
func (p *pass) outWait(key string) time.Duration {
	if p.circuits.store == nil {
		return p.config.Snooze
	}
	return min(p.circuits.waitOf(key, p.config.Snooze), p.config.Snooze)
}

// answers notes that a destination is there: a probe of it ends the outage.
func (p *pass) answers(r *row) {
	if len(r.probes) == 0 {
		p.circuits.succeeded(r.circuit)
		return
	}
	for _, key := range r.probes {
		p.circuits.close(key)
		if key == p.registry[r.event.Type].Destination {
			p.beginAgain() // the cursor passed its events
		}
	}
}

// stillOut is the outcome of a probe that failed. No snooze is charged, since the event did not find this out; it waits so
// long that the next probe is another one. How long a part of a destination asked to be left alone binds that part only.
func (p *pass) stillOut(r *row, reason string, delay time.Duration) Settlement {
	wait := orDefault(delay, p.config.Snooze)
	for _, key := range r.probes {
		wait = max(wait, 2*p.circuits.openFor(key))
		if key == r.circuit {
			p.circuits.trip(key, reason, delay)
		} else {
			p.circuits.trip(key, reason, 0)
		}
	}
	return Settlement{Outcome: Snoozed, Uncharged: true, Reason: reason, Delay: wait}
}

func (p *pass) detail(ctx context.Context, h handled) []byte {
	if h.refused != nil {
		p.report.log(ctx, slog.LevelWarn, "detail_refused", slog.GroupValue(
			slog.String("eventId", h.row.event.ID), slog.String("error", h.refused.Error())))
	}
	return h.detail
}
