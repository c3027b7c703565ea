package routes

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kinds are the kinds of destination, in the order in which faults list them.
func kinds() []string { return []string{"http", "sns", "ses"} }

// Parse reads a routes file. name stands before the line in every fault; lookup gives the variables that ${NAME}
// in a value stands for. The error joins all faults, in order of their lines; the File is then empty.
func Parse(data []byte, name string, lookup Lookup) (File, error) {
	p := &parser{name: name, lookup: lookup}
	file := File{Destinations: map[string]Destination{}, Routes: map[string]string{}}
	if root := p.document(data); root != nil {
		p.refuseAnchors(root)
		p.file(root, &file)
	}
	if err := p.err(); err != nil {
		return File{}, err
	}
	return file, nil
}

// document returns the root of the only document; nil when there is none, which was reported then.
func (p *parser) document(data []byte) *yaml.Node {
	if len(data) > maxFileSize {
		p.report(1, "", "holds %d bytes, takes at most %d", len(data), maxFileSize)
		return nil
	}
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		p.report(1, "", "is empty, takes version, destinations and routes")
		return nil
	case err != nil:
		p.syntax(data, err)
		return nil
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		p.report(second.Line, "", "a second document begins, takes one")
	case !errors.Is(err, io.EOF):
		p.syntax(data, err)
	}
	return document.Content[0]
}

func (p *parser) file(root *yaml.Node, file *File) {
	fields, ok := p.fields(root, "", "version", "known", "destinations", "routes")
	if !ok {
		return
	}
	if version, found := fields["version"]; !found {
		p.report(root.Line, "", "version is missing, takes %d", Version)
	} else if version.value.Kind != yaml.ScalarNode || version.value.ShortTag() != "!!int" || version.value.Value != "1" {
		p.report(version.line, "version", "takes %d", Version)
	}
	if known, found := fields["known"]; found {
		file.Known = p.known(known)
	}
	names, sound := []string{}, false
	if destinations, found := fields["destinations"]; found {
		names, sound = p.destinations(destinations, file)
	} else {
		p.report(root.Line, "", "destinations are missing, takes at least one")
	}
	if routes, found := fields["routes"]; !found {
		p.report(root.Line, "", "routes are missing, takes at least one")
	} else if p.routes(routes, names, file) && sound {
		p.unused(fields["destinations"], file)
	}
}

func (p *parser) known(known entry) []string {
	var types []string
	for _, t := range p.texts(known.value, known.path) {
		switch {
		case isBlank(t.value):
			p.report(t.line, t.path, "is blank, takes an event type")
		case slices.Contains(types, t.value):
			p.report(t.line, t.path, "names a type a second time")
		default:
			types = append(types, t.value)
		}
	}
	return types
}

// destinations returns the names it found, faulty destinations included, so that routes to those are not faults too.
func (p *parser) destinations(section entry, file *File) (names []string, ok bool) {
	entries, ok := p.mapping(section.value, section.path)
	if ok && len(section.value.Content) == 0 {
		p.report(section.line, section.path, "is empty, takes at least one destination")
	}
	for _, e := range entries {
		names = append(names, e.key)
		if !isName(e.key) {
			p.report(e.line, e.path, "is no name, takes up to 64 letters, digits, dots, _ and -, a letter or digit first")
		}
		file.Destinations[e.key] = p.destination(e)
	}
	return names, ok
}

func (p *parser) destination(e entry) Destination {
	fields, ok := p.fields(e.value, e.path, kinds()...)
	switch {
	case ok && len(e.value.Content) == 0:
		p.report(e.line, e.path, "has no kind, takes one of %s", strings.Join(kinds(), ", "))
	case len(fields) > 1:
		p.report(e.line, e.path, "has %d kinds, takes one", len(fields))
	}
	if kind, found := fields["http"]; found {
		return p.http(kind)
	}
	if kind, found := fields["sns"]; found {
		return p.sns(kind)
	}
	if kind, found := fields["ses"]; found {
		return p.ses(kind)
	}
	return Destination{}
}

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
		to, ok := p.to(e, names)
		file.Routes[e.key] = to
		sound = sound && ok
	}
	return sound
}

func (p *parser) to(route entry, names []string) (string, bool) {
	if route.value.Kind == yaml.ScalarNode && route.value.ShortTag() == "!!str" {
		p.report(route.value.Line, route.path, "is text, takes a mapping like {to: %s}", exampleName(route.value.Value, names))
		return "", false
	}
	fields, ok := p.fields(route.value, route.path, "to")
	if !ok {
		return "", false
	}
	to, found := fields["to"]
	if !found {
		p.report(route.line, route.path, "to is missing, takes the name of a destination")
		return "", false
	}
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
	for _, name := range file.Routes {
		used[name] = true
	}
	for i := 0; i+1 < len(section.value.Content); i += 2 {
		if key := section.value.Content[i]; !used[key.Value] {
			p.report(key.Line, join(section.path, key.Value), "no route leads here; add one or remove it")
		}
	}
}

// isBlank follows the rail: only spaces count.
func isBlank(eventType string) bool { return strings.Trim(eventType, " ") == "" }

func isName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			continue
		}
		if i == 0 || c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= 64
}
