package outbox

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"
)

// gate is what a destination with a concurrency or rate of its own lets through.
type gate struct {
	concurrency int    // 0: no limit
	limit       *Limit // nil: no limit
	types       []string
	running     int      // calls
	shut        []*queue // held until there is room
	need        float64  // the largest weight among their heads, lest lighter ones pass it for ever
	saturated   bool     // so much waits for it that no more is claimed
}

// newGates returns the gates that let less than everything through.
func newGates(registry Registry) map[string]*gate {
	gates := map[string]*gate{}
	for _, name := range slices.Sorted(maps.Keys(registry)) {
		route := registry[name]
		if route.Concurrency == 0 && route.Limit == nil {
			continue
		}
		g := gates[route.Gate]
		if g == nil {
			g = &gate{concurrency: route.Concurrency, limit: route.Limit}
			gates[route.Gate] = g
		}
		g.types = append(g.types, name)
	}
	return gates
}

// wait returns how long nothing of that weight may start; zero when it may, negative when that is up to a call's return.
func (g *gate) wait(now time.Time, weight float64) time.Duration {
	switch {
	case g == nil:
		return 0
	case g.concurrency > 0 && g.running >= g.concurrency:
		return -1
	case g.limit != nil:
		return g.limit.wait(now, max(weight, g.need))
	}
	return 0
}

// turn keeps other passes from the limit until it is over.
func (g *gate) turn() (over func()) {
	if g == nil || g.limit == nil || g.limit.turn == nil {
		return func() {}
	}
	g.limit.turn <- struct{}{}
	return func() { <-g.limit.turn }
}

// started counts a call of that weight.
func (g *gate) started(weight float64) {
	if g == nil {
		return
	}
	g.running++
	if g.limit != nil {
		g.limit.take(weight)
	}
}

// room is the largest weight of a batch.
func (g *gate) room() float64 {
	if g == nil || g.limit == nil {
		return math.Inf(1)
	}
	return g.limit.batch()
}

// weight is what a row's event counts against the limit.
func (g *gate) weight(handler Handler, r *row) (weight float64) {
	weigher, weighs := handler.(Weigher)
	if !weighs || g == nil || g.limit == nil {
		return 1
	}
	defer func() {
		if recover() != nil { // the handler is about to show the same fault, where it is judged
			weight = 1
		}
	}()
	return max(1, float64(weigher.Weight(r.event)))
}

// openGates frees the queues that were held for a gate which lets something through again.
func (p *pass) openGates() {
	if p.shut == 0 {
		return
	}
	now := p.config.Clock()
	for _, g := range p.gates {
		if len(g.shut) == 0 || g.wait(now, 1) != 0 {
			continue
		}
		for _, q := range g.shut {
			p.lanes.hold(q, false)
		}
		p.shut -= len(g.shut)
		g.shut, g.need = nil, 0
	}
}

// shutGate holds a queue, whose head has that weight, until its gate opens.
func (p *pass) shutGate(g *gate, q *queue, weight float64) {
	g.need = max(g.need, weight)
	g.shut = append(g.shut, q)
	p.shut++
	p.lanes.hold(q, true)
}

// clearGates hands back what waits for gates when nothing else is in flight any more but a lost row comes next: everybody would
// wait with it. It is claimed again.
func (p *pass) clearGates(ctx context.Context) {
	if p.shut == 0 || p.alone || p.running > 0 || p.lanes.queues.Len() > 0 || len(p.short) > 0 {
		return
	}
	rows, behind := p.lanes.takeIf(func(r *row) bool { return r.queue.held })
	p.release(append(rows, behind...), 0)
	p.flush(ctx)
}

// gateWait returns when the next gate opens by itself for a row that waits; zero when none does, or nothing more is started.
func (p *pass) gateWait(ctx context.Context) (wait time.Duration) {
	if p.shut == 0 || p.ended || p.failure != nil || ctx.Err() != nil {
		return 0
	}
	now := p.config.Clock()
	for _, g := range p.gates {
		if !slices.ContainsFunc(g.shut, func(q *queue) bool { return q.ready.Len() > 0 }) {
			continue
		}
		if w := g.wait(now, 1); w > 0 && (wait == 0 || w < wait) {
			wait = w
		}
	}
	return min(wait, p.budget.left())
}

// saturate holds, from the next claim on, the types of a destination for which as much waits as one claim brings, or anything
// while as much waits for many slow ones as may be read ahead. What waits so takes nothing of the room of all others. It tells
// whether some types are claimable again.
func (p *pass) saturate() (again bool) {
	high, most := p.config.BatchSize, readAhead*p.config.BatchSize
	before := p.gated
	p.gated = 0
	for _, g := range p.gates {
		waiting := 0
		for _, name := range g.types {
			if q := p.lanes.byType[name]; q != nil {
				waiting += q.waiting
			}
		}
		if len(g.shut) > 0 {
			p.gated += waiting
		}
		switch {
		case len(g.shut) > 0 && waiting > 0 && (waiting >= high || before >= most):
			g.saturated = true
		case g.saturated && waiting <= high/2:
			g.saturated, again = false, true
		}
	}
	return again
}
