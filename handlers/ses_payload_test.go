package handlers_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

const goodMail = `"to": ["ann@customer.example.org"], "subject": "s", "text": "t"`

func object(t *testing.T, value any, path ...string) any {
	t.Helper()
	for _, name := range path {
		fields, found := value.(map[string]any)
		if !found {
			t.Fatalf("no object around %s in %v", name, value)
		}
		value = fields[name]
	}
	return value
}

func TestSESSendsHeadersTagsAndFiles(t *testing.T) {
	t.Parallel()
	const fields = `"headers": {"X-Campaign": "spring", "In-Reply-To": " <1@shop.example.com> ", "X-None": null, "X-Empty": ""},
		"tags": {"tenant": "acme-1"}, "list_unsubscribe": {"url": "https://shop.example.com/u/1?a=b", "mailto": "u@shop.example.com?subject=off"},
		"html": "<img src='cid:logo@1'>", "attachments": [
			{"filename": "Invoice 17.pdf", "content_type": "application/pdf", "content": "JVBERi0="},
			{"filename": "logo.png", "content_type": "image/png", "content": "AAE=", "content_id": "logo@1"}, {"filename": "a", "content": ""}]`
	const headers = `[{"Name": "X-Outbox-Event-Id", "Value": "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47"},
		{"Name": "In-Reply-To", "Value": "<1@shop.example.com>"}, {"Name": "X-Campaign", "Value": "spring"},
		{"Name": "List-Unsubscribe", "Value": "<https://shop.example.com/u/1?a=b>, <mailto:u@shop.example.com?subject=off>"},
		{"Name": "List-Unsubscribe-Post", "Value": "List-Unsubscribe=One-Click"}]`
	const files = `[
		{"FileName": "Invoice 17.pdf", "ContentType": "application/pdf", "RawContent": "JVBERi0=", "ContentDisposition": "ATTACHMENT", "ContentTransferEncoding": "BASE64"},
		{"FileName": "logo.png", "ContentType": "image/png", "RawContent": "AAE=", "ContentDisposition": "INLINE", "ContentId": "logo@1", "ContentTransferEncoding": "BASE64"}]`
	tags := strings.TrimSuffix(sentTags, "]") + `, {"Name": "tenant", "Value": "acme-1"}]`
	plain := strings.Replace(fields, `, {"filename": "a", "content": ""}`, "", 1)
	got := sent(t, handlers.SESConfig{}, `{`+goodMail+`, `+plain+`}`)
	for path, want := range map[string]string{"Content/Simple/Headers": headers, "Content/Simple/Attachments": files, "EmailTags": tags} {
		if got := object(t, got, strings.Split(path, "/")...); !reflect.DeepEqual(got, decode(t, want)) {
			t.Errorf("%s is\n%v\nwant\n%v", path, got, decode(t, want))
		}
	}
	letter := strings.Replace(plain, `"html": "<img src='cid:logo@1'>"`, `"template": "letter"`, 1)
	got = sent(t, handlers.SESConfig{}, `{"to": ["ann@customer.example.org"], `+letter+`}`)
	for path, want := range map[string]string{"Content/Template/Headers": headers, "Content/Template/Attachments": files, "EmailTags": tags} {
		if got := object(t, got, strings.Split(path, "/")...); !reflect.DeepEqual(got, decode(t, want)) {
			t.Errorf("%s of a template is\n%v\nwant\n%v", path, got, decode(t, want))
		}
	}
}

func TestSESUnsubscribesByOneClickOnlyOverHTTPS(t *testing.T) {
	t.Parallel()
	for ways, want := range map[string][]string{
		`{"url": "https://shop.example.com/u"}`:                                       {"<https://shop.example.com/u>", "List-Unsubscribe=One-Click"},
		`{"url": "HTTPS://shop.example.com/u"}`:                                       {"<HTTPS://shop.example.com/u>", "List-Unsubscribe=One-Click"},
		`{"url": "http://shop.example.com/u", "mailto": "mailto:u@shop.example.com"}`: {"<http://shop.example.com/u>, <mailto:u@shop.example.com>"},
		`{"url": null, "mailto": "u@shop.example.com"}`:                               {"<mailto:u@shop.example.com>"},
	} {
		headers, _ := object(t, sent(t, handlers.SESConfig{}, `{`+goodMail+`, "list_unsubscribe": `+ways+`}`), "Content", "Simple", "Headers").([]any)
		var got []string
		for _, header := range headers[1:] {
			got = append(got, fmt.Sprint(object(t, header, "Value")))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: sent %q, want %q", ways, got, want)
		}
	}
}

func TestSESSendsFromASenderThatIsAllowed(t *testing.T) {
	t.Parallel()
	config := handlers.SESConfig{FromAllowed: []string{"billing@shop.example.com", "@news.example.com"}}
	for from, want := range map[string]string{
		"":                                       `"Orders" <orders@shop.example.com>`,
		"Zoë <billing@shop.example.com>":         "=?utf-8?q?Zo=C3=AB?= <billing@shop.example.com>",
		"BILLING@Shop.Example.com":               "BILLING@Shop.Example.com",
		"anyone@news.example.com":                "anyone@news.example.com",
		"orders@shop.example.com":                "", // the route's own is one like any other
		"anyone@shop.example.com":                "",
		"anyone@sub.news.example.com":            "",
		"billing@shop.example.com.evil.test":     "",
		"a@evil.test, billing@shop.example.com":  "",
		"billing@shop.example.com <a@evil.test>": "",
		"\"@news.example.com\"@evil.test":        "",
	} {
		raw, err := json.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		payload := `{` + goodMail + `, "from": ` + string(raw) + `}`
		if want == "" {
			got := settlementOf(t, newSES(t, config, sesAnswers(t).URL), mailEvent(payload), 0)
			if got.Outcome != outbox.Discarded || !strings.HasPrefix(got.Reason, "ses_payload_invalid: from: not an address") {
				t.Errorf("%q: %s %q, want a discard for its sender", from, got.Outcome, got.Reason)
			}
			continue
		}
		if got := object(t, sent(t, config, payload), "FromEmailAddress"); got != want {
			t.Errorf("%q: sent from %v, want %q", from, got, want)
		}
	}
}

func TestSESRefusesWhatAMailMayNotHold(t *testing.T) {
	t.Parallel()
	const (
		reserved = "headers: has one that is set otherwise: from, sender, to, cc, bcc, reply-to, return-path, subject, date, message-id, mime-version, received, " +
			"dkim-signature, content-*, resent-*, x-ses-*, x-outbox-*, and with list_unsubscribe list-unsubscribe*"
		name    = "headers: has a name that is none, takes visible ASCII characters without a colon"
		value   = "headers: has a value that is none, takes printable ASCII characters; encode others as RFC 2047 says"
		long    = "headers: has a longer one than 126 characters of name, 995 of value and 996 of both"
		webURL  = `list_unsubscribe.url: not a URL like https://example.com/u/17, of up to 480 visible ASCII characters but < > " and \`
		mailto  = "list_unsubscribe.mailto: not an address like u17@example.com or u17@example.com?subject=unsubscribe"
		tag     = "tags: has a name or value that is none, takes up to 255 letters, digits, - and _"
		badType = "attachments[0].content_type: not a media type like application/pdf"
		file    = `{"filename": "a.txt", "content": "YQ=="}`
	)
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"x-%d": "v"`, i))
		}
		return strings.Join(all, ", ")
	}
	cases := map[string]string{
		`"headers": []`:         "headers: not an object of texts",
		`"headers": {"X-A": 5}`: "headers: not an object of texts",
		`"headers": {"X-A": "hunter2\r\nBcc: a@evil.test"}`:                                            value,
		`"headers": {"X-A": "hunter2\nBcc: a@evil.test"}`:                                              value,
		`"headers": {"X-A": "ü"}`:                                                                      value,
		`"headers": {"X-A": "   "}`:                                                                    value,
		`"headers": {"X-A: x\r\nBcc": "hunter2"}`:                                                      name,
		`"headers": {"X A": "hunter2"}`:                                                                name,
		`"headers": {"": "hunter2"}`:                                                                   name,
		`"headers": {"X-Ä": "hunter2"}`:                                                                name,
		`"headers": {"` + strings.Repeat("x", 127) + `": "v"}`:                                         long,
		`"headers": {"x": "` + strings.Repeat("v", 996) + `"}`:                                         long,
		`"headers": {"xx": "` + strings.Repeat("v", 995) + `"}`:                                        long,
		`"headers": {"X-A": "v", "x-a": "w"}`:                                                          "headers: has one twice, but for the case of its letters",
		`"headers": {"List-Unsubscribe": "<a>"}, "list_unsubscribe": {"mailto": "u@shop.example.com"}`: reserved,
		`"list_unsubscribe": []`:                                                                       "list_unsubscribe: not an object with url, mailto",
		`"list_unsubscribe": {}`:                                                                       "list_unsubscribe: takes a url, a mailto or both",
		`"list_unsubscribe": {"url": "ftp://hunter2"}`:                                                 webURL,
		`"list_unsubscribe": {"url": "https://"}`:                                                      webURL,
		`"list_unsubscribe": {"url": "https://u:hunter2@a.test"}`:                                      webURL,
		`"list_unsubscribe": {"url": "https://a.test/>, <mailto:x"}`:                                   webURL,
		`"list_unsubscribe": {"url": "https://a.test/\r\nBcc: x"}`:                                     webURL,
		`"list_unsubscribe": {"mailto": "hunter2"}`:                                                    mailto,
		`"list_unsubscribe": {"mailto": "a@b.test>, <https://evil.test"}`:                              mailto,
		`"list_unsubscribe": {"mailto": "a%20b <c@d.test>"}`:                                           mailto,
		`"list_unsubscribe": {"URL": "https://hunter2.test"}`:                                          "a field is spelled almost like list_unsubscribe.url",
		`"list_unsubscribe": {"mailto": "u@shop.example.com", "hunter2": 1}`:                           "list_unsubscribe: unknown fields: 1, takes url, mailto",
		`"tags": {"a b": "c"}`:                                                                         tag,
		`"tags": {"a": "c d"}`:                                                                         tag,
		`"tags": {"ses:hunter2": "c"}`:                                                                 tag,
		`"tags": {"a": "` + strings.Repeat("v", 256) + `"}`:                                            tag,
		`"tags": {"event_type": "c"}`:                                                                  "tags: has one that is set otherwise: outbox_event_id, event_type",
		`"tags": {"outbox_event_id": "c"}`:                                                             "tags: has one that is set otherwise: outbox_event_id, event_type",
		`"tags": {` + many(49) + `}`:                                                                   "tags: 49 of them, takes up to 48",
		`"tags": ["a"]`:                                                                                "tags: not an object of texts",
		`"attachments": {}`:                                                                            "attachments: not a list of objects",
		`"attachments": ["hunter2"]`:                                                                   "attachments: not a list of objects",
		`"attachments": [null]`:                                                                        "attachments[0].content: missing; takes the file in base64; attachments[0].filename: missing; takes the file's name",
		`"attachments": [` + file + `, {"filename": "a\r\nBcc: x", "content": "?", "content_type": "a"}]`: "attachments[1].content: not base64, in the standard alphabet and with its padding; " +
			"attachments[1].filename: has a line break or another control character; " + strings.Replace(badType, "[0]", "[1]", 1),
		`"attachments": [{"filename": "` + strings.Repeat("é", 256) + `", "content": "YQ=="}]`:                         "attachments[0].filename: longer than 255 characters",
		`"attachments": [{"filename": "a", "content": "YQ==", "content_type": "text/plain\r\nBcc: hunter2"}]`:          badType,
		`"attachments": [{"filename": "a", "content": "YQ==", "content_type": "text"}]`:                                badType,
		`"attachments": [{"filename": "a", "content": "YQ==", "content_type": "multipart/mixed; boundary=hunter2"}]`:   "attachments[0].content_type: not one for an attachment: takes no multipart and no message",
		`"attachments": [{"filename": "a", "content": "YQ", "hunter2": 1}]`:                                            "attachments[0].content: not base64, in the standard alphabet and with its padding; attachments[0]: unknown fields: 1, takes filename, content_type, content, content_id",
		`"attachments": [{"fileName": "hunter2", "Content": "YQ=="}]`:                                                  "a field is spelled almost like attachments[0].content; a field is spelled almost like attachments[0].filename",
		`"attachments": [{"filename": "a", "content": "YQ==", "content_id": "<hunter2>"}], "html": "h"`:                "attachments[0].content_id: takes up to 78 letters, digits, dots, _, -, + and @",
		`"attachments": [{"filename": "a", "content": "YQ==", "content_id": "a"}]`:                                     "attachments[0].content_id: only together with html, which shows it",
		`"html": "h", "attachments": [{"content_id": "a", "content": "YQ=="}, {"content_id": "a", "content": "YQ=="}]`: "attachments[1].content_id: a second time",
		`"format": "mime"`: "format: takes raw, or leave it out",
		`"format": true`:   "format: not a text",
	}
	for header := range strings.FieldsSeq("From sender TO cc bcc Reply-To return-path Subject date Message-ID mime-version received " +
		"DKIM-Signature Content-Type content-id Resent-To X-SES-Configuration-Set x-ses-message-tags X-Outbox-Event-Id") {
		cases[`"headers": {"`+header+`": "hunter2"}`] = reserved
	}
	for fields, want := range cases {
		t.Run(fmt.Sprintf("%.70s", fields), func(t *testing.T) {
			t.Parallel()
			server := sesAnswers(t)
			got := settlementOf(t, newSES(t, handlers.SESConfig{}, server.URL), mailEvent(`{`+goodMail+`, `+fields+`}`), 0)
			if got.Outcome != outbox.Discarded || got.Reason != "ses_payload_invalid: "+want {
				t.Errorf("got %s\n%q, want discard\n%q", got.Outcome, got.Reason, "ses_payload_invalid: "+want)
			}
			if n := server.requests.Load(); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
		})
	}
	for fields, want := range map[string]string{
		`"format": "raw"`:               "format: not together with template",
		`"headers": {` + many(15) + `}`: "headers: 15 of them, takes up to 14 together with template",
		`"attachments": [{"filename": "ü", "content": "YQ=="}, {"content_id": "a", "content": "YQ=="}]`: "attachments[0]: takes a filename of ASCII characters and a content_type of up to 78 together with template; " +
			"attachments[1]: takes a filename of ASCII characters and a content_type of up to 78 together with template",
	} {
		payload := `{"to": ["ann@customer.example.org"], "template": "hunter2", ` + fields + `}`
		got := settlementOf(t, newSES(t, handlers.SESConfig{}, sesAnswers(t).URL), mailEvent(payload), 0)
		if got.Outcome != outbox.Discarded || got.Reason != "ses_payload_invalid: "+want {
			t.Errorf("%s: got %s\n%q, want discard\n%q", fields, got.Outcome, got.Reason, want)
		}
	}
}

func TestNewSESReportsFaultySendersThatAreAllowed(t *testing.T) {
	t.Parallel()
	config := handlers.SESConfig{From: sender, FromAllowed: []string{
		"a@shop.example.com", "@shop.example.com", "hunter2", "@", "*@hunter2.test", "Ann <hunter2@a.test>", "@hunter2.test, @b.test", "",
	}}
	var got []string
	for _, fault := range config.Faults() {
		got = append(got, fault.Field)
		if strings.Contains(fault.Error(), "hunter2") {
			t.Errorf("%v shows a value", fault)
		}
	}
	want := []string{"from_allowed[2]", "from_allowed[3]", "from_allowed[4]", "from_allowed[5]", "from_allowed[6]", "from_allowed[7]"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("faults %v, want %v", got, want)
	}
}
