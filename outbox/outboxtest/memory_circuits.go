package outboxtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// memoryCircuit is one destination's circuit.
type memoryCircuit struct {
	openUntil  time.Time // zero: closed
	probeUntil time.Time
	openings   int
	retried    []string
	held       bool // until an operator resets it
}

// The times of a circuit, and the retries that open it.
const (
	firstOpen     = 30 * time.Second
	longestOpen   = 5 * time.Minute
	retriesToOpen = 5
)

// Load implements [outbox.Circuits].
func (m *Memory) Load(ctx context.Context, destinations []string, lease time.Duration) ([]outbox.Circuit, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("load circuits: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var found []outbox.Circuit
	for _, destination := range destinations {
		c := m.circuits[destination]
		if c == nil || (!c.held && c.openUntil.IsZero() && len(c.retried) == 0) {
			continue
		}
		circuit := c.state(destination, now)
		if circuit.Open && !c.held && !c.openUntil.After(now) && !c.probeUntil.After(now) {
			c.probeUntil = now.Add(wholeSeconds(lease))
			circuit.Open, circuit.Probe = false, true
		}
		found = append(found, circuit)
	}
	return found, nil
}

// Report implements [outbox.Circuits].
func (m *Memory) Report(ctx context.Context, report outbox.CircuitReport) (outbox.Circuit, error) {
	if err := ctx.Err(); err != nil {
		return outbox.Circuit{}, fmt.Errorf("report on circuit: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.circuits == nil {
		m.circuits = map[string]*memoryCircuit{}
	}
	c := m.circuits[report.Destination]
	if c == nil {
		c = &memoryCircuit{}
		m.circuits[report.Destination] = c
	}
	now := m.now()
	c.held = c.held || report.Hold
	if report.Success {
		*c = memoryCircuit{held: c.held}
		return c.state(report.Destination, now), nil
	}
	for _, id := range report.Retried {
		if !slices.Contains(c.retried, id) && len(c.retried) < retriesToOpen {
			c.retried = append(c.retried, id)
		}
	}
	if report.Failure || len(c.retried) >= retriesToOpen {
		if !c.openUntil.After(now) {
			c.openings++
		}
		length := max(min(firstOpen<<min(c.openings-1, 10), longestOpen), min(wholeSeconds(report.Wait), time.Hour))
		if until := now.Add(length); until.After(c.openUntil) {
			c.openUntil = until
		}
		c.probeUntil, c.retried = time.Time{}, nil
	}
	return c.state(report.Destination, now), nil
}

func (c *memoryCircuit) state(destination string, now time.Time) outbox.Circuit {
	circuit := outbox.Circuit{Destination: destination, Openings: c.openings, Retried: slices.Clone(c.retried)}
	switch {
	case c.held:
		circuit.Open, circuit.Wait = true, -1
	case !c.openUntil.IsZero():
		circuit.Open = true
		circuit.Wait = max(c.openUntil.Sub(now), c.probeUntil.Sub(now), 0)
	}
	return circuit
}
