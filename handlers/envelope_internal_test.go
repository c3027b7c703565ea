package handlers

import (
	"encoding/json"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	goodParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	eventID    = "01890a5d-ac96-774b-bcce-b302099a8057"
)

func placed() outbox.Event {
	return outbox.Event{
		ID: eventID, Position: 42, Type: "order.placed", Attempts: 1,
		AggregateType: "order", AggregateID: "c0ffee00-0000-4000-8000-000000000001", IdempotencyKey: "order-17",
		CreatedAt: time.Date(2026, 1, 2, 4, 4, 5, 600, time.FixedZone("", 3600)),
		Payload:   []byte(`{"total": 12.50,  "n":1e400, "a<b":"\u003c&"}`),
		Metadata:  []byte(`{"traceparent":"` + goodParent + `","tracestate":"a=1,b=2","claimToken":"hunter2"}`),
	}
}

func TestEnvelopeIsAStructuredCloudEventByDefault(t *testing.T) {
	t.Parallel()
	body, contentType, headers := Envelope{DataSchema: "https://a.test/{type}.json"}.encode(placed())
	want := `{"specversion":"1.0","id":"` + eventID + `","source":"/outbox","type":"order.placed",` +
		`"subject":"order/c0ffee00-0000-4000-8000-000000000001","time":"2026-01-02T03:04:05.0000006Z",` +
		`"dataschema":"https://a.test/order.placed.json","traceparent":"` + goodParent + `","tracestate":"a=1,b=2",` +
		`"partitionkey":"c0ffee00-0000-4000-8000-000000000001","sequence":"0000000000000000042","idempotencykey":"order-17",` +
		`"datacontenttype":"application/json","data":{"total": 12.50,  "n":1e400, "a<b":"\u003c&"}}`
	if string(body) != want {
		t.Errorf("body\n%s\nwant\n%s", body, want)
	}
	if contentType != "application/cloudevents+json; charset=utf-8" {
		t.Errorf("content type %q", contentType)
	}
	if want := map[string]string{"traceparent": goodParent, "tracestate": "a=1,b=2"}; !maps.Equal(headers, want) {
		t.Errorf("headers %v, want %v", headers, want)
	}
}

func TestEnvelopeInBinaryModePutsAttributesIntoHeaders(t *testing.T) {
	t.Parallel()
	event := placed()
	event.Type = `Euro € 😀 "100%"`
	body, contentType, headers := Envelope{Format: EnvelopeBinary, Source: "https://shop.test/a"}.encode(event)
	if string(body) != string(event.Payload) || contentType != "application/json" {
		t.Errorf("body %s (%s), want the payload as it is", body, contentType)
	}
	want := map[string]string{
		"traceparent": goodParent, "tracestate": "a=1,b=2",
		"ce-specversion": "1.0", "ce-id": eventID, "ce-source": "https://shop.test/a",
		"ce-type":    "Euro%20%E2%82%AC%20%F0%9F%98%80%20%22100%25%22",
		"ce-subject": "order/c0ffee00-0000-4000-8000-000000000001", "ce-time": "2026-01-02T03:04:05.0000006Z",
		"ce-traceparent": goodParent, "ce-tracestate": "a=1,b=2",
		"ce-partitionkey": "c0ffee00-0000-4000-8000-000000000001", "ce-sequence": "0000000000000000042",
		"ce-idempotencykey": "order-17",
	}
	if !maps.Equal(headers, want) {
		t.Errorf("headers\n%v\nwant\n%v", headers, want)
	}
}

func TestEnvelopeCanBeLeftOut(t *testing.T) {
	t.Parallel()
	event := placed()
	body, contentType, headers := Envelope{Format: EnvelopeRaw, DataSchema: "https://a.test/"}.encode(event)
	if string(body) != string(event.Payload) || contentType != "application/json" || len(headers) != 2 {
		t.Errorf("got %s (%s) with %v, want the payload with its trace context alone", body, contentType, headers)
	}
}

// A receiver that compares bodies knows a repetition by it.
func TestEnvelopeIsTheSameInEveryAttempt(t *testing.T) {
	t.Parallel()
	first, second := placed(), placed()
	second.Attempts, second.Recovered, second.Age = 9, true, time.Hour
	second.Metadata = []byte(`{"snoozeCount":3,"tracestate":"a=1,b=2","traceparent":"` + goodParent + `","claimToken":"other"}`)
	one, _, _ := Envelope{}.encode(first)
	two, _, _ := Envelope{}.encode(second)
	if string(one) != string(two) {
		t.Errorf("first attempt\n%s\nlater\n%s", one, two)
	}
}

func TestSequenceOrdersAsText(t *testing.T) {
	t.Parallel()
	last := ""
	for _, position := range []int64{0, 1, 9, 10, 99, 100, 1 << 31, 1 << 62, 1<<63 - 1} {
		if text := sequence(position); text <= last {
			t.Errorf("%d is %q, which is not behind %q", position, text, last)
		} else {
			last = text
		}
	}
}

// Whatever a row holds, the event is delivered, as an envelope that every reader takes.
func TestEnvelopeTakesWhatARowCanHold(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*outbox.Event){
		"nothing at all":      func(e *outbox.Event) { *e = outbox.Event{Position: 7} },
		"control characters":  func(e *outbox.Event) { e.Type, e.IdempotencyKey = "a\r\nce-x: y\x00", "\x7f\u0085" },
		"no UTF-8":            func(e *outbox.Event) { e.Type, e.AggregateType = "a\xffb", "\xc3" },
		"noncharacters":       func(e *outbox.Event) { e.Type = "\uffff\U0001fffe\ufdd0" },
		"quotes and brackets": func(e *outbox.Event) { e.Type, e.IdempotencyKey = `","data":"`, `\`+"\u2028<&>" },
		"metadata no object":  func(e *outbox.Event) { e.Metadata = []byte(`["traceparent"]`) },
		"metadata broken":     func(e *outbox.Event) { e.Metadata = []byte(`{"traceparent":`) },
		"metadata of numbers": func(e *outbox.Event) { e.Metadata = []byte(`{"traceparent":1,"dataschema":{},"tracestate":[]}`) },
		"far future":          func(e *outbox.Event) { e.CreatedAt = time.Date(294276, 1, 1, 0, 0, 0, 0, time.UTC) },
		"before Christ":       func(e *outbox.Event) { e.CreatedAt = time.Date(-4712, 1, 1, 0, 0, 0, 0, time.UTC) },
		"null":                func(e *outbox.Event) { e.Payload = []byte(`null`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			event := placed()
			change(&event)
			body, _, _ := Envelope{DataSchema: "https://a.test/{type}"}.encode(event)
			var got map[string]json.RawMessage
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			for _, required := range []string{"id", "source", "specversion", "type"} {
				if textOf(got[required]) == "" {
					t.Errorf("%s is missing in %s", required, body)
				}
			}
			if string(got["data"]) != string(event.Payload) {
				t.Errorf("data %s, want %s", got["data"], event.Payload)
			}
			for name, raw := range got {
				if text := textOf(raw); name != "data" && (text == "" || cleanAttribute(text) != text) {
					t.Errorf("%s is %s, which CloudEvents does not take", name, raw)
				}
			}
			if text := textOf(got["dataschema"]); !isAbsoluteURI(text) {
				t.Errorf("dataschema %q is no absolute URI", text)
			}
			_, _, headers := Envelope{Format: EnvelopeBinary}.encode(event)
			for name, value := range headers {
				if strings.Trim(value, " ") != value || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c >= 0x7f }) {
					t.Errorf("header %s is %q", name, value)
				}
			}
		})
	}
}

func TestCleanAttributeKeepsWhatIsSound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"order.placed": "order.placed", "Euro € 😀 100%": "Euro € 😀 100%", "a\tb": "a\ufffdb", "\xff\xfe": "\ufffd\ufffd",
		"\u009f\u00a0": "\ufffd\u00a0", "\U0010ffff": "\ufffd", "\ufffd": "\ufffd", "": "",
	} {
		if got := cleanAttribute(text); got != want || !utf8.ValidString(got) {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestProducersWordIsTakenOnlyWhereItIsValid(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, metadata string
		want           producerContext
	}{
		{"all", `{"traceparent":"` + goodParent + `","tracestate":"k=v","dataschema":"urn:x:y"}`, producerContext{goodParent, "k=v", "urn:x:y"}},
		{"state without parent", `{"tracestate":"k=v"}`, producerContext{}},
		{"bad parent", `{"traceparent":"00-0-0-01","tracestate":"k=v"}`, producerContext{}},
		{"other case", `{"Traceparent":"` + goodParent + `","DataSchema":"urn:x:y"}`, producerContext{}},
		{"state without value", `{"traceparent":"` + goodParent + `","tracestate":"k"}`, producerContext{traceparent: goodParent}},
		{"state with a line", `{"traceparent":"` + goodParent + `","tracestate":"k=v\r\nx: y"}`, producerContext{traceparent: goodParent}},
		{"state too long", `{"traceparent":"` + goodParent + `","tracestate":"k=` + strings.Repeat("v", 511) + `"}`, producerContext{traceparent: goodParent}},
		{"many states", `{"traceparent":"` + goodParent + `","tracestate":"` + strings.Repeat("k=v,", 32) + `k=v"}`, producerContext{traceparent: goodParent}},
		{"relative schema", `{"dataschema":"/x"}`, producerContext{}},
		{"schema with a fragment", `{"dataschema":"https://a.test/#x"}`, producerContext{}},
		{"schema with a space", `{"dataschema":"https://a.test/x y"}`, producerContext{}},
		{"schema beyond ASCII", `{"dataschema":"https://a.test/é"}`, producerContext{}},
		{"schema with half an escape", `{"dataschema":"https://a.test/?%4"}`, producerContext{}},
		{"schema is a scheme", `{"dataschema":"https:"}`, producerContext{}},
		{"schema too long", `{"dataschema":"https://a.test/` + strings.Repeat("x", 2048) + `"}`, producerContext{}},
		{"nothing", ``, producerContext{}},
	} {
		if got := readProducerContext([]byte(test.metadata)); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestTheRowsSchemaGoesBeforeTheRoutes(t *testing.T) {
	t.Parallel()
	event := placed()
	event.Metadata = []byte(`{"dataschema":"urn:row"}`)
	body, _, _ := Envelope{DataSchema: "urn:route:{type}"}.encode(event)
	if !strings.Contains(string(body), `"dataschema":"urn:row"`) {
		t.Errorf("body %s, want the row's schema", body)
	}
	event.Metadata, event.Type = nil, "order/placed #1"
	body, _, _ = Envelope{DataSchema: "urn:route:{type}"}.encode(event)
	if !strings.Contains(string(body), `"dataschema":"urn:route:order%2Fplaced%20%231"`) {
		t.Errorf("body %s, want the type escaped in the route's schema", body)
	}
}

func TestEnvelopeReportsItsFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		envelope Envelope
		want     string
	}{
		{Envelope{}, ""},
		{Envelope{Format: EnvelopeRaw, Source: "urn:shop", DataSchema: "urn:{type}:1"}, ""},
		{Envelope{Source: "shop/é"}, "source"},
		{Envelope{Source: "https://[::1"}, "source"},
		{Envelope{Source: "a b"}, "source"},
		{Envelope{Format: "cloudevent"}, "envelope"},
		{Envelope{DataSchema: "/{type}"}, "dataschema"},
		{Envelope{DataSchema: "{type}"}, "dataschema"},
		{Envelope{DataSchema: "https://{type}.test"}, "dataschema"},
		{Envelope{DataSchema: "https://a.test/{typ}"}, "dataschema"},
		{Envelope{DataSchema: "https://a.test/#{type}"}, "dataschema"},
		{Envelope{Format: EnvelopeBinary}, "envelope (structured)"},
	} {
		var got string
		for _, fault := range test.envelope.Faults() {
			got += fault.Field
		}
		if faults := test.envelope.structuredFaults(); got == "" && len(faults) > 0 {
			got = faults[0].Field + " (structured)"
		}
		if got != test.want {
			t.Errorf("%+v: fault in %q, want %q", test.envelope, got, test.want)
		}
	}
}

// FuzzEnvelope looks for rows whose envelope is no JSON, loses something of the payload or an attribute, or cannot be
// a header.
func FuzzEnvelope(f *testing.F) {
	f.Add("1", "order.placed", "order", "2", "key", `{"traceparent":"`+goodParent+`","dataschema":"urn:x:y"}`)
	f.Add("", "\x00\r\n", "100%", "\xff", "\ufffe\u0085", `{"traceparent":5}`)
	f.Fuzz(func(t *testing.T, id, kind, aggregateType, aggregateID, key, metadata string) {
		event := outbox.Event{
			ID: id, Type: kind, AggregateType: aggregateType, AggregateID: aggregateID, IdempotencyKey: key,
			Metadata: json.RawMessage(metadata), Payload: []byte(`{"a" : "<\u2028>"}`),
		}
		body, _, _ := Envelope{DataSchema: "urn:{type}"}.encode(event)
		var got map[string]json.RawMessage
		if err := json.Unmarshal(body, &got); err != nil || string(got["data"]) != string(event.Payload) {
			t.Fatalf("%v, data %s in %s", err, got["data"], body)
		}
		for name, sent := range map[string]string{"type": kind, "idempotencykey": key, "partitionkey": aggregateID} {
			if want := cleanAttribute(sent); textOf(got[name]) != want && (name != "type" || want != "") {
				t.Errorf("%s is %s, want %q", name, got[name], want)
			}
		}
		_, _, headers := Envelope{Format: EnvelopeBinary}.encode(event)
		for name, value := range headers {
			decoded, err := url.PathUnescape(value)
			if err != nil || !strings.HasPrefix(name, "trace") && cleanAttribute(decoded) != decoded ||
				strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c >= 0x7f }) {
				t.Errorf("header %s is %q, %v", name, value, err)
			}
		}
		if decoded, _ := url.PathUnescape(headers["ce-type"]); decoded != cleanAttribute(kind) && kind != "" {
			t.Errorf("ce-type decodes to %q, want %q", decoded, cleanAttribute(kind))
		}
	})
}
