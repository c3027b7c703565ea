package outbox

// retriesToOpen is how many retries in a row, from as many different events, are taken for an outage.
const retriesToOpen = 5

// circuits knows which destinations are out, for the length of one pass. The zero value knows of no outage.
type circuits struct {
	open    map[string]bool
	retried map[string]map[string]bool // destination -> events retried since its last success
}

func (c *circuits) isOpen(destination string) bool { return c.open[destination] }

// any tells whether any circuit opened.
func (c *circuits) any() bool { return len(c.open) > 0 }

func (c *circuits) succeeded(destination string) { delete(c.retried, destination) }

// failed counts a retry and tells whether it opened the circuit.
func (c *circuits) failed(destination, eventID string) (opened bool) {
	if c.retried == nil {
		c.retried = map[string]map[string]bool{}
	}
	events := c.retried[destination]
	if events == nil {
		events = map[string]bool{}
		c.retried[destination] = events
	}
	events[eventID] = true
	if len(events) < retriesToOpen || c.isOpen(destination) {
		return false
	}
	c.trip(destination)
	return true
}

func (c *circuits) trip(destination string) {
	if c.open == nil {
		c.open = map[string]bool{}
	}
	c.open[destination] = true
}
