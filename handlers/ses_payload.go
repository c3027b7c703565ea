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
	fields map[string]json.RawMessage
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
	switch n := len(m.recipients()); {
	case n == 0 && !p.misspelt("to", "cc", "bcc"):
		p.fault("to", "no recipient in to, cc or bcc")
	case n > maxRecipients:
		p.fault("to", "%d recipients in to, cc and bcc together, takes up to %d", n, maxRecipients)
	}
	if p.has("template") {
		p.checkTemplate(m)
	} else {
		p.checkSimple(m)
	}
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

// has tells whether a field is there; null and the empty text are as good as absent.
func (p *mailParser) has(field string) bool {
	raw := string(p.fields[field])
	return raw != "" && raw != "null" && raw != `""`
}

func (p *mailParser) text(field string) string {
	var text string
	if p.has(field) && json.Unmarshal(p.fields[field], &text) != nil {
		p.fault(field, "not a text")
	}
	return text
}

// object returns the object as it is in the payload, so that numbers keep their digits.
func (p *mailParser) object(field string) string {
	if !p.has(field) {
		return ""
	}
	raw := p.fields[field]
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		p.fault(field, "not an object")
	} else if n := utf8.RuneCount(raw); n > maxTemplateData {
		p.fault(field, "%d characters, takes up to %d", n, maxTemplateData)
	}
	return string(raw)
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

func (p *mailParser) checkTemplate(m mailContent) {
	if strings.ContainsFunc(m.template, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		p.fault("template", "takes visible ASCII characters")
	}
	for _, field := range []string{"subject", "text", "html"} {
		if p.has(field) {
			p.fault(field, "not together with template, which has its own")
		}
	}
}

func (p *mailParser) checkSimple(m mailContent) {
	if !p.has("subject") && !p.misspelt("subject", "template") {
		p.fault("subject", "missing; takes a text, or name a template instead")
	}
	if strings.ContainsFunc(m.subject, isControl) {
		p.fault("subject", "has a line break or another control character")
	}
	if !p.has("text") && !p.has("html") && !p.misspelt("text", "html", "template") {
		p.fault("text", "missing; takes text, html or both, or name a template instead")
	}
	if p.has("data") && !p.misspelt("template") {
		p.fault("data", "only together with template")
	}
}

func (p *mailParser) checkUnknown() {
	unknown := 0
	known := strings.Split(mailFields, ", ")
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		if slices.Contains(known, name) {
			continue
		}
		if near := nearestField(name); near != "" {
			p.faults = append(p.faults, "a field is spelled almost like "+near)
			continue
		}
		unknown++
	}
	if unknown > 0 {
		p.faults = append(p.faults, fmt.Sprintf("unknown fields: %d, takes %s", unknown, mailFields))
	}
}

// misspelt tells whether one of the fields seems to be there under another spelling, which is a fault already: to call
// it missing too would be wrong.
func (p *mailParser) misspelt(fields ...string) bool {
	for name := range p.fields {
		if near := nearestField(name); near != name && slices.Contains(fields, near) {
			return true
		}
	}
	return false
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
	if len(box.address) > maxAddress {
		return mailbox{}, fmt.Sprintf("longer than %d characters", maxAddress)
	}
	return box, ""
}
