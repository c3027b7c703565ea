package outbox

import (
	"context"
	"log/slog"
	"time"
)

// Values of a [Retention].
const (
	// DefaultKeepProcessed and DefaultKeepDiscarded are what zero means.
	DefaultKeepProcessed = 30 * 24 * time.Hour
	DefaultKeepDiscarded = 90 * 24 * time.Hour
	// KeepForever keeps events; so does every negative duration.
	KeepForever time.Duration = -1
	// PruneAtOnce keeps events no longer than until the next pass has time.
	PruneAtOnce time.Duration = 1
)

const (
	// pruneBatch is how many events one call prunes at most.
	pruneBatch = 500
	// pruneMargin is what must be left of the soft budget for one more call: a hundred times what it usually takes.
	pruneMargin = 2 * time.Second
)

// Retention says how long finished events are kept. With an event goes its idempotency key: the same event can be inserted
// again then, and is delivered again.
type Retention struct {
	Processed time.Duration // after their delivery; zero means 30 days
	Discarded time.Duration // after their discard; zero means 90 days
}

// WithDefaults returns r with its zero fields filled in.
func (r Retention) WithDefaults() Retention {
	r.Processed = orDefault(r.Processed, DefaultKeepProcessed)
	r.Discarded = orDefault(r.Discarded, DefaultKeepDiscarded)
	return r
}

// Pruner is what a Store may offer beside: it deletes events that nobody needs any more. Implementations must be safe for
// concurrent use; package outboxtest holds the suite that says what Prune must do.
type Pruner interface {
	// Prune deletes processed and discarded events whose time is over, the oldest of each first, at most limit of them,
	// and returns how many. It never deletes an unfinished event, and none that was created less than that time ago. Fewer
	// than limit means that there are no more for now. The store clamps limit to 1..10,000; zero means 1,000.
	Prune(ctx context.Context, retention Retention, limit int) (int, error)
}

// pruning is the one time that a pass prunes, and tells of discards just before: at its end, or beside its lingering.
type pruning struct {
	cancel context.CancelFunc // nil: not begun
	end    chan pruned
}

// pruned is what came of it.
type pruned struct {
	events int
	err    error
}

// startPruning begins to prune, once in a pass, in what is left of the budget.
func (p *pass) startPruning(ctx context.Context) {
	if p.pruning.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	p.pruning = pruning{cancel: cancel, end: make(chan pruned, 1)}
	go func() {
		p.tellDiscards(ctx) // before what it would tell of is deleted
		p.pruning.end <- p.prune(ctx)
	}()
}

// endPruning waits for it. A pass that failed cuts it short.
func (p *pass) endPruning(ctx context.Context, failed bool) {
	if !failed && ctx.Err() == nil {
		p.startPruning(ctx)
	}
	if p.pruning.cancel == nil {
		return
	}
	defer p.pruning.cancel()
	if failed {
		p.pruning.cancel()
	}
	result := <-p.pruning.end
	p.counts.Pruned = result.events
	if result.err != nil && !failed && ctx.Err() == nil {
		p.report.log(ctx, slog.LevelWarn, "prune_failed", slog.StringValue(safeText(result.err)))
	}
}

// prune deletes batch by batch until nothing is left or the time is over.
func (p *pass) prune(ctx context.Context) (all pruned) {
	kept := p.keptFor()
	if p.config.Pruner == nil || (kept.Processed < 0 && kept.Discarded < 0) {
		return pruned{}
	}
	for p.budget.left() >= pruneMargin && ctx.Err() == nil {
		limit, cancel := context.WithTimeoutCause(ctx, min(p.budget.left(), statementLimit), errStoreLate)
		n, err := within(limit, func(ctx context.Context) (int, error) {
			return p.config.Pruner.Prune(ctx, kept, pruneBatch)
		})
		cancel()
		all.events += n
		if all.err = err; err != nil || n < pruneBatch {
			break
		}
	}
	return all
}
