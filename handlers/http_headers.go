package handlers

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// takenHeaders are those that an operator must not set: of the connection, of the body, or of each request.
func takenHeaders() []string {
	return []string{
		"connection", "expect", "host", "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization",
		"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"content-encoding", "content-length", "content-type",
		"idempotency-key", "traceparent", "tracestate",
	}
}

// takenPrefixes begin the names of headers that are made for each event.
func takenPrefixes() []string { return []string{"webhook-", "outbox-", "ce-"} }

// headerFaults looks at the names and values of Headers, and shows names only.
func (c HTTPConfig) headerFaults() (faults []*FieldError) {
	report := func(name, problem string) {
		faults = append(faults, &FieldError{Field: "headers." + name, Problem: problem})
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		lower, value := strings.ToLower(name), c.Headers[name]
		switch {
		case !isToken(name):
			report(name, "is no name of a header, takes letters, digits and -")
		case isTaken(lower):
			report(name, "is set by the dispatcher itself, takes another header")
		case seen[lower]:
			report(name, "is there twice, in other letters")
		case value != textproto.TrimString(value) || strings.ContainsFunc(value, isNoHeaderRune):
			report(name, "has a control character or spaces around it, takes text in one line")
		case value == "":
			report(name, "is empty, takes text")
		}
		seen[lower] = true
	}
	return faults
}

func isTaken(lower string) bool {
	return slices.Contains(takenHeaders(), lower) ||
		slices.ContainsFunc(takenPrefixes(), func(prefix string) bool { return strings.HasPrefix(lower, prefix) })
}

// isToken tells whether name has the form of a header's name: a token of RFC 9110.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

func isNoHeaderRune(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

// setHeaders adds what the operator wants to what every request has.
func (c HTTPConfig) setHeaders(header http.Header) {
	for name, value := range c.Headers {
		header.Set(name, value)
	}
}
