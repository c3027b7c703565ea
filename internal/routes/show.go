package routes

import (
	"slices"
	"strconv"
	"strings"
)

// What faults show: keys of the file and names of variables, unless one looks like a secret. No value is shown,
// whether it stands in the file or came from the environment: it may be a secret in the wrong place.

const hidden = "(not shown, looks like a secret)"

// label is a key as faults show it.
func label(key string) string {
	if looksSecret(key) {
		return hidden
	}
	return strconv.Quote(shorten(key))
}

// variableLabel is the name of a variable as faults show it.
func variableLabel(name string) string {
	if looksSecret(name) {
		return hidden
	}
	return name
}

// sourceLabel is what a value comes from, as faults show it: a secret by its name, without account and region.
func sourceLabel(name string) string {
	if IsSecret(name) {
		secret, key, hasKey := strings.Cut(strings.SplitN(name, ":", 7)[6], "#")
		switch {
		case hasKey && looksSecret(key):
			return "secret " + shorten(secret) + "#" + hidden
		case hasKey:
			return "secret " + shorten(secret) + "#" + shorten(key)
		}
		return "secret " + shorten(secret)
	}
	return "environment variable " + variableLabel(name)
}

// looksSecret tells whether text has the form of a signing secret, an access key, a URL or a key in base64 or
// hexadecimal. It is for keys and names, which have no business looking like one.
func looksSecret(text string) bool {
	for _, mark := range []string{"whsec_", "whsk_", "AKIA", "ASIA", "://", "-----"} {
		if strings.Contains(text, mark) {
			return true
		}
	}
	return slices.ContainsFunc(strings.FieldsFunc(text, notBase64), func(run string) bool {
		return len(run) >= 32 || len(run) >= 24 && strings.ContainsAny(run, "0123456789+/=")
	})
}

func notBase64(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '+' && r != '/' && r != '='
}

// shorten makes text of the file fit for a fault: a line, and not too long.
func shorten(text string) string {
	const limit = 64
	clean := []rune(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text))
	if len(clean) > limit {
		return string(slices.Concat(clean[:limit], []rune("...")))
	}
	return string(clean)
}
