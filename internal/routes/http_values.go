package routes

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/openlup/outbox-dispatch/handlers"
)

// ports reads a list of ports: numbers, and ranges like 8000-8999. With a fault it returns all there are: the one that
// was refused may be the URL's, and its fault is enough.
func (p *parser) ports(node *yaml.Node, path string) (ports []handlers.Ports) {
	before := len(p.faults) + len(p.unknown)
	defer func() {
		if len(p.faults)+len(p.unknown) > before {
			ports = []handlers.Ports{{First: 1, Last: math.MaxUint16}}
		}
	}()
	if node.Kind != yaml.SequenceNode {
		p.wrongKind(node, path, "a list")
		return nil
	}
	for i, child := range node.Content {
		item := fmt.Sprintf("%s[%d]", path, i)
		t := text{value: child.Value, line: child.Line}
		if child.Kind != yaml.ScalarNode || child.ShortTag() != "!!int" {
			var sound bool
			if t, sound = p.text(child, item); !sound {
				continue
			}
		}
		if allowed, sound := parsePorts(t.value); sound {
			ports = append(ports, allowed)
		} else {
			p.report(t.line, item, "is no port, takes one like 8443, or several like 8000-8999")
		}
	}
	return ports
}

func parsePorts(value string) (handlers.Ports, bool) {
	first, last, several := strings.Cut(value, "-")
	if !several {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, otherErr := strconv.ParseUint(last, 10, 16)
	sound := err == nil && otherErr == nil && from > 0 && from <= to
	return handlers.Ports{First: uint16(from), Last: uint16(to)}, sound
}

// networks reads a list of networks. With a fault it returns all there are, as ports does.
func (p *parser) networks(node *yaml.Node, path string) (networks []netip.Prefix) {
	before := len(p.faults) + len(p.unknown)
	for _, t := range p.texts(node, path) {
		if prefix, sound := p.prefix(t); sound {
			networks = append(networks, prefix)
		}
	}
	if len(p.faults)+len(p.unknown) > before {
		return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	return networks
}

func (p *parser) prefix(t text) (netip.Prefix, bool) {
	prefix, err := netip.ParsePrefix(t.value)
	switch {
	case err != nil:
		p.report(t.line, t.path, "is no network, takes one like 10.0.0.0/8 or fd00::/8%s", networkHint(t))
		return prefix, false
	case handlers.CheckPrefix(prefix) == nil:
		return prefix, true
	case t.expanded:
		p.report(t.line, t.path, "has bits set after its length, or is no IPv4 network in its own form")
	default:
		p.report(t.line, t.path, "%v", handlers.CheckPrefix(prefix))
	}
	return prefix, false
}

// networkHint is for an address that lacks its length.
func networkHint(t text) string {
	address, err := netip.ParseAddr(t.value)
	if err != nil || t.expanded || address.Zone() != "" {
		return ""
	}
	address = address.Unmap()
	return fmt.Sprintf("; did you mean %v/%d?", address, address.BitLen())
}

// timeout reads a duration; an entry without value is one that the file doesn't hold, and gives the default.
func (p *parser) timeout(e entry) time.Duration {
	if e.value == nil {
		return DefaultTimeout
	}
	t, ok := p.duration(e, "10s")
	if !ok {
		return DefaultTimeout
	}
	timeout, err := time.ParseDuration(t.value)
	// Only units that a person writes; a digit first leaves signs out.
	if err != nil || t.value[0] < '0' || t.value[0] > '9' || strings.ContainsAny(t.value, "nuµμ") {
		p.report(t.line, t.path, "is no duration, takes one like 10s, 500ms or 1m30s")
	} else if timeout < MinTimeout || timeout > MaxTimeout {
		p.report(t.line, t.path, "is out of range, takes 100ms to 900s")
	}
	return timeout
}

// duration returns the text of a duration. A bare number lacks its unit, and quotes would not give it one.
func (p *parser) duration(e entry, example string) (t text, ok bool) {
	if tag := e.value.ShortTag(); e.value.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float") {
		p.wrongKind(e.value, e.path, "a duration like "+example)
		return text{}, false
	}
	return p.text(e.value, e.path)
}

// whole returns a whole number from zero, or zero once a fault was reported.
func (p *parser) whole(node *yaml.Node, path string) int {
	return p.atLeast(0, node, path, "is no whole number, zero or above, written in digits")
}
