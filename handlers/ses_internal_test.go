package handlers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/openlup/outbox-dispatch/outbox"
)

// mailFaultWords are all the words that a discarded mail's reason may hold: fields, counts and what is taken. What a
// payload holds, or calls its fields, is personal data and has no place in it.
func mailFaultWords() *regexp.Regexp {
	quote := regexp.QuoteMeta
	const (
		list    = `(to|cc|bcc|reply_to)`
		field   = `(to|cc|bcc|reply_to|from|subject|text|html|template|data|headers|attachments|tags|list_unsubscribe|format)`
		file    = `attachments\[\d+\]`
		nested  = `(` + file + `\.(filename|content_type|content|content_id)|list_unsubscribe\.(url|mailto))`
		address = `not a text|not an address like ann@example\.com or Ann <ann@example\.com>|longer than 320 characters|` +
			`has letters beyond ASCII before the @, which SES doesn't take|has letters beyond ASCII in its domain, takes Punycode \(xn--…\)|` +
			`has no domain name after the @|has a control character`
	)
	faults := []string{
		list + `\[\d+\]: (` + address + `)`, `from: (` + address + `|not an address that the route's from_allowed lists)`,
		list + `: not a list of addresses`, `to: no recipient in to, cc or bcc`,
		`to: \d+ recipients in to, cc and bcc together, takes up to 50`, `(` + field + `|` + nested + `): not a text`, `data: not an object`,
		`data: \d+ characters, takes up to 262144`, `template: takes visible ASCII characters`,
		`(subject|text|html): not together with template, which has its own`, `data: only together with template`,
		`subject: missing; takes a text, or name a template instead`, `subject: has a line break or another control character`,
		`text: missing; takes text, html or both, or name a template instead`,
		`a field is spelled almost like (` + field + `|` + nested + `)`,
		`unknown fields: \d+, takes ` + quote(mailFields), file + `: unknown fields: \d+, takes ` + quote(attachmentFields),
		`list_unsubscribe: unknown fields: \d+, takes ` + quote(unsubscribeFields), `and \d+ more`,
		`format: (takes raw, or leave it out|not together with template)`,
		`headers: (not an object of texts|\d+ of them, takes up to 14 together with template|has one that is set otherwise: ` + quote(reservedHeaders) + `|` +
			`has a name that is none, takes visible ASCII characters without a colon|` +
			`has a value that is none, takes printable ASCII characters; encode others as RFC 2047 says|` +
			`has a longer one than 126 characters of name, 995 of value and 996 of both|has one twice, but for the case of its letters)`,
		`tags: (not an object of texts|has one that is set otherwise: outbox_event_id, event_type|` +
			`has a name or value that is none, takes up to 255 letters, digits, - and _|\d+ of them, takes up to 48)`,
		`attachments: not a list of objects`, file + `\.filename: (missing; takes the file's name|longer than 255 characters|has a line break or another control character)`,
		file + `\.content_id: (takes up to 78 letters, digits, dots, _, -, \+ and @|a second time|only together with html, which shows it)`,
		file + `\.content_type: (not a media type like application/pdf|not one for an attachment: takes no multipart and no message)`,
		file + `\.content: (missing; takes the file in base64|not base64, in the standard alphabet and with its padding)`,
		file + `: takes a filename of ASCII characters and a content_type of up to 78 together with template`,
		`list_unsubscribe: (not an object with url, mailto|takes a url, a mailto or both)`,
		`list_unsubscribe\.url: not a URL like https://example\.com/u/17, of up to 480 visible ASCII characters but < > " and \\`,
		`list_unsubscribe\.mailto: not an address like u17@example\.com or u17@example\.com\?subject=unsubscribe`,
	}
	fault := strings.Join(faults, "|")
	return regexp.MustCompile(`^ses_payload_invalid: (takes an object with ` + quote(mailFields) + `|(` + fault + `)(; (` + fault + `))*)$`)
}

func FuzzMailsAreSafeOrRefusedWithoutTheirContent(f *testing.F) {
	words := mailFaultWords()
	for _, seed := range []string{
		`{"to": ["Ann <ann@example.com>"], "subject": "s", "text": "t"}`, `{"to": ["\"a\\\"b>\"@example.com"], "template": "t", "data": {"a": 1}}`,
		`{"to": ["a@[1.2.3.4]", "=?utf-8?q?=0A?= <a@b.test>", "a: b@c.test;"], "Subject": "x\r\ny", "hunter2": 5}`, `[]`, `null`, ``,
		`{"to": 5, "cc": {}, "subject": [], "text": null, "html": "", "template": "", "data": 1e400}`, `{"bcc": ["<a@b.test> (c)"], "subject": "\u2028", "html": "h"}`,
		`{"to": ["a@b.test"], "from": "Zoë <z@b.test>", "subject": "ü\u0085", "text": "t", "format": "raw", "headers": {"X-A": "b\r\nBcc: c", "A:b": "c", "to": ""}}`,
		`{"to": ["a@b.test"], "subject": "s", "html": "h", "attachments": [{"content_id": "a", "content": "YQ=="}, {"filename": "\"ü\".pdf", "content_type": "a/b; c=d", "content": "?"}, {"Filename": 5}]}`,
		`{"to": ["a@b.test"], "template": "t", "tags": {"a": "b", "event_type": "c"}, "list_unsubscribe": {"url": "https://a.test/<", "mailto": "a@b.test?subject=x"}}`,
	} {
		f.Add([]byte(seed))
	}
	handler := &SES{from: mailbox{text: "a@b.test", address: "a@b.test"}}
	f.Fuzz(func(t *testing.T, payload []byte) {
		content, err := parseMail(payload, []string{"@b.test"})
		if err != nil {
			if !words.MatchString(err.Error()) {
				t.Errorf("the reason %q has words of its own", err)
			}
			return
		}
		expectSafeContent(t, content)
		input, err := handler.message(outbox.Event{ID: "1"}, content)
		if err != nil {
			t.Fatal(err)
		}
		simple, template, raw := input.Content.Simple, input.Content.Template, input.Content.Raw
		switch {
		case simple != nil && (template != nil || raw != nil || simple.Subject == nil || simple.Body.Text == nil && simple.Body.Html == nil):
			t.Error("a mail without subject or body, or of two kinds")
		case template != nil && (raw != nil || !json.Valid([]byte(*template.TemplateData))):
			t.Errorf("template data %q, or two kinds", *template.TemplateData)
		case raw != nil:
			expectSafeMail(t, raw.Data, content)
		}
	})
}

func TestAMailThatIsTooLargeIsRefusedUnsent(t *testing.T) {
	t.Parallel()
	handler := &SES{from: mailbox{text: "a@b.test", address: "a@b.test"}}
	to := []mailbox{{text: "a@b.test", address: "a@b.test"}}
	for name, c := range map[string]struct {
		mail  mailContent
		bytes int // of the file
		fits  bool
	}{
		"simple":                {mailContent{subject: "s", text: "t"}, 31 << 20, false},
		"raw":                   {mailContent{subject: "s", text: "t", raw: true}, 31 << 20, false},
		"template":              {mailContent{template: "t"}, 31 << 20, false},
		"simple that just fits": {mailContent{subject: "s", text: "t"}, 29 << 20, true},
		"raw that just fits":    {mailContent{subject: "s", text: "t", raw: true}, 29 << 20, true},
	} {
		c.mail.to, c.mail.attachments = to, []attachment{{filename: "a", contentType: "a/b", content: make([]byte, c.bytes)}}
		_, err := handler.message(outbox.Event{ID: "1"}, c.mail)
		switch {
		case c.fits && err != nil:
			t.Errorf("%s: %v, want it to fit", name, err)
		case !c.fits && (err == nil || !strings.HasPrefix(err.Error(), "ses_payload_invalid: attachments: the mail has ") ||
			!strings.HasSuffix(err.Error(), " bytes with its files in base64, takes up to 41943040")):
			t.Errorf("%s: the reason is %v, want the mail's size", name, err)
		}
	}
}

func expectSafeContent(t *testing.T, content mailContent) {
	t.Helper()
	if n := len(content.recipients()); n < 1 || n > 50 {
		t.Errorf("%d recipients, want 1 to 50", n)
	}
	for _, box := range append(content.recipients(), content.replyTo...) {
		parsed, err := mail.ParseAddress(box.text)
		bare, bareErr := mail.ParseAddress(box.address)
		if err != nil || bareErr != nil || bare.Name != "" || parsed.Address != bare.Address {
			t.Errorf("sent %q, which reads as %v (%v), and %q", box.text, parsed, err, box.address)
		}
		if !isPrintable(box.text) {
			t.Errorf("sent %q, want printable ASCII", box.text)
		}
	}
	if strings.ContainsFunc(content.subject, unicode.IsControl) {
		t.Errorf("sent the subject %q", content.subject)
	}
	for _, header := range content.headers {
		if !isPrintable(header.name+header.value) || strings.Contains(header.name, ":") || header.value == "" {
			t.Errorf("sent the header %q", header)
		}
	}
}

// expectSafeMail reads a mail back: it has the fields that it should and no other, and its parts are what was put in.
func expectSafeMail(t *testing.T, data []byte, content mailContent) {
	t.Helper()
	for line := range bytes.SplitSeq(data, []byte("\r\n")) {
		if bytes.ContainsAny(line, "\r\n") || bytes.ContainsFunc(line, func(c rune) bool { return c > unicode.MaxASCII || c < ' ' && c != '\t' }) {
			t.Fatalf("the line %q is no line of ASCII", line)
		}
	}
	message, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%v: %q", err, data)
	}
	known := "from to cc reply-to subject date x-outbox-event-id mime-version content-type content-transfer-encoding"
	for _, header := range content.headers {
		known += " " + strings.ToLower(header.name)
	}
	for name, values := range message.Header {
		if len(values) != 1 || !strings.Contains(" "+known+" ", " "+strings.ToLower(name)+" ") {
			t.Errorf("%d fields %q, want one of each of %s", len(values), name, known)
		}
	}
	got := leaves(t, message.Header.Get("Content-Type"), message.Header.Get("Content-Transfer-Encoding"), message.Body)
	want := []string{}
	for _, text := range []string{content.text, content.html} {
		if text != "" {
			want = append(want, text)
		}
	}
	if len(got) != len(want)+len(content.attachments) {
		t.Fatalf("%d parts, want %d", len(got), len(want)+len(content.attachments))
	}
	for i, text := range want {
		// Lines end alike in a mail; what stands at their ends stays.
		if plainLines(got[i]) != plainLines(text) {
			t.Errorf("a part reads %q, want %q", got[i], text)
		}
	}
}

func plainLines(text string) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.ToValidUTF8(text, "?"))
}

// leaves are the contents of a mail, from the first to the last.
func leaves(t *testing.T, kind, encoding string, body io.Reader) []string {
	t.Helper()
	media, parameters, err := mime.ParseMediaType(kind)
	if err != nil {
		t.Fatalf("%v: %q", err, kind)
	}
	if !strings.HasPrefix(media, "multipart/") {
		switch encoding {
		case "base64":
			body = base64.NewDecoder(base64.StdEncoding, body)
		case "quoted-printable":
			body = quotedprintable.NewReader(body)
		default:
			t.Errorf("the encoding is %q", encoding)
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		return []string{string(content)}
	}
	var all []string
	reader := multipart.NewReader(body, parameters["boundary"])
	for {
		part, err := reader.NextRawPart()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, leaves(t, part.Header.Get("Content-Type"), part.Header.Get("Content-Transfer-Encoding"), part)...)
	}
}
