package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	// gatherTime is how long an outcome waits for others at most: a settle call costs more than that.
	gatherTime = time.Millisecond
	// maxSettle is how many outcomes go in one call.
	maxSettle = 1000
)

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

// gather takes the handlers that return within the next moment too, so that their outcomes share one settle call.
func (p *pass) gather(ctx context.Context) {
	if p.settling {
		return // what returns meanwhile shares the next call anyway
	}
	moment := time.NewTimer(gatherTime)
	defer moment.Stop()
	for p.startRows(ctx); p.running > 0 && len(p.unsettled) < maxSettle; p.startRows(ctx) {
		select {
		case h := <-p.handled:
			p.returned(ctx, h)
		case c := <-p.claimed:
			p.accept(ctx, c)
		case <-moment.C:
			return
		}
	}
}

// flush starts a settle call with the outcomes that wait, unless one is under way or failed.
func (p *pass) flush(ctx context.Context) {
	if p.settling || len(p.unsettled) == 0 || (p.failure != nil && p.failure.Op == opSettle) {
		return
	}
	p.settling = true
	entries := p.nextEntries()
	go func() { p.settled <- p.settleNow(ctx, entries) }()
}

func (p *pass) nextEntries() []entry {
	n := min(len(p.unsettled), maxSettle)
	entries := p.unsettled[:n:n]
	p.unsettled = p.unsettled[n:]
	return entries
}

func (p *pass) settleNow(ctx context.Context, entries []entry) settled {
	settlements := make([]Settlement, len(entries))
	for i, e := range entries {
		settlements[i] = e.settlement
	}
	answers, err := p.settle(ctx, settlements)
	if err == nil && len(answers) != len(entries) {
		err = fmt.Errorf("store answered %d of %d settlements", len(answers), len(entries))
	}
	return settled{entries: entries, answers: answers, err: err}
}

// settle acknowledges under what the invocation has left, even when ctx is cancelled: the reserve is there for it.
func (p *pass) settle(ctx context.Context, batch []Settlement) ([]Answer, error) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), p.budget.statement(), errStoreLate)
	defer cancel()
	return p.config.Store.Settle(ctx, batch, Backoff{
		Base: p.config.BackoffBase, Cap: p.config.BackoffCap, MaxAttempts: p.config.MaxAttempts,
	})
}

// answered counts what the store made of a batch of outcomes. On a failure they are kept for one more try.
func (p *pass) answered(ctx context.Context, s settled) {
	p.settling = false
	if s.err != nil {
		p.failure = &StoreError{Op: opSettle, Err: s.err}
		p.unsettled = append(s.entries, p.unsettled...)
		return
	}
	for i, e := range s.entries {
		p.tally(ctx, e, s.answers[i])
		p.close(e.row)
	}
}

// tally counts by the store's answer, not by what was asked.
func (p *pass) tally(ctx context.Context, e entry, answer Answer) {
	eventType := e.row.event.Type
	switch {
	case e.settlement.Outcome == Released:
		if answer == AnswerReleased {
			p.counts.Released++
		}
	case e.settlement.Outcome == Processed && answer == AnswerProcessed:
		p.counts.Processed++
		p.count(eventType, func(c *TypeCounts) { c.Processed++ })
		p.done[0] = append(p.done[0], e.row.event.ID)
	case e.settlement.Outcome == Processed || answer == Missed:
		p.loseLease(ctx, e.row, slog.LevelWarn, "outbox_lease_lost")
		p.endLane(e.row.lane)
	case answer == AnswerFailed:
		p.counts.Retried++
		p.count(eventType, func(c *TypeCounts) { c.Retried++ })
	case answer == AnswerDiscarded:
		p.discarded(ctx, e)
	default:
		p.counts.Snoozed++
		p.count(eventType, func(c *TypeCounts) { c.Snoozed++ })
	}
}

func (p *pass) loseLease(ctx context.Context, r *row, level slog.Level, line string) {
	p.counts.LeaseLost++
	p.count(r.event.Type, func(c *TypeCounts) { c.LeaseLost++ })
	p.report.log(ctx, level, line, slog.StringValue(r.event.ID))
}

func (p *pass) discarded(ctx context.Context, e entry) {
	event := e.row.event
	p.counts.Discarded++
	p.count(event.Type, func(c *TypeCounts) { c.Discarded++ })
	if len(p.counts.DiscardedEventIDs) < discardedIDCap {
		p.counts.DiscardedEventIDs = append(p.counts.DiscardedEventIDs, event.ID)
	}
	p.done[0] = append(p.done[0], event.ID)
	level, attrs := slog.LevelError, []slog.Attr{
		slog.String("eventId", event.ID), slog.String("eventType", event.Type),
		slog.String("aggregateId", event.AggregateID), slog.Int("attempts", event.Attempts),
		slog.String("reason", e.settlement.Reason),
	}
	if e.benign {
		level, attrs = slog.LevelWarn, append(attrs, slog.Bool("benign", true))
	}
	p.report.log(ctx, level, "event_discarded", slog.GroupValue(attrs...))
}
