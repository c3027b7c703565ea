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

// pass is the state of one Run. One loop, on the goroutine of Run, owns all of it; it hears by channels from the
// handlers, and from the one claim and the one settle call that may be under way beside them.
type pass struct {
	config   Config
	report   reporter
	registry Registry
	names    []string        // the registry's types, sorted
	held     map[string]bool // types that this pass must not claim at all
	budget   budget
	lease    time.Duration
	circuits circuits
	pruning  pruning
	telling  telling
	seen     map[string]bool // events whose handler was started and that are not confirmed done
	counts   Result

	reader
	lanes     lanes
	gates     map[string]*gate // by destination; most have none
	shut      int              // queues held by gates
	gated     int              // rows that waited for gates when it was last asked what to read
	short     []*queue         // held until more rows of their type are there, for a batch
	hurry     bool             // nothing more comes: batches go as they are
	aside     []*row           // not started for want of time
	running   int              // calls of handlers
	inCalls   int              // rows that the handlers have not answered
	returning int              // those of them whose answers are coming in
	open      int              // rows claimed and not answered yet, releases included
	openBytes int              // of their payloads
	ended     bool             // every destination is out: nothing more is started
	done      [2][]string

	unsettled []entry
	settling  bool
	failure   *StoreError

	calls   chan *call
	handled chan handled
	settled chan settled
	claimed chan claimed
	over    chan struct{} // closed at the end: nobody listens any more
}

func newPass(ctx context.Context, config Config, settings Pass) *pass {
	registry := config.Registry.snapshot()
	config.BatchSize = orDefault(settings.BatchSize, config.BatchSize)
	config.LaneDepth = orDefault(config.LaneDepth, config.BatchSize)
	return &pass{
		config:   config,
		report:   reporter{logger: config.Logger, observer: config.Observer},
		registry: registry,
		names:    slices.Sorted(maps.Keys(registry)),
		held:     map[string]bool{},
		budget:   newBudget(ctx, config.Clock, settings.SoftBudget),
		lease:    min(max(config.Visibility, minLease), maxLease),
		circuits: circuits{store: config.Circuits, answers: make(chan circuitAnswer)},
		seen:     map[string]bool{},
		counts:   Result{ByEventType: map[string]TypeCounts{}, DiscardedEventIDs: []string{}},
		reader:   reader{cycle: cycle{idle: true}},
		lanes:    newLanes(),
		gates:    newGates(registry),
		calls:    make(chan *call),
		handled:  make(chan handled),
		settled:  make(chan settled),
		claimed:  make(chan claimed),
		over:     make(chan struct{}),
	}
}

// types splits the registry into what may be claimed now and what is held: left out of this pass, of a destination
// that is out, or too slow for the time left.
func (p *pass) types() (claimable, held []string) {
	for _, name := range p.names {
		route := p.registry[name]
		g := p.gates[route.Gate]
		if p.held[name] || p.circuits.isOpen(route.Destination) || !p.budget.fits(route.Timeout, p.budget.soft) ||
			(g != nil && g.saturated) {
			held = append(held, name)
		} else {
			claimable = append(claimable, name)
		}
	}
	return claimable, held
}

// run claims, delivers and settles, all three at once, until nothing is claimable or nothing more may be started.
func (p *pass) run(ctx context.Context) error {
	defer close(p.over)
	for {
		p.startRows(ctx)
		p.flush(ctx)
		wait := p.read(ctx)
		if wait > 0 && p.open == 0 {
			p.startPruning(ctx) // it lingers
		}
		wait = sooner(wait, p.gateWait(ctx))
		busy := p.running > 0 || p.settling || p.claiming || wait > 0
		if p.hurry = !busy && len(p.short) > 0; p.hurry {
			continue
		}
		wait = sooner(wait, p.tendCircuits(ctx, busy))
		if !busy && !p.circuits.calling {
			break
		}
		p.hear(ctx, wait)
	}
	return p.finish(ctx)
}

// sooner returns the shorter of two waits, of which zero stands for none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// hear takes the next message, or returns after wait; zero waits for a message.
func (p *pass) hear(ctx context.Context, wait time.Duration) {
	var timeout <-chan time.Time
	var canceled <-chan struct{}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout, canceled = timer.C, ctx.Done()
	}
	select { // first, so that the next claim is sent at once
	case c := <-p.claimed:
		p.accept(ctx, c)
		return
	default:
	}
	select {
	case h := <-p.handled:
		p.returned(ctx, h)
		p.gather(ctx)
	case s := <-p.settled:
		p.answered(ctx, s)
	case c := <-p.claimed:
		p.accept(ctx, c)
	case a := <-p.circuits.answers:
		p.heardCircuits(ctx, a)
	case <-timeout:
	case <-canceled:
	}
}

// finish hands back what was not started, and what a failing store did not take at first.
func (p *pass) finish(ctx context.Context) error {
	delay := time.Duration(0)
	if p.ended {
		delay = p.outDelay()
	}
	p.release(append(p.aside, p.lanes.takeAll()...), delay)
	p.aside = nil
	for len(p.unsettled) > 0 {
		s := p.settleNow(ctx, p.nextEntries())
		p.answered(ctx, s)
		if s.err != nil {
			break
		}
	}
	p.reportRetries(ctx)
	if p.failure != nil {
		return p.failure
	}
	return nil
}

// mayStart tells whether a slot is free. With one slot a row's acknowledgement belongs to its turn.
func (p *pass) mayStart(ctx context.Context) bool {
	if p.ended || p.failure != nil || ctx.Err() != nil || p.running >= p.config.Concurrency {
		return false
	}
	return p.config.Concurrency > 1 || (!p.settling && len(p.unsettled) == 0)
}

// startRows starts what may start, oldest first.
func (p *pass) startRows(ctx context.Context) {
	p.openGates()
	for _, q := range p.short {
		p.lanes.hold(q, false)
	}
	p.short = p.short[:0]
	for p.mayStart(ctx) {
		q := p.lanes.first()
		if q == nil {
			break
		}
		p.startFrom(ctx, q)
	}
	if p.running == 0 && p.lanes.waiting == 0 && !p.settling && len(p.unsettled) == 0 {
		p.release(p.aside, 0)
		p.aside = nil
	}
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
	r.Held = p.outDestinations()
	r.RunMs = p.budget.elapsed().Milliseconds()
	return r
}
