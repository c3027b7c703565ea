package handlers

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"strings"
	"unicode"
)

const maxAddress = 320

// mailbox is a parsed address.
type mailbox struct {
	text    string // as it is sent, with its name
	address string // alone
}

// addresses returns one mailbox for each item, also for one at fault, so that they can be counted.
func (p *mailParser) addresses(field string) []mailbox {
	if !p.has(field) {
		return nil
	}
	var items []json.RawMessage
	if json.Unmarshal(p.fields[field], &items) != nil {
		p.fault(field, "not a list of addresses")
		return []mailbox{{}}
	}
	list := make([]mailbox, len(items))
	for i, item := range items {
		var text *string
		problem := "not a text"
		if json.Unmarshal(item, &text) == nil && text != nil {
			list[i], problem = parseAddress(*text)
		}
		if problem != "" {
			p.fault(fmt.Sprintf("%s[%d]", field, i), "%s", problem)
		}
	}
	return list
}

// sender returns the payload's own sender, nil when it names none. It must be one that the route allows.
func (p *mailParser) sender(allowed []string) *mailbox {
	text := p.text("from")
	if text == "" {
		return nil
	}
	box, problem := parseAddress(text)
	switch {
	case problem != "":
		p.fault("from", "%s", problem)
	case !isAllowedSender(allowed, box.address):
		p.fault("from", "not an address that the route's from_allowed lists")
	}
	return &box
}

// isAllowedSender compares an address with a list of addresses and domains ("@example.com"), whatever the case. A domain
// stands for itself alone, not for those below it.
func isAllowedSender(allowed []string, address string) bool {
	domain := address[strings.LastIndexByte(address, '@'):]
	for _, one := range allowed {
		if strings.EqualFold(one, address) || strings.EqualFold(one, domain) {
			return true
		}
	}
	return false
}

// checkAllowedSender returns what is wrong with an item of from_allowed; nothing is the empty text.
func checkAllowedSender(text string) string {
	domain, found := strings.CutPrefix(text, "@")
	if !found {
		domain = text
	}
	box, problem := parseAddress("a@" + domain)
	if !found {
		box, problem = parseAddress(text)
	}
	switch {
	case problem != "", strings.Contains(text, "*"):
		return "takes an address like ann@example.com, or all of a domain like @example.com"
	case found && box.address != "a@"+domain, !found && box.address != text:
		return "takes an address alone, without a name"
	}
	return ""
}

// isControl is true of every character that could end a header's line, whoever reads it.
func isControl(c rune) bool {
	return unicode.IsControl(c) || c == '\u2028' || c == '\u2029'
}

// parseAddress reads one address, with a name or without, and writes it anew, so that nothing else can hide in it. The
// problem is empty when there is none, and never shows the address.
func parseAddress(text string) (mailbox, string) {
	parsed, err := mail.ParseAddress(text)
	if err != nil {
		return mailbox{}, "not an address like ann@example.com or Ann <ann@example.com>"
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	local, domain := parsed.Address[:at], parsed.Address[at+1:]
	switch {
	case strings.ContainsFunc(local, func(c rune) bool { return c > unicode.MaxASCII }):
		return mailbox{}, "has letters beyond ASCII before the @, which SES doesn't take"
	case strings.ContainsFunc(domain, func(c rune) bool { return c > unicode.MaxASCII }):
		return mailbox{}, "has letters beyond ASCII in its domain, takes Punycode (xn--…)"
	case !isName(domain, ".-"):
		return mailbox{}, "has no domain name after the @"
	case strings.ContainsFunc(parsed.Name+local, isControl):
		return mailbox{}, "has a control character"
	}
	box := mailbox{text: parsed.String(), address: strings.Trim((&mail.Address{Address: parsed.Address}).String(), "<>")}
	if parsed.Name == "" {
		box.text = box.address
	}
	if len(box.address) > maxAddress {
		return mailbox{}, fmt.Sprintf("longer than %d characters", maxAddress)
	}
	return box, ""
}
