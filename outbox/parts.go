package outbox

import (
	"context"
	"maps"
	"slices"
	"time"
)

// A destination that stands for many places has a circuit for each of its parts. They cannot be held as types are: their
// rows are claimed, and those of a part that is out are put back, snoozed.

// prepare lets the destinations of a claim's events look up what they need. What goes wrong there is theirs to notice.
func (p *pass) prepare(ctx context.Context, events []Event) {
	mine := map[string][]Event{} // by gate: the circuit may be one of several destinations
	routes := map[string]Route{}
	for _, event := range events {
		if route := p.registry[event.Type]; route.Prepare != nil {
			mine[route.Gate], routes[route.Gate] = append(mine[route.Gate], event), route
		}
	}
	for gate, route := range routes {
		ctx, cancel := context.WithTimeoutCause(ctx, p.budget.statement(), errStoreLate)
		_, _ = within(ctx, func(ctx context.Context) (struct{}, error) {
			route.Prepare(ctx, mine[gate])
			return struct{}{}, nil
		})
		cancel()
	}
}

// probedBy tells whether a claimed row is the one that shows whether its part of a destination is back.
func (c *circuits) probedBy(r *row) bool {
	known := c.known[r.circuit]
	if known == nil || !known.due {
		return false
	}
	known.due = false
	return true
}

// askParts loads the circuits of the places that claimed rows go to, where a destination has many; nil when there are
// none.
func (p *pass) askParts(ctx context.Context, rows []*row) *circuitAnswer {
	if p.circuits.store == nil {
		return nil
	}
	keys, lease := map[string]bool{}, time.Duration(0)
	for _, r := range rows {
		if route := p.registry[r.event.Type]; route.Part != nil && r.circuit != route.Destination {
			keys[r.circuit] = true
			lease = max(lease, route.Timeout+probeMargin)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), p.budget.statement(), errStoreLate)
	defer cancel()
	answer := circuitAnswer{asked: slices.Sorted(maps.Keys(keys)), sent: p.budget.elapsed()}
	answer.loaded, answer.err = p.circuits.store.Load(ctx, answer.asked, lease)
	return &answer
}

// heardParts takes what [pass.askParts] brought, with the rows that it is about.
func (p *pass) heardParts(ctx context.Context, answer *circuitAnswer) {
	switch {
	case answer == nil:
	case answer.err != nil:
		p.circuitsFailed(ctx, answer.err)
	default:
		p.circuits.learn(*answer, true)
	}
}
