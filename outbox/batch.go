package outbox

import (
	"context"
	"time"
)

// call is one call of a handler: with one row, or with a batch of them.
type call struct {
	rows  []*row
	route Route
	left  int         // rows not answered yet
	timer *time.Timer // abandons the handler
}

// startFrom starts one call with the head of a queue, and with what else goes into its batch; or it holds the queue.
func (p *pass) startFrom(ctx context.Context, q *queue) {
	route := p.registry[q.eventType]
	g := p.gates[route.Gate]
	defer g.turn()()
	if weight := g.weight(route.Handler, q.head()); g != nil && g.wait(p.config.Clock(), weight) != 0 {
		p.shutGate(g, q, weight)
		return
	}
	limit := p.batchLimit(route, q.head())
	if q.ready.Len() < limit && p.moreComing(ctx) {
		p.short = append(p.short, q)
		p.lanes.hold(q, true)
		return
	}
	rows, weight := p.takeRows(ctx, q, g, limit)
	if len(rows) == 0 {
		return // none of them could run, and that was settled
	}
	p.running++
	p.inCalls += len(rows)
	g.started(weight)
	p.start(ctx, &call{rows: rows, route: route, left: len(rows)})
}

// batchLimit returns how many rows the next call may have. What stands alone goes alone.
func (p *pass) batchLimit(route Route, head *row) (limit int) {
	handler, batches := route.Handler.(BatchHandler)
	if !batches || len(head.probes) > 0 || head.event.Recovered || p.config.Concurrency == 1 {
		return 1
	}
	defer func() {
		if recover() != nil { // it must not end the pass, whose other rows are not its fault
			limit = 1
		}
	}()
	return max(1, handler.BatchLimit())
}

// takeRows takes the oldest rows of a queue, each of another lane, up to the limit and to what the gate lets through at
// once.
func (p *pass) takeRows(ctx context.Context, q *queue, g *gate, limit int) (rows []*row, weight float64) {
	handler, room := p.registry[q.eventType].Handler, g.room()
	for len(rows) < limit && q.ready.Len() > 0 {
		head := q.head()
		more := weight + g.weight(handler, head)
		if len(rows) > 0 && (more > room || len(head.probes) > 0) {
			break
		}
		r := p.lanes.next(q)
		if !p.mayRun(ctx, r) {
			if len(rows) == 0 {
				return nil, 0 // whether another one may start is to be asked anew
			}
			continue
		}
		p.seen[r.event.ID] = true
		p.lanes.setBusy(r.lane, true)
		rows, weight = append(rows, r), more
	}
	return rows, weight
}

// moreComing tells that a batch had better wait: the answers of another one are coming in, which frees its lanes, or more
// of the queue is being read, or is about to be, if only when outcomes are written and make room.
func (p *pass) moreComing(ctx context.Context) bool {
	writing := p.settling || len(p.unsettled) > 0
	reading := !p.cycle.ended && p.budget.left() > 0 && (p.claiming || !p.isLostTurn() && (writing || p.mayReadAhead()))
	return !p.hurry && p.mayStart(ctx) && (p.returning > 0 || reading)
}

// answered counts a row of a call. The others of a batch follow at once.
func (c *call) answered(p *pass) {
	c.left--
	p.inCalls--
	switch {
	case c.left == 0:
		c.timer.Stop()
		p.running--
		if g := p.gates[c.route.Gate]; g != nil {
			g.running--
		}
		if len(c.rows) > 1 {
			p.returning--
		}
	case c.left == len(c.rows)-1:
		p.returning++
	}
}
