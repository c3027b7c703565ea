package routes

import "strings"

// Lookup tells the value of an environment variable and whether there is one, like os.LookupEnv. It is asked for secrets
// too, by their reference: see [IsSecret].
type Lookup func(name string) (string, bool)

// IsSecret tells whether a name in ${} refers to a secret: the ARN of one in Secrets Manager, and behind a number sign the
// key of its JSON object, if not the whole text is meant.
func IsSecret(name string) bool {
	arn, key, hasKey := strings.Cut(name, "#")
	parts := strings.Split(arn, ":")
	if len(parts) != 7 || parts[0] != "arn" || parts[2] != "secretsmanager" || parts[5] != "secret" || hasKey && key == "" {
		return false
	}
	account := len(parts[4]) == 12 && strings.Trim(parts[4], "0123456789") == ""
	return account && isPart(parts[1], "-") && isPart(parts[3], "-") && isPart(parts[6], "/_+=.@-")
}

// isPart tells whether text has letters, digits and what extra holds, and is not empty.
func isPart(text, extra string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"+extra) == ""
}

// expand replaces each ${NAME} in text by the variable's value, or the secret's, once: what a value holds is not expanded
// again. $${ stands for a literal ${, and any other dollar for itself. Faults name the variable, never a value; missing are
// the names that lookup does not know.
func expand(text string, lookup Lookup) (expanded string, faults, missing []string) {
	var b strings.Builder
	for {
		start := strings.Index(text, "${")
		if start < 0 {
			b.WriteString(text)
			return b.String(), faults, missing
		}
		if start > 0 && text[start-1] == '$' {
			b.WriteString(text[:start-1] + "${")
			text = text[start+2:]
			continue
		}
		b.WriteString(text[:start])
		name, rest, closed := strings.Cut(text[start+2:], "}")
		if !closed {
			return b.String(), append(faults, "a ${ is never closed; write $${ for a literal ${"), missing
		}
		text = rest
		if !isVariable(name) && !IsSecret(name) {
			hint := "takes letters, digits and _"
			if strings.HasPrefix(name, "arn:") {
				hint = "and is no secret like arn:aws:secretsmanager:eu-west-1:123456789012:secret:crm-AbCdEf or …#key"
			}
			faults = append(faults, "a ${} holds no variable's name, "+hint+"; write $${ for a literal ${")
			continue
		}
		value, found := lookup(name)
		switch {
		case !found:
			missing = append(missing, name)
		case value == "":
			faults = append(faults, sourceLabel(name)+" is empty")
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
