package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// safeMessage is the longest error text, in characters, logged with queue_stats_failed and the like.
const safeMessage = 300

// replyMargin is what late statistics leave of the invocation for the reply to be sent.
const replyMargin = 500 * time.Millisecond

// Worker runs passes. It is safe for concurrent use; each pass has its own state.
type Worker struct {
	config Config
}

// NewWorker checks the configuration, reporting every fault at once, and fills in its defaults.
func NewWorker(config Config) (*Worker, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure worker: %w", err)
	}
	return &Worker{config: config.withDefaults()}, nil
}

// The operations of a store.
const (
	opClaim  = "claim"
	opSettle = "settle"
)

// StoreError is the failure of a store that ended a pass.
type StoreError struct {
	Op  string // claim or settle
	Err error
}

func (e *StoreError) Error() string { return fmt.Sprintf("outbox %s: %v", e.Op, e.Err) }
func (e *StoreError) Unwrap() error { return e.Err }

// Run runs one pass: it claims and delivers until nothing is claimable, the soft budget is spent or ctx ends.
// Nothing is started that could outlast the budget, and what was claimed but not started is handed back, so that
// Run returns before ctx's deadline.
//
// On a store failure the counters so far, with OK false, come beside a [*StoreError]. When ctx was cancelled the
// events in flight are released and the reason is invocation_cancelled. Any other error is a mistake in pass.
func (w *Worker) Run(ctx context.Context, settings Pass) (Result, error) {
	p := newPass(ctx, w.config, settings)
	if len(p.registry) == 0 {
		return p.skip(ReasonRegistryEmpty), nil
	}
	if err := p.hold(settings.EventTypes); err != nil {
		return Result{ByEventType: map[string]TypeCounts{}, DiscardedEventIDs: []string{}}, err
	}
	p.holdUnfit(ctx)
	if types, _ := p.types(); len(types) == 0 {
		return p.skip(ReasonBudgetTooSmall), nil
	}
	p.loadCircuits(ctx)
	p.startTelling(ctx)
	err := p.run(ctx)
	p.endTelling(ctx, err != nil)
	p.endPruning(ctx, err != nil)
	if err != nil {
		return p.result(false), err
	}
	if p.circuits.opened {
		p.counts.Reason = ReasonProviderOutage
	} else if ctx.Err() != nil {
		p.counts.Reason = ReasonCancelled
	}
	p.counts.Queue = p.queueStats(ctx)
	p.report.observe("finished", p.counts.Processed)
	return p.result(true), nil
}

func (p *pass) skip(reason string) Result {
	p.counts.Skipped, p.counts.Reason = true, reason
	p.report.observe("finished", 0)
	return p.result(true)
}

// hold holds the registry's types that only leaves out.
func (p *pass) hold(only []string) error {
	if only == nil {
		return nil
	}
	if len(only) == 0 {
		return errors.New("event types: an empty list, takes nil for all types or at least one")
	}
	var faults []error
	for _, name := range only {
		if _, ok := p.registry[name]; !ok {
			faults = append(faults, fmt.Errorf("event types: %q has no route", name))
		}
	}
	for name := range p.registry {
		if !slices.Contains(only, name) {
			p.held[name] = true
		}
	}
	return errors.Join(faults...)
}

// holdUnfit holds the types whose handlers can never fit this pass, and says so once for each.
func (p *pass) holdUnfit(ctx context.Context) {
	for _, name := range p.names {
		timeout := p.registry[name].Timeout
		line, limit := "", time.Duration(0)
		switch {
		case timeout > p.budget.soft-MarkMargin:
			line, limit = "handler_exceeds_budget", p.budget.soft
		case timeout > p.lease-MarkMargin:
			line, limit = "handler_exceeds_lease", p.lease
		default:
			continue
		}
		p.held[name] = true
		p.report.log(ctx, slog.LevelError, line, slog.GroupValue(
			slog.String("eventType", name), slog.Int64("timeoutMs", timeout.Milliseconds()),
			slog.Int64("marginMs", MarkMargin.Milliseconds()), slog.Int64("limitMs", limit.Milliseconds())))
	}
}

// queueStats asks for statistics, in real time; nil when they are late, absent or fail.
func (p *pass) queueStats(ctx context.Context) json.RawMessage {
	if p.config.Stats == nil {
		return nil
	}
	limit := StatsDeadline
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)-replyMargin)
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, errLate)
	defer cancel()
	stats, err := within(ctx, p.config.Stats.QueueStats)
	if err == nil && !json.Valid(stats) {
		err = errors.New("statistics are absent or no JSON")
	}
	if err == nil {
		return stats
	}
	p.report.log(ctx, slog.LevelWarn, "queue_stats_failed", slog.StringValue(safeText(err)))
	return nil
}
