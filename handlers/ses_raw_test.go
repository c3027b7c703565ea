package handlers_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"github.com/openlup/outbox-dispatch/handlers"
)

// sentRaw delivers a payload and returns the request, and the mail in it as the standard library reads it.
func sentRaw(t *testing.T, config handlers.SESConfig, payload string) (sesv2.SendEmailInput, *mail.Message) {
	t.Helper()
	raw, err := json.Marshal(sent(t, config, payload))
	if err != nil {
		t.Fatal(err)
	}
	var input sesv2.SendEmailInput
	if err := json.Unmarshal(raw, &input); err != nil {
		t.Fatal(err)
	}
	if input.Content.Raw == nil || input.Content.Simple != nil {
		t.Fatalf("sent %s, want a raw mail", raw)
	}
	for line := range bytes.SplitSeq(input.Content.Raw.Data, []byte("\r\n")) {
		if len(line) > 998 || bytes.ContainsAny(line, "\r\n") {
			t.Errorf("a line of %d bytes or with a bare line break: %.100q", len(line), line)
		}
	}
	message, err := mail.ReadMessage(bytes.NewReader(input.Content.Raw.Data))
	if err != nil {
		t.Fatal(err)
	}
	return input, message
}

// part is an entity of a mail, as it was put in.
type part struct {
	kind, disposition, filename, id, content string
	parts                                    []part
}

func readPart(t *testing.T, header textproto.MIMEHeader, body io.Reader) part {
	t.Helper()
	kind, parameters, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	p := part{kind: kind, id: header.Get("Content-Id")}
	if boundary := parameters["boundary"]; boundary != "" {
		reader := multipart.NewReader(body, boundary)
		for {
			inner, err := reader.NextRawPart()
			if err == io.EOF {
				return p
			}
			if err != nil {
				t.Fatal(err)
			}
			p.parts = append(p.parts, readPart(t, inner.Header, inner))
		}
	}
	if disposition := header.Get("Content-Disposition"); disposition != "" {
		var names map[string]string
		if p.disposition, names, err = mime.ParseMediaType(disposition); err != nil {
			t.Fatal(err)
		}
		p.filename = names["filename"]
	}
	switch header.Get("Content-Transfer-Encoding") {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	}
	content, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	p.content = string(content)
	return p
}

func TestSESBuildsARawMailThatReadsBack(t *testing.T) {
	t.Parallel()
	config := handlers.SESConfig{ConfigurationSet: "orders-1", ReplyTo: []string{"Hilfe é <help@shop.example.com>"}}
	image := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0, 255, 10, 13}, 100))
	input, message := sentRaw(t, config, `{"format": "raw",
		"to": ["Ann Lee <ann@customer.example.org>", "bob@customer.example.org"], "cc": ["c@customer.example.org"], "bcc": ["Secret <secret@customer.example.org>"],
		"subject": "Ihre Bestellung – é, mit einem Betreff, der nicht in eine einzige Zeile eines Kopfes passt", "text": "Hallo Zoë,\n=20 Äpfel",
		"html": "<p>Hallo <img src='cid:logo@1'>", "headers": {"X-Campaign": "spring"}, "tags": {"tenant": "acme"},
		"list_unsubscribe": {"url": "https://shop.example.com/u"},
		"attachments": [{"filename": "Rechnung – é.pdf", "content_type": "application/pdf", "content": "JVBERi0="},
			{"content_type": "image/png", "content": "`+image+`", "content_id": "logo@1"},
			{"filename": "notes.txt", "content_type": "text/plain; charset=iso-8859-1", "content": "6Q=="}]}`)

	if to := input.Destination; !reflect.DeepEqual(append(append(to.ToAddresses, to.CcAddresses...), to.BccAddresses...), []string{
		`"Ann Lee" <ann@customer.example.org>`, "bob@customer.example.org", "c@customer.example.org", `"Secret" <secret@customer.example.org>`,
	}) {
		t.Errorf("sent to %v", to)
	}
	if *input.FromEmailAddress != `"Orders" <orders@shop.example.com>` || *input.ConfigurationSetName != "orders-1" || len(input.EmailTags) != 3 {
		t.Errorf("sent from %s, by %s, with %d tags", *input.FromEmailAddress, *input.ConfigurationSetName, len(input.EmailTags))
	}
	if bytes.Contains(input.Content.Raw.Data, []byte("secret")) || message.Header["Bcc"] != nil {
		t.Errorf("the mail shows its hidden recipient: %s", input.Content.Raw.Data)
	}
	for name, want := range map[string]string{
		"From": `"Orders" <orders@shop.example.com>`, "To": `"Ann Lee" <ann@customer.example.org>, bob@customer.example.org`,
		"Cc": "c@customer.example.org", "Reply-To": "Hilfe é <help@shop.example.com>", "Mime-Version": "1.0",
		"Subject":    "Ihre Bestellung – é, mit einem Betreff, der nicht in eine einzige Zeile eines Kopfes passt",
		"X-Campaign": "spring", "X-Outbox-Event-Id": "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47",
		"List-Unsubscribe": "<https://shop.example.com/u>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
	} {
		got, err := new(mime.WordDecoder).DecodeHeader(message.Header.Get(name))
		if err != nil || got != want || len(message.Header[name]) != 1 {
			t.Errorf("%s is %q (%v), want it once as %q", name, got, err, want)
		}
	}
	if _, err := message.Header.Date(); err != nil {
		t.Errorf("the date: %v", err)
	}
	pixels, _ := base64.StdEncoding.DecodeString(image)
	want := part{kind: "multipart/mixed", parts: []part{
		{kind: "multipart/alternative", parts: []part{
			{kind: "text/plain", content: "Hallo Zoë,\r\n=20 Äpfel"},
			{kind: "multipart/related", parts: []part{
				{kind: "text/html", content: "<p>Hallo <img src='cid:logo@1'>"},
				{kind: "image/png", disposition: "inline", id: "<logo@1>", content: string(pixels)},
			}},
		}},
		{kind: "application/pdf", disposition: "attachment", filename: "Rechnung – é.pdf", content: "%PDF-"},
		{kind: "text/plain", disposition: "attachment", filename: "notes.txt", content: "\xe9"},
	}}
	if got := readPart(t, textproto.MIMEHeader(message.Header), message.Body); !reflect.DeepEqual(got, want) {
		t.Errorf("the mail holds\n%+v\nwant\n%+v", got, want)
	}
}

func TestSESBuildsByItselfWhatSESWouldNot(t *testing.T) {
	t.Parallel()
	many := strings.TrimSuffix(strings.Repeat(`"c@customer.example.org", `, 49), ", ")
	for name, c := range map[string]struct {
		payload string
		kind    string
	}{
		"asked for":              {`{` + goodMail + `, "format": "raw"}`, "text/plain"},
		"HTML alone":             {`{"to": ["ann@customer.example.org"], "subject": "s", "html": "h", "format": "raw"}`, "text/html"},
		"both":                   {`{` + goodMail + `, "html": "h", "format": "raw"}`, "multipart/alternative"},
		"only hidden recipients": {`{"bcc": ["ann@customer.example.org"], "subject": "s", "text": "t", "format": "raw"}`, "text/plain"},
		"many recipients":        {`{"to": ["ann@customer.example.org"], "cc": [` + many + `], "subject": "s", "text": "t", "format": "raw"}`, "text/plain"},
		"a file without a name":  {`{` + goodMail + `, "html": "h", "attachments": [{"content_id": "a", "content": "YQ=="}]}`, "multipart/alternative"},
		"a name beyond ASCII":    {`{` + goodMail + `, "attachments": [{"filename": "é", "content": "YQ=="}]}`, "multipart/mixed"},
		"a long type":            {`{` + goodMail + `, "attachments": [{"filename": "e", "content": "YQ==", "content_type": "text/calendar; a=` + strings.Repeat("b", 78) + `"}]}`, "multipart/mixed"},
		"15 headers": {`{` + goodMail + `, "headers": {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1", "f": "1", "g": "1", "h": "1", "i": "1",
			"j": "1", "k": "1", "l": "1", "m": "1", "n": "1", "o": "1"}}`, "text/plain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, message := sentRaw(t, handlers.SESConfig{}, c.payload)
			if kind, _, err := mime.ParseMediaType(message.Header.Get("Content-Type")); err != nil || kind != c.kind {
				t.Errorf("the mail is %s (%v), want %s", kind, err, c.kind)
			}
			if message.Header.Get("X-Outbox-Event-Id") == "" {
				t.Error("the event's id is missing")
			}
			readPart(t, textproto.MIMEHeader(message.Header), message.Body)
		})
	}
}

func TestSESKeepsTheBlanksOfHeadersInARawMail(t *testing.T) {
	t.Parallel()
	value := "one  two   three" + strings.Repeat("  and then some", 12) + " | end"
	payload, err := json.Marshal(map[string]any{
		"to": []string{"ann@customer.example.org"}, "subject": "s", "text": "t", "format": "raw", "headers": map[string]string{"X-Blanks": value},
	})
	if err != nil {
		t.Fatal(err)
	}
	input, _ := sentRaw(t, handlers.SESConfig{}, string(payload))
	_, field, found := strings.Cut(string(input.Content.Raw.Data), "\r\nX-Blanks: ")
	if !found {
		t.Fatalf("no such header in %s", input.Content.Raw.Data)
	}
	lines := []string{}
	for i, line := range strings.Split(field, "\r\n") {
		if i > 0 && !strings.HasPrefix(line, " ") {
			break
		}
		if lines = append(lines, line); len(line) > 78 || strings.TrimSpace(line) == "" {
			t.Errorf("line %q, want up to 78 characters that are not all blank", line)
		}
	}
	// RFC 5322, 2.2.3: a reader takes out the line breaks alone.
	if got := strings.Join(lines, ""); got != value || len(lines) < 3 {
		t.Errorf("the header reads %q in %d lines, want %q in several", got, len(lines), value)
	}
}
