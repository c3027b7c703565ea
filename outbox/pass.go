package outbox

import (
	"context"
	"maps"
	"slices"
	"time"
)

// discardedIDCap is how many discarded events a result lists.
const discardedIDCap = 25

// The lease that a store grants, whatever is asked for.
const (
	minLease = 5 * time.Minute
	maxLease = time.Hour
)

// pass is the state of one Run. Only the goroutine of Run touches it.
type pass struct {
	config   Config
	report   reporter
	registry Registry
	names    []string        // the registry's types, sorted
	held     map[string]bool // types that this pass must not claim at all
	budget   budget
	lease    time.Duration
	circuits circuits
	seen     map[string]bool // events whose handler was started and that are not confirmed done
	counts   Result
}

func newPass(ctx context.Context, config Config, settings Pass) *pass {
	registry := config.Registry.snapshot()
	config.BatchSize = orDefault(settings.BatchSize, config.BatchSize)
	return &pass{
		config:   config,
		report:   reporter{logger: config.Logger, observer: config.Observer},
		registry: registry,
		names:    slices.Sorted(maps.Keys(registry)),
		held:     map[string]bool{},
		budget:   newBudget(ctx, config.Clock, settings.SoftBudget),
		lease:    min(max(config.Visibility, minLease), maxLease),
		seen:     map[string]bool{},
		counts:   Result{ByEventType: map[string]TypeCounts{}, DiscardedEventIDs: []string{}},
	}
}

// types splits the registry into what may be claimed now and what is held: left out of this pass, of a destination
// that is out, or too slow for the time left.
func (p *pass) types() (claimable, held []string) {
	for _, name := range p.names {
		route := p.registry[name]
		if p.held[name] || p.circuits.isOpen(route.Destination) || !p.budget.fits(route.Timeout, p.budget.soft) {
			held = append(held, name)
		} else {
			claimable = append(claimable, name)
		}
	}
	return claimable, held
}

// drain claims and delivers batch after batch. Rows whose process died come one at a time, between the ordinary
// batches, so that neither can starve the other.
func (p *pass) drain(ctx context.Context) error {
	preferRecovered := false
	for p.budget.left() > 0 && ctx.Err() == nil {
		claimable, held := p.types()
		if len(claimable) == 0 {
			return nil
		}
		sent := p.budget.elapsed() // before the claim: the lease can't end earlier than by this count
		events, err := p.claim(ctx, ClaimRequest{
			EventTypes: claimable, KnownTypes: p.config.KnownTypes, HeldTypes: held,
			BatchSize: p.config.BatchSize, Visibility: p.config.Visibility, MaxAttempts: p.config.MaxAttempts,
			PreferRecovered: preferRecovered,
		})
		switch {
		case ctx.Err() != nil && err != nil:
			continue // the invocation was cancelled: that ends the loop, and is no fault of the store
		case err != nil:
			return &StoreError{Op: "claim", Err: err}
		case len(events) == 0:
			return nil
		}
		p.counts.Batches++
		p.counts.Claimed += len(events)
		p.report.observe("claimed", len(events))
		preferRecovered = !events[0].Recovered
		if err := newBatch(p, events, sent+p.lease).run(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) claim(ctx context.Context, req ClaimRequest) ([]Event, error) {
	ctx, cancel := context.WithTimeout(ctx, p.budget.statement())
	defer cancel()
	return p.config.Store.Claim(ctx, req)
}

// settle acknowledges under what the invocation has left, even when ctx is cancelled: the reserve is there for it.
func (p *pass) settle(ctx context.Context, batch []Settlement) ([]Answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.budget.statement())
	defer cancel()
	return p.config.Store.Settle(ctx, batch, Backoff{
		Base: p.config.BackoffBase, Cap: p.config.BackoffCap, MaxAttempts: p.config.MaxAttempts,
	})
}

// count changes the counters of one type.
func (p *pass) count(eventType string, change func(*TypeCounts)) {
	counts := p.counts.ByEventType[eventType]
	change(&counts)
	p.counts.ByEventType[eventType] = counts
}

func (p *pass) result(ok bool) Result {
	r := p.counts
	r.OK = ok
	r.Checked, r.Updated, r.Failures = r.Claimed, r.Processed, r.Retried+r.Discarded
	r.RunMs = p.budget.elapsed().Milliseconds()
	return r
}
