package rail

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"strings"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

const (
	sender = "Shop <shop@example.com>"

	// The template of receipts. Subjects end in the event's key: by it a mail in the box is recognised.
	receiptTemplate = "receipt"
	receiptSubject  = "Receipt over {{total}} for {{key}}"
	receiptText     = "Dear {{name}}, you paid {{total}}."
)

// mailPayload is a payload as the ses handler takes it: receipts by a template, welcomes with a text of their own.
func mailPayload(e event, name, total string) string {
	to := quote((&mail.Address{Name: name, Address: e.key + "@example.com"}).String())
	switch {
	case e.fate == unsendable:
		return `{"to": [], "subject": "Welcome", "text": "To nobody."}`
	case e.fate == refused:
		return fmt.Sprintf(`{"to": [%s], "template": "nowhere"}`, to)
	case e.eventType == "invoice.mailed":
		return fmt.Sprintf(`{"to": [%s], "template": %s, "data": {"key": %s, "name": %s, "total": %s}}`,
			to, quote(receiptTemplate), quote(e.key), quote(name), quote(total))
	default:
		return fmt.Sprintf(`{"to": [%s], "subject": %s, "text": %s}`,
			to, quote("Welcome, "+name+": "+e.key), quote("Hello "+name+",\nyou paid "+total+"."))
	}
}

// keyOf is the idempotency key of the event that a mail is for.
func keyOf(m cloud.Mail) string {
	return m.Subject[strings.LastIndexByte(m.Subject, ' ')+1:]
}

// compareMail says how a mail in the box differs from what the row's payload asks for.
func (r row) compareMail(m cloud.Mail) []string {
	var want struct {
		To            []string
		Subject, Text string
		Template      string
		Data          map[string]string
	}
	if err := json.Unmarshal([]byte(r.stored), &want); err != nil || len(want.To) != 1 {
		return []string{"a mail came, and the payload describes none"}
	}
	if want.Template == receiptTemplate {
		fill := strings.NewReplacer("{{key}}", want.Data["key"], "{{name}}", want.Data["name"], "{{total}}", want.Data["total"])
		want.Subject, want.Text = fill.Replace(receiptSubject), fill.Replace(receiptText)
	}
	var found []string
	if len(m.Destination.To) != 1 || !sameAddress(m.Destination.To[0], want.To[0]) ||
		len(m.Destination.Cc)+len(m.Destination.Bcc) > 0 {
		found = append(found, fmt.Sprintf("the mail went to %q, want %q", m.Destination, want.To))
	}
	if m.Subject != want.Subject || m.Text != want.Text || m.HTML != "" {
		found = append(found, fmt.Sprintf("the mail says %q %q, want %q %q", m.Subject, m.Text, want.Subject, want.Text))
	}
	if !sameAddress(m.From, sender) {
		found = append(found, fmt.Sprintf("the mail came from %q, want %q", m.From, sender))
	}
	return found
}

// sameAddress compares names and addresses as a mail program shows them.
func sameAddress(one, other string) bool {
	a, err1 := mail.ParseAddress(one)
	b, err2 := mail.ParseAddress(other)
	return err1 == nil && err2 == nil && *a == *b
}
