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

// http reads the kind http.
func (p *parser) http(kind entry) Destination {
	fields, ok := p.fields(kind.value, kind.path, "url", "secrets", "timeout", "allow_http", "allow_ports", "allow_private")
	if !ok {
		return Destination{}
	}
	seen := places{}
	config := handlers.HTTPConfig{URL: p.required(kind, fields, "url", seen)}
	if secrets, found := fields["secrets"]; found {
		config.Secrets = p.list(secrets, "secrets", seen)
	}
	networksSound := p.network(fields, &config)
	p.reportFields(config.Faults(), seen)
	// A network that was refused is fault enough: it may be the one that is missing.
	if blocked := config.BlockedHost(); blocked != nil && networksSound {
		p.report(seen["url"].line, seen["url"].path, "%s", blocked.Problem)
	}
	return Destination{HTTP: &config, Timeout: p.webhookTimeout(fields)}
}

// network reads what may be reached. It tells whether each network that may is known.
func (p *parser) network(fields map[string]entry, config *handlers.HTTPConfig) (networksSound bool) {
	if allow, found := fields["allow_http"]; found {
		before := len(p.unknown)
		config.AllowHTTP = p.truth(allow.value, allow.path) || len(p.unknown) > before // unknown is no fault of the URL
	}
	if allow, found := fields["allow_ports"]; found {
		config.AllowPorts = p.ports(allow.value, allow.path)
	}
	if allow, found := fields["allow_private"]; found {
		before := len(p.faults) + len(p.unknown)
		for _, t := range p.texts(allow.value, allow.path) {
			if prefix, sound := p.prefix(t); sound {
				config.AllowPrivate = append(config.AllowPrivate, prefix)
			}
		}
		return len(p.faults)+len(p.unknown) == before
	}
	return true
}

// places are where the values stand that a handler's own check looks at, by the field's name in its faults. One that is
// not here has been reported already.
type places map[string]text

// required returns the text of a field that must be there; without it the handler's check says what is missing.
func (p *parser) required(kind entry, fields map[string]entry, name string, seen places) string {
	field, found := fields[name]
	if !found {
		seen[name] = text{line: kind.line, path: join(kind.path, name)}
		return ""
	}
	t, sound := p.text(field.value, field.path)
	if !sound {
		return ""
	}
	seen[name] = t
	return t.value
}

// list returns those texts of a list that are sound.
func (p *parser) list(field entry, name string, seen places) (values []string) {
	for _, t := range p.texts(field.value, field.path) {
		seen[fmt.Sprintf("%s[%d]", name, len(values))] = t
		values = append(values, t.value)
	}
	return values
}

// reportFields reports what a handler's own check found.
func (p *parser) reportFields(faults []*handlers.FieldError, seen places) {
	for _, fault := range faults {
		if place, unreported := seen[fault.Field]; unreported {
			p.report(place.line, place.path, "%s", fault.Problem)
		}
	}
}

// ports reads a list of ports: numbers, and ranges like 8000-8999. With a fault it returns all there are: the one that
// was refused may be the URL's, and its fault is enough.
func (p *parser) ports(node *yaml.Node, path string) (ports []handlers.Ports) {
	before := len(p.faults)
	defer func() {
		if len(p.faults) > before {
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

func (p *parser) webhookTimeout(fields map[string]entry) time.Duration {
	return p.timeout(fields["timeout"], DefaultTimeout)
}

// timeout reads a duration; an entry without value is one that the file doesn't hold.
func (p *parser) timeout(e entry, otherwise time.Duration) time.Duration {
	if e.value == nil {
		return otherwise
	}
	t, ok := p.text(e.value, e.path)
	if !ok {
		return otherwise
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
