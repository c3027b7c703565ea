package outbox

import "context"

// probeNext starts the claim of one row that shows whether its destination is back: a lost one of these aggregates, if there are
// any. All other types are held.
func (p *pass) probeNext(ctx context.Context, destination string, lost []Aggregate) {
	var claimable, held []string
	for _, name := range p.names {
		route := p.registry[name]
		if route.Destination == destination && !p.held[name] && p.budget.fits(route.Timeout, p.budget.soft) {
			claimable = append(claimable, name)
		} else {
			held = append(held, name)
		}
	}
	if len(claimable) == 0 {
		p.circuits.unprobed(destination)
		return
	}
	p.send(ctx, ClaimRequest{
		EventTypes: claimable, KnownTypes: p.config.KnownTypes, HeldTypes: held, BatchSize: 1, LaneDepth: 1,
		Visibility: p.config.Visibility, MaxAttempts: p.config.MaxAttempts, Lanes: lost, Recover: len(lost) > 0,
	}, claimed{probe: destination, recover: len(lost) > 0})
}
