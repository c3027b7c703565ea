package routes

import (
	"fmt"
	"strings"
)

// Lookup tells the value of an environment variable and whether there is one, like os.LookupEnv.
type Lookup func(name string) (string, bool)

// expand replaces each ${NAME} in text by the variable's value, once: what a value holds is not expanded again.
// $${ stands for a literal ${, and any other dollar for itself. Faults name the variable, never a value.
func expand(text string, lookup Lookup) (expanded string, faults []string) {
	var b strings.Builder
	for {
		start := strings.Index(text, "${")
		if start < 0 {
			b.WriteString(text)
			return b.String(), faults
		}
		if start > 0 && text[start-1] == '$' {
			b.WriteString(text[:start-1] + "${")
			text = text[start+2:]
			continue
		}
		b.WriteString(text[:start])
		name, rest, closed := strings.Cut(text[start+2:], "}")
		if !closed {
			return b.String(), append(faults, "a ${ is never closed; write $${ for a literal ${")
		}
		text = rest
		if !isVariable(name) {
			faults = append(faults, "a ${} holds no variable's name, takes letters, digits and _; write $${ for a literal ${")
			continue
		}
		value, found := lookup(name)
		switch {
		case !found:
			faults = append(faults, fmt.Sprintf("environment variable %s is not set", variableLabel(name)))
		case value == "":
			faults = append(faults, fmt.Sprintf("environment variable %s is empty", variableLabel(name)))
		}
		b.WriteString(value)
	}
}

// hasVariable tells whether text that stands where a number or boolean belongs may become one.
func hasVariable(text string) bool { return strings.Contains(text, "${") }

func isVariable(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
