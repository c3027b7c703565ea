package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxRecipients   = 50
	maxTemplateData = 256 << 10
	maxListedFaults = 20
	// maxMailHeaders is what SES takes where it builds the mail, the event's own header included.
	maxMailHeaders = 15

	mailFields = "to, cc, bcc, reply_to, from, subject, text, html, template, data, headers, attachments, tags, " +
		"list_unsubscribe, format"
	formatRaw = "raw"
)

// mailContent is what a payload describes.
type mailContent struct {
	from                 *mailbox // nil means the route's
	to, cc, bcc, replyTo []mailbox
	subject, text, html  string
	template             string
	data                 string       // JSON object, as in the payload
	headers              []mailHeader // those of list_unsubscribe included
	attachments          []attachment
	tags                 []mailHeader
	raw                  bool // the payload asks for it
}

// mailHeader is a name and a value.
type mailHeader struct{ name, value string }

func (m mailContent) recipients() []mailbox { return slices.Concat(m.to, m.cc, m.bcc) }

// isRaw tells whether the mail is built here: the payload says so, or it has what SES would not build.
func (m mailContent) isRaw() bool {
	return m.raw || len(m.headers) >= maxMailHeaders || slices.ContainsFunc(m.attachments, attachment.needsRaw)
}

// mailParser reads one object of a payload and collects all its faults.
type mailParser struct {
	fields map[string]json.RawMessage
	known  string    // the fields that it takes
	path   string    // in front of their names
	faults *[]string // of the payload as a whole
}

// parseMail reads the payload of a mail, for a route that allows these senders beside its own. Its error lists every
// fault; it names fields and never shows what they hold, nor unknown names, since both may be personal data.
func parseMail(payload json.RawMessage, senders []string) (mailContent, error) {
	var faults []string
	p := mailParser{known: mailFields, faults: &faults}
	if err := json.Unmarshal(payload, &p.fields); err != nil || p.fields == nil {
		return mailContent{}, errors.New("ses_payload_invalid: takes an object with " + mailFields)
	}
	m := mailContent{
		from: p.sender(senders),
		to:   p.addresses("to"), cc: p.addresses("cc"), bcc: p.addresses("bcc"), replyTo: p.addresses("reply_to"),
		subject: p.text("subject"), text: p.text("text"), html: p.text("html"),
		template: p.text("template"), data: p.object("data"),
		attachments: p.attachments(), tags: p.tags(), raw: p.format(),
	}
	m.headers = append(p.headers(), p.listUnsubscribe()...)
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
	if len(faults) == 0 {
		return m, nil
	}
	if more := len(faults) - maxListedFaults; more > 0 {
		faults = append(faults[:maxListedFaults], fmt.Sprintf("and %d more", more))
	}
	return mailContent{}, errors.New("ses_payload_invalid: " + strings.Join(faults, "; "))
}

func (p *mailParser) fault(field, format string, args ...any) {
	*p.faults = append(*p.faults, p.path+field+": "+fmt.Sprintf(format, args...))
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

func (p *mailParser) checkTemplate(m mailContent) {
	if strings.ContainsFunc(m.template, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		p.fault("template", "takes visible ASCII characters")
	}
	for _, field := range []string{"subject", "text", "html"} {
		if p.has(field) {
			p.fault(field, "not together with template, which has its own")
		}
	}
	if m.raw {
		p.fault("format", "not together with template")
	}
	if len(m.headers) >= maxMailHeaders {
		p.fault("headers", "%d of them, takes up to %d together with template", len(m.headers), maxMailHeaders-1)
	}
	for i, file := range m.attachments {
		if file.needsRaw() {
			p.fault(fmt.Sprintf("attachments[%d]", i), "takes a filename of ASCII characters and a content_type of up to %d together with template", maxContentType)
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
	for i, file := range m.attachments {
		if file.contentID != "" && !p.has("html") && !p.misspelt("html") {
			p.fault(fmt.Sprintf("attachments[%d].content_id", i), "only together with html, which shows it")
		}
	}
}

// checkUnknown reports fields that are not taken.
func (p *mailParser) checkUnknown() {
	unknown := 0
	known := strings.Split(p.known, ", ")
	for _, name := range slices.Sorted(maps.Keys(p.fields)) {
		if slices.Contains(known, name) {
			continue
		}
		if near := p.nearest(name); near != "" {
			*p.faults = append(*p.faults, "a field is spelled almost like "+p.path+near)
			continue
		}
		unknown++
	}
	if unknown > 0 {
		where := ""
		if p.path != "" {
			where = strings.TrimSuffix(p.path, ".") + ": "
		}
		*p.faults = append(*p.faults, fmt.Sprintf("%sunknown fields: %d, takes %s", where, unknown, p.known))
	}
}

// misspelt tells whether one of the fields seems to be there under another spelling, which is a fault already: to call
// it missing too would be wrong.
func (p *mailParser) misspelt(fields ...string) bool {
	for name := range p.fields {
		if near := p.nearest(name); near != name && slices.Contains(fields, near) {
			return true
		}
	}
	return false
}

// nearest returns the field that name would be, were it not for its case, dashes and underscores.
func (p *mailParser) nearest(name string) string {
	plain := func(text string) string { return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(text)) }
	for known := range strings.SplitSeq(p.known, ", ") {
		if plain(name) == plain(known) {
			return known
		}
	}
	return ""
}
