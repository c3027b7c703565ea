package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxRecipients   = 50
	maxTemplateData = 256 << 10
	maxAddress      = 320
	maxListedFaults = 20

	mailFields = "to, cc, bcc, reply_to, subject, text, html, template, data"
)

// mailbox is a parsed address.
type mailbox struct {
	text    string // as it is sent, with its name
	address string // alone
}

// mailContent is what a payload describes.
type mailContent struct {
	to, cc, bcc, replyTo []mailbox
	subject, text, html  string
	template             string
	data                 string // JSON object, as in the payload
}

func (m mailContent) recipients() []mailbox { return slices.Concat(m.to, m.cc, m.bcc) }

// mailParser reads one payload and collects all its faults.
type mailParser struct {
	fields map[string]json.RawMessage // not read yet
	faults []string
}

// parseMail reads the payload of a mail. Its error lists every fault; it names fields and never shows what they hold,
// nor unknown names, since both may be personal data.
func parseMail(payload json.RawMessage) (mailContent, error) {
	p := mailParser{}
	if err := json.Unmarshal(payload, &p.fields); err != nil || p.fields == nil {
		return mailContent{}, errors.New("ses_payload_invalid: takes an object with " + mailFields)
	}
	m := mailContent{
		to: p.addresses("to"), cc: p.addresses("cc"), bcc: p.addresses("bcc"), replyTo: p.addresses("reply_to"),
		subject: p.text("subject"), text: p.text("text"), html: p.text("html"),
		template: p.text("template"), data: p.object("data"),
	}
	p.checkContent(m)
	p.checkRecipients(m)
	p.checkUnknown()
	if len(p.faults) == 0 {
		return m, nil
	}
	if more := len(p.faults) - maxListedFaults; more > 0 {
		p.faults = append(p.faults[:maxListedFaults], fmt.Sprintf("and %d more", more))
	}
	return mailContent{}, errors.New("ses_payload_invalid: " + strings.Join(p.faults, "; "))
}

func (p *mailParser) fault(field, format string, args ...any) {
	p.faults = append(p.faults, field+": "+fmt.Sprintf(format, args...))
}

// take returns a field's value, and nil when it is absent or null.
func (p *mailParser) take(field string) json.RawMessage {
	raw := p.fields[field]
	delete(p.fields, field)
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// text reads a text; one that is there but empty is a fault.
func (p *mailParser) text(field string) string {
	raw := p.take(field)
	if raw == nil {
		return ""
	}
	var text string
	switch {
	case json.Unmarshal(raw, &text) != nil:
		p.fault(field, "not a text")
	case text == "":
		p.fault(field, "empty")
	default:
		return text
	}
	return ""
}

func (p *mailParser) object(field string) string {
	raw := p.take(field)
	var object map[string]json.RawMessage
	switch {
	case raw == nil:
		return ""
	case json.Unmarshal(raw, &object) != nil:
		p.fault(field, "not an object")
	case utf8.RuneCount(raw) > maxTemplateData:
		p.fault(field, "%d characters, takes up to %d", utf8.RuneCount(raw), maxTemplateData)
	}
	return string(raw)
}

func (p *mailParser) addresses(field string) []mailbox {
	raw := p.take(field)
	var items []json.RawMessage
	if raw != nil && json.Unmarshal(raw, &items) != nil {
		p.fault(field, "not a list of addresses")
	}
	var list []mailbox
	for i, item := range items {
		var text string
		name := fmt.Sprintf("%s[%d]", field, i)
		if item == nil || json.Unmarshal(item, &text) != nil || string(item) == "null" {
			p.fault(name, "not a text")
			continue
		}
		address, problem := parseAddress(text)
		if problem != "" {
			p.fault(name, "%s", problem)
		}
		list = append(list, address)
	}
	return list
}

func (p *mailParser) checkRecipients(m mailContent) {
	switch n := len(m.recipients()); {
	case n == 0 && len(p.faults) == 0:
		p.fault("to", "no recipient in to, cc or bcc")
	case n > maxRecipients:
		p.fault("to", "%d recipients in to, cc and bcc together, takes up to %d", n, maxRecipients)
	}
}

func (p *mailParser) checkContent(m mailContent) {
	if m.template == "" {
		p.checkSimple(m)
		return
	}
	if strings.ContainsFunc(m.template, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		p.fault("template", "takes visible ASCII characters")
	}
	for field, value := range map[string]string{"subject": m.subject, "text": m.text, "html": m.html} {
		if value != "" {
			p.fault(field, "not together with template, which has its own")
		}
	}
}

func (p *mailParser) checkSimple(m mailContent) {
	if m.subject == "" {
		p.fault("subject", "missing; or name a template")
	}
	if strings.ContainsFunc(m.subject, isControl) {
		p.fault("subject", "has a line break or another control character")
	}
	if m.text == "" && m.html == "" {
		p.fault("text", "missing; takes text, html or both, or a template")
	}
	if m.data != "" {
		p.fault("data", "only together with template")
	}
}

func (p *mailParser) checkUnknown() {
	unknown := 0
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		if known := nearestField(name); known != "" {
			p.faults = append(p.faults, "a field is spelled almost like "+known)
			continue
		}
		unknown++
	}
	if unknown > 0 {
		p.faults = append(p.faults, fmt.Sprintf("unknown fields: %d, takes %s", unknown, mailFields))
	}
}

// nearestField returns the field that name would be, were it not for its case, dashes and underscores.
func nearestField(name string) string {
	plain := func(text string) string { return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(text)) }
	for known := range strings.SplitSeq(mailFields, ", ") {
		if plain(name) == plain(known) {
			return known
		}
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
	if len(box.text) > maxAddress {
		return mailbox{}, fmt.Sprintf("longer than %d characters", maxAddress)
	}
	return box, ""
}
