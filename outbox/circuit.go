package outbox

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"
)

const (
	// retriesToOpen is how many retries in a row, from as many different events, are taken for an outage.
	retriesToOpen = 5
	// firstOpen and longestOpen are how long a circuit stays open the first time and at most; see [CircuitReport].
	firstOpen   = 30 * time.Second
	longestOpen = 5 * time.Minute
	// circuitsEvery is how often a long pass looks at the circuits that others share.
	circuitsEvery = 15 * time.Second
	// probeMargin is what a probe's lease has beside the handler's timeout.
	probeMargin = 10 * time.Second
)

// circuit is what a pass knows of one destination.
type circuit struct {
	open     bool
	probing  bool          // open, and this pass has a row of it in flight or to claim
	due      bool          // of a part: the next claimed row of it is that row
	wait     time.Duration // how long it is sure to stay open; zero: nobody said
	openings int
	retried  map[string]bool // events retried since the last success
	stored   bool            // the store holds retries that a success must clear
	reason   string          // of a retry that the store was not told of yet
	told     time.Duration   // until when, by the pass's clock, the store may not have known what this pass found
}

// circuits knows which destinations are out. State that a store shares is loaded when a pass starts, and now and then
// while it runs; what the pass finds is reported by a call of its own, at most one at a time.
type circuits struct {
	store   Circuits // nil: the circuits live in the pass only
	known   map[string]*circuit
	opened  bool     // some circuit, in this pass
	probes  []string // destinations of which one row is to be claimed
	reports []CircuitReport
	calling bool
	// reporting is the destination that the call under way reports on; empty when there is none.
	reporting string
	next      time.Duration // when to load again
	answers   chan circuitAnswer
}

// circuitAnswer is what a call brought back.
type circuitAnswer struct {
	asked    []string      // of a load
	loaded   []Circuit     // of a load
	sent     time.Duration // of a load: before the call
	report   *CircuitReport
	reported Circuit
	err      error
}

func (c *circuits) of(destination string) *circuit {
	if c.known == nil {
		c.known = map[string]*circuit{}
	}
	if c.known[destination] == nil {
		c.known[destination] = newCircuit()
	}
	return c.known[destination]
}

func newCircuit() *circuit { return &circuit{retried: map[string]bool{}} }

func (c *circuits) isOpen(destination string) bool {
	known := c.known[destination]
	return known != nil && known.open
}

// succeeded notes a delivery that started while the circuit was closed.
func (c *circuits) succeeded(destination string) {
	known := c.known[destination]
	if known == nil || known.open || len(known.retried) == 0 {
		return
	}
	if known.stored {
		c.report(CircuitReport{Destination: destination, Success: true})
	}
	c.known[destination] = newCircuit()
}

// failed counts a retry and tells whether it opened the circuit.
func (c *circuits) failed(destination, eventID, reason string) (opened bool) {
	known := c.of(destination)
	known.retried[eventID], known.reason = true, orDefault(reason, "retry")
	if len(known.retried) < retriesToOpen || known.open {
		return false
	}
	c.trip(destination, reason, 0)
	return true
}

// trip opens a circuit.
func (c *circuits) trip(destination, reason string, wait time.Duration) {
	known := c.of(destination)
	*known = circuit{
		open: true, openings: known.openings + 1, retried: map[string]bool{}, wait: max(c.openFor(destination), wait),
	}
	c.opened = true
	c.report(CircuitReport{Destination: destination, Failure: true, Error: reason, Wait: wait})
}

// disable opens a circuit until an operator resets it.
func (c *circuits) disable(destination, reason string) {
	*c.of(destination) = circuit{open: true, retried: map[string]bool{}, wait: longestOpen}
	c.opened = true
	c.report(CircuitReport{Destination: destination, Hold: true, Error: reason})
}

// close ends an outage: a probe was answered.
func (c *circuits) close(destination string) {
	c.known[destination] = newCircuit()
	c.report(CircuitReport{Destination: destination, Success: true})
}

// waitOf is how long a circuit is sure to stay open, or otherwise.
func (c *circuits) waitOf(destination string, otherwise time.Duration) time.Duration {
	return orDefault(c.of(destination).wait, otherwise)
}

// unprobed notes that probes came to no end: their circuits stay open, and others probe when the leases are over.
func (c *circuits) unprobed(destinations ...string) {
	for _, destination := range destinations {
		c.of(destination).probing = false
	}
}

// openFor is how long the circuit stays open when it opens next.
func (c *circuits) openFor(destination string) time.Duration {
	return min(firstOpen<<min(c.of(destination).openings, 10), longestOpen)
}

func (c *circuits) report(r CircuitReport) {
	if c.store != nil {
		c.reports = append(c.reports, r)
	}
}

// learn takes what the store knows of those asked for. Of a part it has a claimed row probe; of a destination such a row
// is still to be claimed.
func (c *circuits) learn(answer circuitAnswer, parts bool) {
	found := map[string]bool{}
	for _, shared := range answer.loaded {
		found[shared.Destination] = true
		known := c.of(shared.Destination)
		if known.probing || known.told > answer.sent || c.pending(shared.Destination) {
			continue // this pass knows better, or is about to
		}
		known.open, known.openings, known.wait = shared.Open || shared.Probe, shared.Openings, shared.Wait
		if shared.Wait < 0 {
			known.wait = longestOpen
		}
		for _, id := range shared.Retried {
			known.retried[id], known.stored = true, true
		}
		if shared.Probe {
			known.probing, known.due = true, parts
			if !parts {
				c.probes = append(c.probes, shared.Destination)
			}
		}
	}
	for _, destination := range answer.asked {
		known := c.known[destination]
		if known != nil && known.open && !known.probing && known.told <= answer.sent && !found[destination] && !c.pending(destination) {
			c.known[destination] = newCircuit()
		}
	}
}

// pending tells that the store has not answered yet what this pass found.
func (c *circuits) pending(destination string) bool {
	return c.reporting == destination ||
		slices.ContainsFunc(c.reports, func(r CircuitReport) bool { return r.Destination == destination })
}

// loadCircuits asks the store before the first claim. A store that cannot tell is no reason not to deliver.
func (p *pass) loadCircuits(ctx context.Context) {
	if p.circuits.store == nil {
		return
	}
	answer := p.askCircuits(ctx, nil)
	p.heardCircuits(ctx, answer)
}

// tendCircuits starts the next call about circuits, and returns when to ask again; zero means not before a message.
func (p *pass) tendCircuits(ctx context.Context, busy bool) time.Duration {
	c := &p.circuits
	if c.store == nil || c.calling {
		return 0
	}
	now := p.budget.elapsed()
	var report *CircuitReport
	if now-p.budget.soft > MarkMargin {
		c.reports = nil // of many parts; others find out by themselves, as this pass did
	}
	switch {
	case len(c.reports) > 0:
		report = &c.reports[0]
		c.reports, c.reporting = c.reports[1:], report.Destination
	case !busy || p.ended || p.failure != nil || ctx.Err() != nil:
		return 0
	case now < c.next:
		return c.next - now
	}
	c.calling = true
	go func() { c.answers <- p.askCircuits(ctx, report) }()
	return 0
}

// askCircuits reports, or loads when there is nothing to report. Like an acknowledgement, it is no matter of ctx's end.
func (p *pass) askCircuits(ctx context.Context, report *CircuitReport) circuitAnswer {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), p.budget.statement(), errStoreLate)
	defer cancel()
	answer := circuitAnswer{report: report}
	if report != nil {
		answer.reported, answer.err = p.circuits.store.Report(ctx, *report)
		return answer
	}
	destinations, lease := map[string]bool{}, time.Duration(0)
	for _, route := range p.registry {
		destinations[route.Destination] = true
		lease = max(lease, route.Timeout+probeMargin)
	}
	answer.asked, answer.sent = slices.Sorted(maps.Keys(destinations)), p.budget.elapsed()
	answer.loaded, answer.err = p.circuits.store.Load(ctx, answer.asked, lease)
	return answer
}

func (p *pass) circuitsFailed(ctx context.Context, err error) {
	p.report.log(ctx, slog.LevelWarn, "circuits_failed", slog.StringValue(cut(cleanText(err.Error()), safeMessage)))
}

// heardCircuits takes the answer. After a failure the pass goes on by what it finds itself.
func (p *pass) heardCircuits(ctx context.Context, answer circuitAnswer) {
	c := &p.circuits
	c.calling, c.reporting = false, ""
	c.next = p.budget.elapsed() + circuitsEvery
	switch {
	case answer.err != nil:
		p.circuitsFailed(ctx, answer.err)
	case answer.report != nil:
		c.of(answer.report.Destination).told = p.budget.elapsed() // a load sent before may not show it
		// Others' retries count as well: the fifth may have been this one.
		if known := c.of(answer.report.Destination); answer.reported.Open && !known.open && answer.report.Retried != nil {
			known.open, c.opened = true, true
		}
	default:
		was := p.openDestinations()
		c.learn(answer, false)
		if was != p.openDestinations() {
			p.beginAgain()
		}
	}
}

// reportRetries tells the store, at the end of a pass, of retries that did not open a circuit. Those of parts may be too many
// for the time that is left.
func (p *pass) reportRetries(ctx context.Context) {
	whole := map[string]bool{}
	for _, route := range p.registry {
		whole[route.Destination] = true
	}
	for _, destination := range slices.Sorted(maps.Keys(p.circuits.known)) {
		known := p.circuits.known[destination]
		if p.circuits.store == nil || known.reason == "" || (!whole[destination] && p.budget.left() == 0) {
			continue
		}
		report := CircuitReport{Destination: destination, Retried: slices.Sorted(maps.Keys(known.retried)), Error: known.reason}
		p.heardCircuits(ctx, p.askCircuits(ctx, &report))
	}
}
