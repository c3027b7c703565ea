package routes

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// routes tells whether every route leads somewhere.
func (p *parser) routes(section entry, names []string, file *File) bool {
	entries, sound := p.mapping(section.value, section.path)
	if sound && len(section.value.Content) == 0 {
		p.report(section.line, section.path, "is empty, takes at least one route")
		return false
	}
	sound = sound && 2*len(entries) == len(section.value.Content) // no key was refused
	for _, e := range entries {
		if isBlank(e.key) {
			p.report(e.line, e.path, "is blank, takes an event type")
		}
		if slices.Contains(file.Known, e.key) {
			p.report(e.line, e.path, "is routed here and known as another worker's, takes one of both")
		}
		route, ok := p.route(e, names, file.Destinations)
		file.Routes[e.key] = route
		sound = sound && ok
	}
	return sound
}

// route reads one route; ok is false when it leads nowhere.
func (p *parser) route(e entry, names []string, destinations map[string]Destination) (route Route, ok bool) {
	if e.value.Kind == yaml.ScalarNode && e.value.ShortTag() == "!!str" {
		p.report(e.value.Line, e.path, "is text, takes a mapping like {to: %s}", exampleName(e.value.Value, names))
		return Route{}, false
	}
	fields, ok := p.fields(e.value, e.path, "to", "max_age", "discard_on", "snooze_on", "on_discard")
	if !ok {
		return Route{}, false
	}
	if to, found := fields["to"]; found {
		route.To, ok = p.to(to, names)
	} else {
		p.report(e.line, e.path, "to is missing, takes the name of a destination")
		ok = false
	}
	destination := destinations[route.To]
	route.MaxAge = p.maxAge(fields, destination.MaxAge)
	route.Outcomes = p.outcomes(fields, destination.Outcomes, destination, e)
	route.OnDiscard = p.onDiscard(fields, destination.OnDiscard)
	return route, ok
}

func (p *parser) to(to entry, names []string) (string, bool) {
	t, ok := p.text(to.value, to.path)
	if len(names) == 0 {
		return t.value, false // there are no destinations, and that is fault enough
	}
	if ok && !slices.Contains(names, t.value) {
		hint := ""
		if !t.expanded {
			hint = suggest(t.value, names)
		}
		p.report(t.line, t.path, "no destination has this name%s", hint)
		ok = false
	}
	return t.value, ok
}

// exampleName returns the name if it is a destination's, else one that is. Any other text is not shown: it may be
// anything, a secret too.
func exampleName(name string, names []string) string {
	for _, candidate := range append([]string{name}, names...) {
		if isName(candidate) && slices.Contains(names, candidate) {
			return candidate
		}
	}
	return "name"
}

// unused reports destinations to which no route leads: a leftover, or the sign of a route that was forgotten.
func (p *parser) unused(section entry, file *File) {
	used := map[string]bool{}
	for _, route := range file.Routes {
		used[route.To] = true
	}
	for i := 0; i+1 < len(section.value.Content); i += 2 {
		if key := section.value.Content[i]; !used[key.Value] {
			p.report(key.Line, join(section.path, key.Value), "no route leads here; add one or remove it")
		}
	}
}
