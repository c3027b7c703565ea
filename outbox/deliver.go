package outbox

import (
	"context"
	"errors"
	"log/slog"
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
	reason    string // the error's text, clean
	discard   *discardError
	snooze    *snoozeError
	cut       bool   // the error is the context's end
	timedOut  bool   // its own timeout passed
	abandoned bool   // it did not return
	panicked  string // what it panicked with, safe to log
}

// start runs a row's handler in a goroutine of its own. What happens first, its return or its abandonment, counts.
func (p *pass) start(ctx context.Context, r *row, route Route) {
	tell := func(h handled) {
		select {
		case p.handled <- h:
		case <-p.over:
		}
	}
	r.timer = time.AfterFunc(route.Timeout+abandonAfter, func() {
		tell(handled{row: r, failed: true, reason: ReasonHandlerTimeout, timedOut: true, abandoned: true})
	})
	go func() {
		ctx, cancel := context.WithTimeoutCause(ctx, route.Timeout, errHandlerTimeout)
		defer cancel()
		h := handled{row: r, failed: true, reason: ReasonHandlerPanic, panicked: "runtime.Goexit"}
		defer func() {
			h.timedOut = errors.Is(context.Cause(ctx), errHandlerTimeout)
			tell(h)
		}()
		defer func() {
			if v := recover(); v != nil {
				h = handled{row: r, failed: true, reason: ReasonHandlerPanic, panicked: panicked(v)}
			}
		}()
		receipt, err := route.Handler.Handle(ctx, r.event)
		h = taken(r, receipt, err)
	}()
}

// taken reads what a handler returned. A panic in the error's methods is the handler's own.
func taken(r *row, receipt Receipt, err error) handled {
	h := handled{row: r, failed: err != nil}
	if err == nil {
		h.detail, h.refused = cleanDetail(receipt)
		return h
	}
	h.reason = cleanText(err.Error())
	for _, end := range []error{context.Canceled, context.DeadlineExceeded, errHandlerTimeout} {
		h.cut = h.cut || errors.Is(err, end)
	}
	errors.As(err, &h.discard)
	errors.As(err, &h.snooze)
	return h
}

// judge turns what a handler answered into the row's outcome, and tells whether it opened the destination's circuit.
func (p *pass) judge(ctx context.Context, h handled, route Route) (s Settlement, benign, opened bool) {
	switch {
	case !h.failed:
		p.answers(h.row, route)
		return Settlement{Outcome: Processed, Detail: p.detail(ctx, h)}, false, false
	case ctx.Err() != nil && !h.timedOut && h.panicked == "" && (h.cut || (h.discard == nil && h.snooze == nil)):
		if h.row.probe {
			p.circuits.unprobed(route.Destination)
		}
		return Settlement{Outcome: Released}, false, false // cut off with the whole invocation
	case h.discard != nil:
		if h.row.probe {
			p.answers(h.row, route)
		}
		return Settlement{Outcome: Discarded, Reason: h.reason}, h.discard.benign, false
	case h.snooze != nil:
		return p.snooze(h, route)
	}
	reason := h.reason
	if h.timedOut && h.cut {
		reason = ReasonHandlerTimeout
	}
	switch {
	case h.row.probe:
		return p.stillOut(route.Destination, reason, 0), false, false
	case p.circuits.isOpen(route.Destination) && h.row.event.SnoozeCount() < p.config.MaxSnoozes:
		return Settlement{Outcome: Snoozed, Reason: reason, Delay: p.config.Snooze}, false, false
	}
	opened = p.circuits.failed(route.Destination, h.row.event.ID, reason)
	return Settlement{Outcome: Retry, Reason: reason}, false, opened
}

// snooze holds a destination back, unless the event was snoozed so often that its error must be taken for permanent.
func (p *pass) snooze(h handled, route Route) (Settlement, bool, bool) {
	reason := h.reason
	if h.row.probe {
		return p.stillOut(route.Destination, reason, h.snooze.delay), false, false
	}
	if h.row.event.SnoozeCount() >= p.config.MaxSnoozes {
		reason = ReasonSnoozesExhausted + ":" + reason
		opened := p.circuits.failed(route.Destination, h.row.event.ID, reason)
		return Settlement{Outcome: Retry, Reason: reason}, false, opened
	}
	opened := !p.circuits.isOpen(route.Destination)
	if opened {
		p.circuits.trip(route.Destination, reason, h.snooze.delay)
	}
	return Settlement{Outcome: Snoozed, Reason: reason, Delay: orDefault(h.snooze.delay, p.config.Snooze)}, false, opened
}

// answers notes that a destination is there: a probe of it ends the outage.
func (p *pass) answers(r *row, route Route) {
	if r.probe {
		p.circuits.close(route.Destination)
		p.beginAgain() // the cursor passed its events
		return
	}
	p.circuits.succeeded(route.Destination)
}

// stillOut is the outcome of a probe that failed. No snooze is charged, since the event did not find this out; it waits so
// long that the next probe is another one.
func (p *pass) stillOut(destination, reason string, delay time.Duration) Settlement {
	wait := max(orDefault(delay, p.config.Snooze), 2*p.circuits.openFor(destination))
	p.circuits.trip(destination, reason, delay)
	return Settlement{Outcome: Snoozed, Uncharged: true, Reason: reason, Delay: wait}
}

func (p *pass) detail(ctx context.Context, h handled) []byte {
	if h.refused != nil {
		p.report.log(ctx, slog.LevelWarn, "detail_refused", slog.GroupValue(
			slog.String("eventId", h.row.event.ID), slog.String("error", h.refused.Error())))
	}
	return h.detail
}
