package outbox

import (
	"fmt"
	"slices"
)

// outDestinations are those whose circuit is open for the next pass too.
func (p *pass) outDestinations() (out []string) {
	if p.circuits.store == nil {
		return nil
	}
	for _, route := range p.registry {
		if p.circuits.isOpen(route.Destination) && !slices.Contains(out, route.Destination) {
			out = append(out, route.Destination)
		}
	}
	slices.Sort(out)
	return out
}

// openDestinations names the circuits that are open, to compare.
func (p *pass) openDestinations() string {
	var open []string
	for destination, known := range p.circuits.known {
		if known.open {
			open = append(open, destination)
		}
	}
	slices.Sort(open)
	return fmt.Sprintf("%q", open)
}
