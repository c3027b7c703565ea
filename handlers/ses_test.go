package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// sent delivers a payload and returns what SES received, as JSON without the insignificant.
func sent(t *testing.T, config handlers.SESConfig, payload string) any {
	t.Helper()
	server := sesAnswers(t)
	receipt, err := newSES(t, config, server.URL).Handle(t.Context(), mailEvent(payload))
	if err != nil {
		t.Fatal(err)
	}
	if want := (outbox.Receipt{"ses": map[string]any{"messageId": "0102018e-mail"}}); !reflect.DeepEqual(receipt, want) {
		t.Errorf("receipt %v, want %v", receipt, want)
	}
	got := <-server.received
	if got.method != http.MethodPost || got.uri != "/v2/email/outbound-emails" {
		t.Errorf("%s %s, want SendEmail", got.method, got.uri)
	}
	return decode(t, string(got.body))
}

func decode(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

const (
	sentHeaders = `[{"Name": "X-Outbox-Event-Id", "Value": "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47"}]`
	sentTags    = `[{"Name": "outbox_event_id", "Value": "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47"},
		{"Name": "event_type", "Value": "order_placed"}]`
)

func TestSESSendsASimpleMail(t *testing.T) {
	t.Parallel()
	got := sent(t, handlers.SESConfig{From: "Bestellungen é <orders@shop.example.com>", ConfigurationSet: "orders-1", ReplyTo: []string{"help@shop.example.com"}}, `{
		"to": ["Ann Lee <ann@customer.example.org>", "bob@customer.example.org"], "cc": ["<c@customer.example.org>"],
		"bcc": ["Zoë <zoe@customer.example.org>"], "subject": "Ihre Bestellung – é", "text": "Hallo\r\nAnn", "html": "<p>Hallo Ann"
	}`)
	want := decode(t, `{
		"FromEmailAddress": "=?utf-8?q?Bestellungen_=C3=A9?= <orders@shop.example.com>",
		"ConfigurationSetName": "orders-1", "ReplyToAddresses": ["help@shop.example.com"],
		"Destination": {
			"ToAddresses": ["\"Ann Lee\" <ann@customer.example.org>", "bob@customer.example.org"],
			"CcAddresses": ["c@customer.example.org"], "BccAddresses": ["=?utf-8?q?Zo=C3=AB?= <zoe@customer.example.org>"]
		},
		"EmailTags": `+sentTags+`,
		"Content": {"Simple": {
			"Subject": {"Data": "Ihre Bestellung – é", "Charset": "UTF-8"},
			"Body": {"Text": {"Data": "Hallo\r\nAnn", "Charset": "UTF-8"}, "Html": {"Data": "<p>Hallo Ann", "Charset": "UTF-8"}},
			"Headers": `+sentHeaders+`
		}}
	}`)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("sent\n%v\nwant\n%v", got, want)
	}
}

func TestSESSendsATemplate(t *testing.T) {
	t.Parallel()
	for payload, data := range map[string]string{
		`{"to": ["ann@customer.example.org"], "template": "order_placed-1", "data": {"n": 12345678901234567890, "a": null}}`: `{\"n\": 12345678901234567890, \"a\": null}`,
		`{"bcc": ["ann@customer.example.org"], "template": "order_placed-1"}`:                                                `{}`,
		`{"to": ["ann@customer.example.org"], "template": "order_placed-1", "data": null, "subject": "", "text": null}`:      `{}`,
	} {
		field := "ToAddresses"
		if strings.HasPrefix(payload, `{"bcc"`) {
			field = "BccAddresses"
		}
		want := decode(t, `{
			"FromEmailAddress": "\"Orders\" <orders@shop.example.com>", "EmailTags": `+sentTags+`,
			"Destination": {"`+field+`": ["ann@customer.example.org"]},
			"Content": {"Template": {"TemplateName": "order_placed-1", "TemplateData": "`+data+`", "Headers": `+sentHeaders+`}}
		}`)
		if got := sent(t, handlers.SESConfig{}, payload); !reflect.DeepEqual(got, want) {
			t.Errorf("sent\n%v\nwant\n%v", got, want)
		}
	}
}

func TestSESAnswersGoWhereThePayloadSays(t *testing.T) {
	t.Parallel()
	config := handlers.SESConfig{ReplyTo: []string{"help@shop.example.com"}}
	got := sent(t, config, `{"to": ["ann@customer.example.org"], "subject": "s", "text": "t", "reply_to": ["bob@shop.example.com"]}`)
	replies, _ := got.(map[string]any)
	if want := []any{"bob@shop.example.com"}; !reflect.DeepEqual(replies["ReplyToAddresses"], want) {
		t.Errorf("reply to %v, want %v", replies["ReplyToAddresses"], want)
	}
}

func TestSESLabelsTheMailWhateverTheEvent(t *testing.T) {
	t.Parallel()
	server := sesAnswers(t)
	event := mailEvent("")
	event.ID, event.Type = "id with\r\nBcc: hunter2", strings.Repeat("é.", 200)
	if _, err := newSES(t, handlers.SESConfig{}, server.URL).Handle(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	body := string((<-server.received).body)
	for _, want := range []string{
		`"Value":"id_with__Bcc__hunter2"`, `"Value":"` + strings.Repeat("_", 255) + `"`, `"Name":"X-Outbox-Event-Id","Value":"sha256-`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("sent %s, want %s in it", body, want)
		}
	}
	event.Type = ""
	if _, err := newSES(t, handlers.SESConfig{}, server.URL).Handle(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if body := string((<-server.received).body); strings.Contains(body, "event_type") {
		t.Errorf("sent %s, want no empty tag", body)
	}
}

func TestSESDiscardsAPayloadWithAllItsFaults(t *testing.T) {
	t.Parallel()
	const (
		fields    = "to, cc, bcc, reply_to, from, subject, text, html, template, data, headers, attachments, tags, list_unsubscribe, format"
		shape     = "ses_payload_invalid: takes an object with " + fields
		invalid   = "not an address like ann@example.com or Ann <ann@example.com>"
		noTo      = "to: no recipient in to, cc or bcc"
		noSubject = "subject: missing; takes a text, or name a template instead"
		noText    = "text: missing; takes text, html or both, or name a template instead"
		good      = `"to": ["ann@customer.example.org"], "subject": "s", "text": "t"`
		letter    = `"to": ["ann@customer.example.org"], "template": "letter"`
	)
	many := func(n int) string { return strings.TrimSuffix(strings.Repeat(`"ann@customer.example.org", `, n), ", ") }
	for payload, want := range map[string][]string{
		`null`: {shape}, `[]`: {shape}, `"hunter2"`: {shape}, `12`: {shape}, `{`: {shape}, ``: {shape},
		`{}`: {noTo, noSubject, noText},
		`{"to": [], "cc": null, "bcc": [], "subject": "", "text": null, "html": ""}`: {noTo, noSubject, noText},
		`{"to": "ann@customer.example.org", "subject": "s", "text": "t"}`:            {"to: not a list of addresses"},
		`{"to": ["hunter2", 5, null, "@", "a@b, c@d"], "cc": [{}], "subject": "s", "text": "t"}`: {
			"to[0]: " + invalid, "to[1]: not a text", "to[2]: not a text", "to[3]: " + invalid, "to[4]: " + invalid, "cc[0]: not a text",
		},
		`{"to": ["jörg@example.com", "a@exämple.com", "a@[127.0.0.1]"], "reply_to": ["=?utf-8?q?a=0D=0Ab?= <a@example.com>"], "subject": "s", "text": "t"}`: {
			"to[0]: has letters beyond ASCII before the @, which SES doesn't take",
			"to[1]: has letters beyond ASCII in its domain, takes Punycode (xn--…)",
			"to[2]: has no domain name after the @", "reply_to[0]: has a control character",
		},
		`{"to": ["` + strings.Repeat("a", 309) + `@example.com"], "subject": "s", "text": "t"}`: {"to[0]: longer than 320 characters"},
		`{"to": [` + many(30) + `], "cc": [` + many(20) + `], "bcc": [` + many(1) + `], "subject": "s", "text": "t"}`: {
			"to: 51 recipients in to, cc and bcc together, takes up to 50",
		},
		`{"to": ["ann@customer.example.org"], "subject": "a\r\nBcc: hunter2", "text": "t"}`:     {"subject: has a line break or another control character"},
		`{"to": ["ann@customer.example.org"], "subject": "a\u2028hunter2", "text": "t"}`:        {"subject: has a line break or another control character"},
		`{"to": ["ann@customer.example.org"], "subject": 5, "text": {}, "html": ["hunter2"]}`:   {"subject: not a text", "text: not a text", "html: not a text"},
		`{` + good + `, "template": "hunter2", "data": []}`:                                     {"data: not an object", "subject: not together with template, which has its own", "text: not together with template, which has its own"},
		`{` + good + `, "data": {"a": "hunter2"}}`:                                              {"data: only together with template"},
		`{` + letter + `, "html": "hunter2"}`:                                                   {"html: not together with template, which has its own"},
		`{"to": ["ann@customer.example.org"], "template": "hunter2 x"}`:                         {"template: takes visible ASCII characters"},
		`{"to": ["ann@customer.example.org"], "template": 5}`:                                   {"template: not a text"},
		`{` + letter + `, "data": {"a": "` + strings.Repeat("é", 262_144) + `"}}`:               {"data: 262153 characters, takes up to 262144"},
		`{` + good + `, "replyTo": [], "Subject": "hunter2", "hunter2": 1, "a@example.com": 2}`: {"a field is spelled almost like subject", "a field is spelled almost like reply_to", "unknown fields: 2, takes " + fields},
		// What is there under another spelling is not missing too.
		`{"To": ["ann@customer.example.org"], "subject": "s", "text": "t"}`:        {"a field is spelled almost like to"},
		`{"BCC": ["ann@customer.example.org"], "SUBJECT": "s", "Html": "hunter2"}`: {"a field is spelled almost like bcc", "a field is spelled almost like html", "a field is spelled almost like subject"},
		`{"to": ["ann@customer.example.org"], "Template": "hunter2", "data": {}}`:  {"a field is spelled almost like template"},
		`{"Data": {}, "subject": "s", "text": "t"}`:                                {noTo, "a field is spelled almost like data"},
		`{` + good + `, "configuration_set": "hunter2"}`:                           {"unknown fields: 1, takes " + fields},
	} {
		if want[0] != shape {
			want[0] = "ses_payload_invalid: " + want[0]
		}
		t.Run(fmt.Sprintf("%.60s", payload), func(t *testing.T) {
			t.Parallel()
			server := sesAnswers(t)
			event := mailEvent("")
			event.Payload = json.RawMessage(payload)
			got := settlementOf(t, newSES(t, handlers.SESConfig{}, server.URL), event, 0)
			if reason := strings.Join(want, "; "); got.Outcome != outbox.Discarded || got.Reason != reason {
				t.Errorf("got %s\n%q, want discard\n%q", got.Outcome, got.Reason, reason)
			}
			if n := server.requests.Load(); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
		})
	}
}

func TestSESListsSomeOfManyFaults(t *testing.T) {
	t.Parallel()
	payload := `{"to": [` + strings.TrimSuffix(strings.Repeat(`"hunter2", `, 48), ", ") + `], "subject": "s", "text": "t"}`
	got := settlementOf(t, newSES(t, handlers.SESConfig{}, sesAnswers(t).URL), mailEvent(payload), 0)
	if n := strings.Count(got.Reason, "not an address"); n != 20 || !strings.HasSuffix(got.Reason, "; and 28 more") {
		t.Errorf("%d faults in %q, want 20 and 28 more", n, got.Reason)
	}
}

func TestSESTakesAddressesOfEveryForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a@example.com":                          "a@example.com",
		"  a@example.com ":                       "a@example.com",
		"a+b.c@xn--exmple-cua.com":               "a+b.c@xn--exmple-cua.com",
		`"a b"@example.com`:                      `"a b"@example.com`,
		`"Lee, Ann" <a@example.com>`:             `"Lee, Ann" <a@example.com>`,
		"a@example.com (Ann)":                    `"Ann" <a@example.com>`,
		"=?utf-8?q?Zo=C3=AB?= <a@example.com>":   "=?utf-8?q?Zo=C3=AB?= <a@example.com>",
		"Zoë <a@example.com>":                    "=?utf-8?q?Zo=C3=AB?= <a@example.com>",
		strings.Repeat("x", 64) + "@example.com": strings.Repeat("x", 64) + "@example.com",
		strings.Repeat("n", 999) + " <a@b.test>": `"` + strings.Repeat("n", 999) + `" <a@b.test>`,
	} {
		payload, err := json.Marshal(map[string]any{"to": []string{text}, "subject": "s", "text": "t"})
		if err != nil {
			t.Fatal(err)
		}
		mail, _ := sent(t, handlers.SESConfig{}, string(payload)).(map[string]any)
		if got := mail["Destination"]; !reflect.DeepEqual(got, map[string]any{"ToAddresses": []any{want}}) {
			t.Errorf("%q: sent to %v, want %q", text, got, want)
		}
	}
}

func TestNewSESReportsEveryFaultAndShowsNoAddress(t *testing.T) {
	t.Parallel()
	_, err := handlers.NewSES(handlers.SESConfig{
		From: "hunter2", ConfigurationSet: "hunter2!", ReplyTo: []string{"ok@shop.example.com", "hunter2"},
	})
	for _, field := range []string{"from: not an address", "configuration_set: takes up to 64", "reply_to[1]: not an address", "client: missing"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v lacks %q", err, field)
		}
	}
	if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "reply_to[0]")) {
		t.Errorf("error %v shows a value, or a fault where there is none", err)
	}
	if faults := (handlers.SESConfig{From: sender, ConfigurationSet: "a-Z_9", ReplyTo: []string{sender}}).Faults(); len(faults) != 0 {
		t.Errorf("faults %v, want none", faults)
	}
	if faults := (handlers.SESConfig{}).Faults(); len(faults) != 1 || faults[0].Field != "from" {
		t.Errorf("faults %v, want the sender missing", faults)
	}
}
