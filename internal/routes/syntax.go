package routes

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// syntax reports an error of the YAML reader, which names the line in its text, with a hint for what happens often.
func (p *parser) syntax(data []byte, err error) {
	line, problem := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if _, scanErr := fmt.Sscanf(problem, "line %d:", &line); scanErr == nil {
		_, problem, _ = strings.Cut(problem, ": ")
		if slices.Contains(uncounted(), problem) {
			line++
		}
	}
	hint := ""
	switch at := bareVariable(data); {
	case strings.HasPrefix(problem, "unknown anchor"):
		problem = "aliases (*name) are not taken" // theirs quotes the name, which may be a secret without quotes
	case at > 0 && strings.HasPrefix(problem, "did not find expected ','"):
		line, hint = at, `; inside braces and brackets a value with ${NAME} stands in quotes, "${NAME}"`
	case strings.HasPrefix(problem, "found character that cannot start any token") && isIndentedByTab(data, line):
		hint = "; a tab indents nothing, use spaces"
	}
	p.report(line, "", "is no YAML: %s%s", shorten(problem), hint)
}

// uncounted are the problems whose line the reader counts from zero.
func uncounted() []string {
	return []string{
		"did not find expected <document start>", "did not find expected node content", "did not find expected '-' indicator",
		"did not find expected key", "did not find expected ',' or ']'", "did not find expected ',' or '}'",
	}
}

// bareVariable returns the line of the first ${ that stands inside braces or brackets without quotes, where YAML takes
// its brace for one of its own; 0 when there is none. It is good enough for a hint: texts of several lines may mislead it.
func bareVariable(data []byte) int {
	line, depth, quote := 1, 0, byte(0)
	before := byte('\n')
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case c == '\n':
			line++
		case quote == '"' && c == '\\' && !bytes.HasPrefix(data[i:], []byte("\\\n")):
			i++
		case quote == '\'' && bytes.HasPrefix(data[i:], []byte("''")):
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case strings.IndexByte(" \t\n{[,:", before) < 0 && strings.IndexByte("{}[]$", c) < 0:
			// Inside a word quotes and number signs stand for themselves.
		case c == '"' || c == '\'':
			quote = c
		case c == '#':
			end := bytes.IndexByte(data[i:], '\n')
			if end < 0 {
				return 0
			}
			i += end - 1
		case c == '$' && bytes.HasPrefix(data[i:], []byte("${")):
			if depth > 0 {
				return line
			}
			i += max(0, bytes.IndexByte(data[i:], '}'))
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		before = c
	}
	return 0
}

// isIndentedByTab tells whether there is a tab before anything else on a line.
func isIndentedByTab(data []byte, line int) bool {
	lines := bytes.Split(data, []byte("\n"))
	if line > len(lines) {
		return false
	}
	text := lines[line-1]
	return bytes.IndexByte(text[:len(text)-len(bytes.TrimLeft(text, " \t"))], '\t') >= 0
}
