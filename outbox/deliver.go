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

// handled is what became of one handler.
type handled struct {
	row       *row
	receipt   Receipt
	err       error
	timedOut  bool   // its own timeout passed
	abandoned bool   // it did not return
	panic     string // what it panicked with, safe to log
}

// start runs a row's handler in a goroutine of its own. What happens first, its return or its abandonment, counts.
func (b *batch) start(ctx context.Context, r *row, route Route) {
	tell := func(h handled) {
		select {
		case b.handled <- h:
		case <-b.over:
		}
	}
	r.timer = time.AfterFunc(route.Timeout+abandonAfter, func() {
		tell(handled{row: r, err: errHandlerTimeout, timedOut: true, abandoned: true})
	})
	go func() {
		ctx, cancel := context.WithTimeoutCause(ctx, route.Timeout, errHandlerTimeout)
		defer cancel()
		h := handled{row: r}
		func() {
			defer func() {
				if v := recover(); v != nil {
					h.err, h.panic = errors.New(ReasonHandlerPanic), panicked(v)
				}
			}()
			h.receipt, h.err = route.Handler.Handle(ctx, r.event)
		}()
		h.timedOut = errors.Is(context.Cause(ctx), errHandlerTimeout)
		tell(h)
	}()
}

// judge turns what a handler answered into the row's outcome, and tells whether it opened the destination's circuit.
func (b *batch) judge(ctx context.Context, h handled, route Route) (s Settlement, benign, opened bool) {
	var discard *discardError
	var snooze *snoozeError
	switch {
	case h.err == nil:
		b.circuits.succeeded(route.Destination)
		return Settlement{Outcome: Processed, Detail: b.detail(ctx, h)}, false, false
	case errors.As(h.err, &discard):
		return Settlement{Outcome: Discarded, Reason: cleanText(h.err.Error())}, discard.benign, false
	case errors.As(h.err, &snooze):
		return b.snooze(h, route, snooze.delay)
	case ctx.Err() != nil && !h.timedOut && h.panic == "":
		return Settlement{Outcome: Released}, false, false // cut off with the whole invocation
	}
	reason := cleanText(h.err.Error())
	if h.timedOut && (errors.Is(h.err, context.DeadlineExceeded) || errors.Is(h.err, errHandlerTimeout)) {
		reason = ReasonHandlerTimeout
	}
	if b.circuits.isOpen(route.Destination) && h.row.event.SnoozeCount() < b.config.MaxSnoozes {
		return Settlement{Outcome: Snoozed, Reason: reason, Delay: b.config.Snooze}, false, false
	}
	opened = b.circuits.failed(route.Destination, h.row.event.ID)
	return Settlement{Outcome: Retry, Reason: reason}, false, opened
}

// snooze holds a destination back, unless the event was snoozed so often that its error must be taken for permanent.
func (b *batch) snooze(h handled, route Route, delay time.Duration) (Settlement, bool, bool) {
	reason := cleanText(h.err.Error())
	if h.row.event.SnoozeCount() >= b.config.MaxSnoozes {
		reason = ReasonSnoozesExhausted + ":" + reason
		opened := b.circuits.failed(route.Destination, h.row.event.ID)
		return Settlement{Outcome: Retry, Reason: reason}, false, opened
	}
	opened := !b.circuits.isOpen(route.Destination)
	b.circuits.trip(route.Destination)
	return Settlement{Outcome: Snoozed, Reason: reason, Delay: orDefault(delay, b.config.Snooze)}, false, opened
}

func (b *batch) detail(ctx context.Context, h handled) []byte {
	detail, err := cleanDetail(h.receipt)
	if err != nil {
		b.report.log(ctx, slog.LevelWarn, "detail_refused", slog.GroupValue(
			slog.String("eventId", h.row.event.ID), slog.String("error", err.Error())))
	}
	return detail
}
