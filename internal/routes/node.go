package routes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parser walks the file's nodes and collects faults instead of stopping at the first.
type parser struct {
	name   string
	lookup Lookup
	faults []fault

	leave   func(name string) bool // what lookup does not know, and is no fault
	unknown []Unknown
}

type fault struct {
	line          int
	path, problem string
}

func (p *parser) report(line int, path, format string, args ...any) {
	p.faults = append(p.faults, fault{line: line, path: path, problem: fmt.Sprintf(format, args...)})
}

// err joins the faults in order of their lines; nil when there are none.
func (p *parser) err() error {
	slices.SortStableFunc(p.faults, func(a, b fault) int { return a.line - b.line })
	all := make([]error, len(p.faults))
	for i, f := range p.faults {
		where := fmt.Sprintf("%s:%d: ", p.name, f.line)
		if f.path != "" {
			where += f.path + ": "
		}
		all[i] = errors.New(where + f.problem)
	}
	return errors.Join(all...)
}

// entry is one key of a mapping and its value.
type entry struct {
	key   string
	line  int    // of the key
	path  string // of the value
	value *yaml.Node
}

// text is a scalar with its variables replaced.
type text struct {
	value    string
	line     int
	path     string
	expanded bool // holds what came from the environment
}

// refuseAnchors reports every anchor and alias: a routes file needs none, and nested ones explode.
func (p *parser) refuseAnchors(node *yaml.Node) {
	if node.Anchor != "" {
		p.report(node.Line, "", "anchors (&name) are not taken")
	}
	if node.Kind == yaml.AliasNode {
		p.report(node.Line, "", "aliases (*name) are not taken")
		return
	}
	for _, child := range node.Content {
		p.refuseAnchors(child)
	}
}

// mapping returns the entries of a mapping; ok is false when it is none, which was reported then.
func (p *parser) mapping(node *yaml.Node, path string) (entries []entry, ok bool) {
	if node.Kind != yaml.MappingNode {
		p.wrongKind(node, path, "a mapping")
		return nil, false
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			p.report(key.Line, path, "has a key that is no text; put it in quotes")
			continue
		}
		if first, again := lines[key.Value]; again {
			p.report(key.Line, path, "has the key %s twice, first on line %d", label(key.Value), first)
			continue
		}
		lines[key.Value] = key.Line
		entries = append(entries, entry{key: key.Value, line: key.Line, path: join(path, key.Value), value: value})
	}
	return entries, true
}

// fields returns the entries of a mapping that takes certain keys only.
func (p *parser) fields(node *yaml.Node, path string, taken ...string) (fields map[string]entry, ok bool) {
	entries, ok := p.mapping(node, path)
	fields = make(map[string]entry, len(entries))
	for _, e := range entries {
		if !slices.Contains(taken, e.key) {
			p.report(e.line, path, "unknown key %s%s, takes %s", label(e.key), suggest(e.key, taken), strings.Join(taken, ", "))
			continue
		}
		fields[e.key] = e
	}
	return fields, ok
}

// text returns a scalar's text; ok is false when it is none or a variable is missing, which was reported or noted then.
func (p *parser) text(node *yaml.Node, path string) (t text, ok bool) {
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str" {
		p.wrongKind(node, path, "text")
		return text{}, false
	}
	value, problems, missing := expand(node.Value, p.lookup)
	for _, problem := range problems {
		p.report(node.Line, path, "%s", problem)
	}
	for _, name := range missing {
		if p.leave(name) {
			p.unknown = append(p.unknown, Unknown{Name: name, Line: node.Line, Field: path})
		} else {
			p.report(node.Line, path, "%s is not set", sourceLabel(name))
		}
	}
	t = text{value: value, line: node.Line, path: path, expanded: value != node.Value}
	return t, len(problems)+len(missing) == 0
}

// texts returns those items of a list that are sound.
func (p *parser) texts(node *yaml.Node, path string) []text {
	if node.Kind != yaml.SequenceNode {
		p.wrongKind(node, path, "a list")
		return nil
	}
	var items []text
	for i, child := range node.Content {
		if item, ok := p.text(child, fmt.Sprintf("%s[%d]", path, i)); ok {
			items = append(items, item)
		}
	}
	return items
}

// truth returns a boolean, or false once a fault was reported.
func (p *parser) truth(node *yaml.Node, path string) bool {
	value := node.Value
	switch {
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!bool":
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!str" && hasVariable(value):
		t, ok := p.text(node, path)
		if !ok {
			return false
		}
		value = t.value
	default:
		p.wrongKind(node, path, "true or false")
		return false
	}
	switch strings.ToLower(value) {
	case "true":
		return true
	case "false":
	default:
		p.report(node.Line, path, "takes true or false")
	}
	return false
}

// wrongKind says what a node is and what is taken instead. Aliases have been reported already.
func (p *parser) wrongKind(node *yaml.Node, path, takes string) {
	got := ""
	switch node.Kind {
	case yaml.AliasNode:
		return
	case yaml.MappingNode:
		got = "a mapping"
	case yaml.SequenceNode:
		got = "a list"
	default:
		got = scalarKind(node.ShortTag())
		if takes == "text" && got != "nothing" {
			takes = "text: put it in quotes"
		}
	}
	p.report(node.Line, path, "is %s, takes %s", got, takes)
}

// scalarKind never shows the tag itself: a password that was left without quotes may begin with an exclamation mark.
func scalarKind(tag string) string {
	switch tag {
	case "!!null":
		return "nothing"
	case "!!str":
		return "text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date"
	default:
		return "tagged with an exclamation mark"
	}
}

// join appends a key to a path: a.b, or a["b.c"] where the key has more than letters, digits, _ and -.
func join(path, key string) string {
	plain := key != "" && !looksSecret(key) && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
	switch {
	case !plain:
		return path + "[" + label(key) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}
