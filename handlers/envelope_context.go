package handlers

import (
	"encoding/json"
	"net/url"
	"strings"
)

// producerContext is what the producer left in a row's metadata for receivers; each is "" when there is none that is
// valid.
type producerContext struct {
	traceparent string // W3C Trace Context
	tracestate  string // only beside a traceparent
	dataschema  string // an absolute URI
}

// readProducerContext reads the metadata once for all of it. Keys are exact, which a struct's would not be.
func readProducerContext(metadata json.RawMessage) (context producerContext) {
	var object map[string]json.RawMessage
	if json.Unmarshal(metadata, &object) != nil {
		return context
	}
	if text := textOf(object["traceparent"]); isTraceparent(text) {
		context.traceparent = text
		if state := textOf(object["tracestate"]); isTracestate(state) {
			context.tracestate = state
		}
	}
	if text := textOf(object["dataschema"]); isAbsoluteURI(text) {
		context.dataschema = text
	}
	return context
}

// textOf returns a JSON string's value; "" when there is none.
func textOf(raw json.RawMessage) (text string) {
	if len(raw) == 0 || json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// isTraceparent tells whether text is a W3C traceparent.
func isTraceparent(text string) bool {
	// Later versions may append fields; what version 00 defines comes first in all of them.
	const length = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(text) < length || len(text) > length && (text[:2] == "00" || text[length] != '-') || !isVisible(text) {
		return false
	}
	parts := strings.SplitN(text[:length], "-", 5)
	if len(parts) != 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || parts[0] == "ff" {
		return false
	}
	for _, part := range parts {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}

// isTracestate tells whether text looks like a W3C tracestate: up to 32 members, each key=value, 512 characters of
// printable ASCII in all, which is what everybody passes on.
func isTracestate(text string) bool {
	const maxLength, maxMembers = 512, 32
	members := strings.Split(text, ",")
	if text == "" || len(text) > maxLength || len(members) > maxMembers {
		return false
	}
	for _, c := range []byte(text) {
		if c < ' ' || c >= 0x7f {
			return false
		}
	}
	for _, member := range members {
		key, value, found := strings.Cut(strings.Trim(member, " "), "=")
		if !found || key == "" || value == "" || strings.ContainsAny(key, ` "`) || strings.Contains(value, "=") {
			return false
		}
	}
	return true
}

// isAbsoluteURI tells whether text is what RFC 3986 calls an absolute URI: with a scheme, without a fragment.
func isAbsoluteURI(text string) bool {
	if !isURI(text) {
		return false
	}
	parsed, err := url.Parse(text)
	return err == nil && parsed.Scheme != "" && !strings.Contains(text, "#") && len(text) > len(parsed.Scheme)+1
}

// isURI tells whether text is a URI or a relative reference, not empty and not longer than 2,048 characters. It is
// stricter than net/url, which takes what others refuse.
func isURI(text string) bool {
	if text == "" || len(text) > maxURILength || strings.Count(text, "#") > 1 {
		return false
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case isAlphanumeric(c) || strings.IndexByte("-._~:/?#@!$&'()*+,;=", c) >= 0:
		case c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]):
			i += 2
		default:
			return false
		}
	}
	_, err := url.Parse(text)
	return err == nil
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
