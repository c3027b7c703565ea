package routes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/openlup/outbox-dispatch/handlers"
)

const (
	day = 24 * time.Hour
	// longestAge is a hundred years: more is a mistake.
	longestAge = 36500 * day
)

// rate reads events per second, or zero once a fault was reported.
func (p *parser) rate(field entry) float64 {
	node, value := field.value, field.value.Value
	switch {
	case node.Kind == yaml.ScalarNode && (node.ShortTag() == "!!int" || node.ShortTag() == "!!float"):
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!str" && hasVariable(value):
		t, ok := p.text(node, field.path)
		if !ok {
			return 0
		}
		value = t.value
	default:
		p.wrongKind(node, field.path, "a number")
		return 0
	}
	number, err := strconv.ParseFloat(value, 64)
	if err != nil || strings.Trim(value, "0123456789.") != "" || number <= 0 || number > maxRate {
		p.report(node.Line, field.path, "is no number of events per second, takes one like 14 or 0.5, up to 1000000")
		return 0
	}
	return number
}

// maxAge reads max_age; without one it is otherwise.
func (p *parser) maxAge(fields map[string]entry, otherwise time.Duration) time.Duration {
	field, found := fields["max_age"]
	if !found {
		return otherwise
	}
	t, ok := p.duration(field, "7d")
	if !ok {
		return otherwise
	}
	age, ok := parseAge(t.value)
	if !ok {
		p.report(t.line, t.path, "is no age, takes one like 7d, 12h, 1d12h, 15m or 30s, up to 36500d")
	}
	return age
}

// parseAge reads whole numbers with units from days to seconds; zero is none.
func parseAge(text string) (age time.Duration, ok bool) {
	units := map[byte]time.Duration{'d': day, 'h': time.Hour, 'm': time.Minute, 's': time.Second}
	for text != "" {
		end := strings.IndexFunc(text, func(c rune) bool { return c < '0' || c > '9' })
		if end < 1 {
			return 0, false
		}
		n, err := strconv.ParseUint(text[:end], 10, 32)
		unit := units[text[end]]
		if err != nil || unit == 0 || time.Duration(n) > (longestAge-age)/unit {
			return 0, false
		}
		age, text = age+time.Duration(n)*unit, text[end+1:]
	}
	return age, age > 0
}

// outcomes reads discard_on and snooze_on; a list that is not there is inherited. They name reasons that exist at the
// destination; owner is what the lists belong to.
func (p *parser) outcomes(fields map[string]entry, inherited handlers.Outcomes, at Destination, owner entry) handlers.Outcomes {
	_, discards := fields["discard_on"]
	if _, snoozes := fields["snooze_on"]; !discards && !snoozes {
		return inherited // as most do; there are hundreds of reasons
	}
	reasons, seen := at.reasons(), places{}
	read := func(name string, otherwise []string) []string {
		if field, found := fields[name]; found {
			return p.reasons(field, name, reasons, seen)
		}
		return otherwise
	}
	outcomes := handlers.Outcomes{
		DiscardOn: read("discard_on", inherited.DiscardOn), SnoozeOn: read("snooze_on", inherited.SnoozeOn),
	}
	if reasons == nil {
		return handlers.Outcomes{}
	}
	for _, fault := range outcomes.Faults(reasons) { // each reason exists: it is in both lists
		place, own := seen[fault.Field]
		if !own { // the destination's list; the route has the other one
			place = text{line: owner.line, path: owner.path}
		}
		if len(seen) > 0 {
			p.report(place.line, place.path, "%s", fault.Problem)
		}
	}
	return outcomes
}

// reasons returns those items of a list that exist, by their place. A status may stand for its reason.
func (p *parser) reasons(field entry, name string, exist []string, seen places) (list []string) {
	if field.value.Kind != yaml.SequenceNode {
		p.wrongKind(field.value, field.path, "a list")
		return nil
	}
	for i, child := range field.value.Content {
		path := fmt.Sprintf("%s[%d]", field.path, i)
		t := text{value: child.Value, line: child.Line, path: path}
		if child.Kind != yaml.ScalarNode || child.ShortTag() != "!!int" {
			var sound bool
			if t, sound = p.text(child, path); !sound {
				continue
			}
		}
		reason := t.value
		isStatus := len(reason) == 3 && strings.Trim(reason, "0123456789") == ""
		if isStatus {
			reason = "http_" + reason
		}
		if exist == nil {
			continue
		}
		if !slices.Contains(exist, reason) {
			hint := ""
			if !t.expanded && !isStatus { // another status is no better
				hint = suggest(reason, exist)
			}
			p.report(t.line, t.path, "is no reason of a failure there%s; docs/routes.md and docs/faults.md list them", hint)
			continue
		}
		seen[fmt.Sprintf("%s[%d]", name, len(list))] = t
		list = append(list, reason)
	}
	return list
}
