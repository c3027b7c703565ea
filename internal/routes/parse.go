package routes

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Parse reads a routes file. name stands before the line in every fault; lookup gives the variables and secrets that
// ${NAME} in a value stands for. The error joins all faults, in order of their lines; the File is then empty.
func Parse(data []byte, name string, lookup Lookup) (File, error) {
	p := &parser{name: name, lookup: lookup, leave: func(string) bool { return false }}
	return p.parse(data)
}

// Unknown is a value that a check could not look at.
type Unknown struct {
	// Name is the variable's, or the secret's reference.
	Name string
	// Line and Field are where it stands.
	Line  int
	Field string
}

// Label is the name as faults show it: of a secret without account and region.
func (u Unknown) Label() string { return sourceLabel(u.Name) }

// Check is [Parse] where not all variables and secrets are at hand: what lookup does not know is no fault but unknown,
// where leave says so by its name, and the fields that hold it are not looked at. The File is for looking at only, unless
// nothing is unknown: then it is Parse's.
func Check(data []byte, name string, lookup Lookup, leave func(name string) bool) (File, []Unknown, error) {
	p := &parser{name: name, lookup: lookup, leave: leave}
	file, err := p.parse(data)
	return file, p.unknown, err
}

func (p *parser) parse(data []byte) (File, error) {
	file := File{Destinations: map[string]Destination{}, Routes: map[string]Route{}}
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
	fields, ok := p.fields(root, "", "version", "source", "known", "destinations", "routes")
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
	sourceField, hasSource := fields["source"]
	source := p.source(sourceField, hasSource)
	names, sound := []string{}, false
	if destinations, found := fields["destinations"]; found {
		names, sound = p.destinations(destinations, file, source)
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
func (p *parser) destinations(section entry, file *File, source string) (names []string, ok bool) {
	entries, ok := p.mapping(section.value, section.path)
	if ok && len(section.value.Content) == 0 {
		p.report(section.line, section.path, "is empty, takes at least one destination")
	}
	for _, e := range entries {
		names = append(names, e.key)
		if !isName(e.key) {
			p.report(e.line, e.path, "is no name, takes up to 64 letters, digits, dots, _ and -, a letter or digit first")
		}
		file.Destinations[e.key] = p.destination(e, source)
	}
	return names, ok
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
