package handlers

import (
	"encoding/json"
	"net/url"
	"strings"
)

const (
	unsubscribeFields = "url, mailto"
	// maxUnsubscribe leaves room for both in one header.
	maxUnsubscribe = 480
)

// listUnsubscribe returns the headers of RFC 2369 and, where there is an address on the web that is https, of RFC 8058:
// mail programs then unsubscribe by one click, with a POST.
func (p *mailParser) listUnsubscribe() (headers []mailHeader) {
	const field = "list_unsubscribe"
	if !p.has(field) {
		return nil
	}
	q := &mailParser{known: unsubscribeFields, path: field + ".", faults: p.faults}
	if json.Unmarshal(p.fields[field], &q.fields) != nil {
		p.fault(field, "not an object with "+unsubscribeFields)
		return nil
	}
	web, mailto := q.text("url"), q.text("mailto")
	isWeb := checkUnsubscribe(web, "https", "http")
	if web != "" && !isWeb {
		q.fault("url", "not a URL like https://example.com/u/17, of up to %d visible ASCII characters but < > \" and \\", maxUnsubscribe)
	}
	if mailto != "" {
		mailto = "mailto:" + strings.TrimPrefix(mailto, "mailto:")
		if !checkUnsubscribe(mailto, "mailto") {
			q.fault("mailto", "not an address like u17@example.com or u17@example.com?subject=unsubscribe")
		}
	}
	if !q.has("url") && !q.has("mailto") && !q.misspelt("url", "mailto") {
		p.fault(field, "takes a url, a mailto or both")
	}
	q.checkUnknown()
	var ways []string
	if web != "" {
		ways = append(ways, "<"+web+">")
	}
	if mailto != "" {
		ways = append(ways, "<"+mailto+">")
	}
	headers = append(headers, mailHeader{"List-Unsubscribe", strings.Join(ways, ", ")})
	if strings.HasPrefix(strings.ToLower(web), "https:") {
		headers = append(headers, mailHeader{"List-Unsubscribe-Post", "List-Unsubscribe=One-Click"})
	}
	return headers
}

// checkUnsubscribe tells whether a text can stand in the header and is a URL of one of the schemes.
func checkUnsubscribe(text string, schemes ...string) bool {
	if len(text) > maxUnsubscribe || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) ||
		strings.ContainsAny(text, `<>"\`) {
		return false
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return false
	}
	for _, scheme := range schemes {
		if parsed.Scheme != scheme {
			continue
		}
		if scheme != "mailto" {
			return parsed.Hostname() != "" && parsed.User == nil
		}
		address, err := url.PathUnescape(parsed.Opaque)
		_, problem := parseAddress(address)
		return err == nil && problem == "" && !strings.ContainsAny(address, " (")
	}
	return false
}
