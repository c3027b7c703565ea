package outbox

import (
	"context"
	"fmt"
	"log/slog"
)

// flush starts a settle call with all outcomes that wait, unless one is under way or the store failed.
func (b *batch) flush(ctx context.Context) {
	if b.settling || b.failure != nil || len(b.unsettled) == 0 {
		return
	}
	b.settling = true
	entries := b.unsettled
	b.unsettled = nil
	go func() { b.settled <- b.settleNow(ctx, entries) }()
}

func (b *batch) settleNow(ctx context.Context, entries []entry) settled {
	settlements := make([]Settlement, len(entries))
	for i, e := range entries {
		settlements[i] = e.settlement
	}
	answers, err := b.settle(ctx, settlements)
	if err == nil && len(answers) != len(entries) {
		err = fmt.Errorf("store answered %d of %d settlements", len(answers), len(entries))
	}
	return settled{entries: entries, answers: answers, err: err}
}

// answered counts what the store made of a batch of outcomes. On a failure they are kept for one more try.
func (b *batch) answered(ctx context.Context, s settled) {
	b.settling = false
	if s.err != nil {
		b.failure = s.err
		b.unsettled = append(s.entries, b.unsettled...)
		return
	}
	for i, e := range s.entries {
		b.tally(ctx, e, s.answers[i])
	}
}

// tally counts by the store's answer, not by what was asked.
func (b *batch) tally(ctx context.Context, e entry, answer Answer) {
	eventType := e.row.event.Type
	switch {
	case e.settlement.Outcome == Released:
		if answer == AnswerReleased {
			b.counts.Released++
		}
	case e.settlement.Outcome == Processed && answer == AnswerProcessed:
		b.counts.Processed++
		b.count(eventType, func(c *TypeCounts) { c.Processed++ })
		b.done = append(b.done, e.row.event.ID)
	case e.settlement.Outcome == Processed || answer == Missed:
		b.loseLease(ctx, e.row, slog.LevelWarn, "outbox_lease_lost")
		b.endLane(e.row.lane)
	case answer == AnswerFailed:
		b.counts.Retried++
		b.count(eventType, func(c *TypeCounts) { c.Retried++ })
	case answer == AnswerDiscarded:
		b.discarded(ctx, e)
	default:
		b.counts.Snoozed++
		b.count(eventType, func(c *TypeCounts) { c.Snoozed++ })
	}
}

func (b *batch) loseLease(ctx context.Context, r *row, level slog.Level, line string) {
	b.counts.LeaseLost++
	b.count(r.event.Type, func(c *TypeCounts) { c.LeaseLost++ })
	b.report.log(ctx, level, line, slog.StringValue(r.event.ID))
}

func (b *batch) discarded(ctx context.Context, e entry) {
	event := e.row.event
	b.counts.Discarded++
	b.count(event.Type, func(c *TypeCounts) { c.Discarded++ })
	if len(b.counts.DiscardedEventIDs) < discardedIDCap {
		b.counts.DiscardedEventIDs = append(b.counts.DiscardedEventIDs, event.ID)
	}
	b.done = append(b.done, event.ID)
	level, attrs := slog.LevelError, []slog.Attr{
		slog.String("eventId", event.ID), slog.String("eventType", event.Type),
		slog.String("aggregateId", event.AggregateID), slog.Int("attempts", event.Attempts),
		slog.String("reason", e.settlement.Reason),
	}
	if e.benign {
		level, attrs = slog.LevelWarn, append(attrs, slog.Bool("benign", true))
	}
	b.report.log(ctx, level, "event_discarded", slog.GroupValue(attrs...))
}
