package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// noticeBatch is how many discards one call asks for at most.
	noticeBatch = 100
	// noticeMargin is what must be left of the soft budget for one more round of telling.
	noticeMargin = 3 * time.Second
	// keepUntold is how long a discarded event is kept at least where somebody is to be told of it.
	keepUntold = 24 * time.Hour
)

// Notice tells of one discard, without the event's payload: what that may hold is not for everybody who watches discards.
type Notice struct {
	// EventID is the event's id; it is the same when the notice is sent again.
	EventID                    string
	Position                   int64
	AggregateType, AggregateID string
	Type                       string
	IdempotencyKey             string
	Attempts                   int
	// Reason is why: the row's error.
	Reason string
	// DiscardReason is permanent_error or max_attempts; what the row says, or nothing, where somebody discarded it by hand.
	DiscardReason          string
	CreatedAt, DiscardedAt time.Time
	// Mark tells the discards of an event apart that was delivered again and discarded again. It is the store's.
	Mark string
}

// Notifier tells somebody of discards. It is safe for concurrent use.
type Notifier interface {
	// Notify sends notices and answers each in its place; nil means that it arrived. A missing answer is a failure of its own.
	Notify(ctx context.Context, notices []Notice) []error
}

// Discards is what a Store may offer beside: it remembers of which discards somebody was told, so that no notice is lost when a
// process dies, nor one of an event that another client discarded. Implementations must be safe for concurrent use;
// package outboxtest holds the suite that says what each method must do.
type Discards interface {
	// Untold returns discards of these types of which [Discards.Told] has not heard, the oldest events of a type first, at most
	// limit, which the store clamps to 1..1,000; zero means 100.
	Untold(ctx context.Context, eventTypes []string, limit int) ([]Notice, error)
	// Told notes that somebody was told. An event that was discarded anew meanwhile stays untold.
	Told(ctx context.Context, notices []Notice) error
}

// notifiers returns who is told of discards, and of which event types, in a fixed order.
func (p *pass) notifiers() (all []Notifier, types map[Notifier][]string) {
	types = map[Notifier][]string{}
	if p.config.Discards == nil {
		return nil, types
	}
	for _, name := range p.names {
		notifier := p.registry[name].OnDiscard
		if notifier == nil {
			continue
		}
		if types[notifier] == nil {
			all = append(all, notifier)
		}
		types[notifier] = append(types[notifier], name)
	}
	return all, types
}

// telling is what a pass tells of discards: what it finds when it starts, beside delivering, and what came since when it lingers
// and when it ends. Passes whose budget is always spent would else never get to it.
type telling struct {
	cancel context.CancelFunc
	beside sync.WaitGroup

	mu   sync.Mutex // held while one tells, so that no notice is sent twice
	told int
	err  error // of the last time
	// arrived are the notices that the store may not know of yet, since somebody else has their rows locked: they are not sent
	// again by this pass.
	arrived map[Notice]bool
}

// startTelling begins to tell of what others left.
func (p *pass) startTelling(ctx context.Context) {
	ctx, p.telling.cancel = context.WithCancel(ctx)
	p.telling.arrived = map[Notice]bool{}
	if all, _ := p.notifiers(); len(all) > 0 {
		p.telling.beside.Go(func() { p.tellDiscards(ctx) })
	}
}

// endTelling tells of this pass's own discards, and says what went wrong. A pass that failed cuts it short.
func (p *pass) endTelling(ctx context.Context, failed bool) {
	defer p.telling.cancel()
	if failed {
		p.telling.cancel()
	}
	p.telling.beside.Wait()
	if !failed {
		p.tellDiscards(ctx)
	}
	p.counts.DiscardsTold = p.telling.told
	if err := p.telling.err; err != nil && !failed && ctx.Err() == nil {
		p.report.log(ctx, slog.LevelError, "discards_untold", slog.StringValue(safeText(err)))
	}
}

// tellDiscards tells of every discard, this pass's and others', in what is left of the budget. What fails stays untold, and its
// notifier is left alone until the next time.
func (p *pass) tellDiscards(ctx context.Context) {
	p.telling.mu.Lock()
	defer p.telling.mu.Unlock()
	all, types := p.notifiers()
	if p.budget.left() >= noticeMargin {
		p.telling.err = nil
	}
	for _, notifier := range all {
		for more := true; more && p.budget.left() >= noticeMargin && ctx.Err() == nil; {
			var told int
			var err error
			told, more, err = p.tellSome(ctx, notifier, types[notifier])
			p.telling.told += told
			if err != nil {
				p.telling.err, more = errors.Join(p.telling.err, err), false
			}
		}
	}
}

// tellSome tells a notifier of one batch.
func (p *pass) tellSome(ctx context.Context, notifier Notifier, types []string) (n int, more bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, min(p.budget.left(), statementLimit), errStoreLate)
	defer cancel()
	untold, err := within(ctx, func(ctx context.Context) ([]Notice, error) {
		return p.config.Discards.Untold(ctx, types, noticeBatch)
	})
	if err != nil || len(untold) == 0 {
		return 0, false, err
	}
	var fresh, arrived []Notice
	for _, notice := range untold {
		if p.telling.arrived[notice] {
			arrived = append(arrived, notice)
		} else {
			fresh = append(fresh, notice)
		}
	}
	told, fault := p.notify(ctx, notifier, fresh)
	for _, notice := range told {
		p.telling.arrived[notice] = true
	}
	if arrived = append(arrived, told...); len(arrived) == 0 {
		return 0, false, fault
	}
	// Like an acknowledgement, it is no matter of ctx's end: what arrived would be sent again.
	ctx, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), p.budget.statement(), errStoreLate)
	defer stop()
	_, err = within(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.config.Discards.Told(ctx, arrived)
	})
	if err != nil {
		return len(told), false, errors.Join(fault, fmt.Errorf("note what was told: %w", err))
	}
	return len(told), len(untold) == noticeBatch && len(fresh) > 0, fault
}

// notify returns the notices that arrived, and a fault of the others.
func (p *pass) notify(ctx context.Context, notifier Notifier, notices []Notice) (told []Notice, fault error) {
	if len(notices) == 0 {
		return nil, nil
	}
	answers, fault := within(ctx, func(ctx context.Context) ([]error, error) { return notifier.Notify(ctx, notices), nil })
	if fault != nil {
		return nil, fault
	}
	for i, notice := range notices {
		switch {
		case i >= len(answers):
			fault = errors.New("the notifier left notices unanswered")
		case answers[i] != nil:
			fault = answers[i]
		default:
			told = append(told, notice)
		}
	}
	return told, fault
}

// keptFor is the retention of a pass: events of which somebody is to be told stay for a day at least.
func (p *pass) keptFor() Retention {
	kept := p.config.Retention
	if all, _ := p.notifiers(); len(all) > 0 && kept.Discarded >= 0 {
		kept.Discarded = max(kept.Discarded, keepUntold)
	}
	return kept
}
