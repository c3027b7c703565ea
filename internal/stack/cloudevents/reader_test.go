// Package cloudevents_test has the official SDK read what the handlers send.
package cloudevents_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func row(change func(*outbox.Event)) outbox.Event {
	e := outbox.Event{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", Position: 42, Type: "order.placed", Attempts: 1,
		AggregateType: "order", AggregateID: "c0ffee00-0000-4000-8000-000000000001", IdempotencyKey: "order-17",
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC),
		Payload:   []byte(`{"total": 12.50,  "n": 1e400, "html": "<&>"}`),
		Metadata:  []byte(`{"traceparent":"` + parent + `","tracestate":"a=1,b=2","claimToken":"hunter2"}`),
	}
	if change != nil {
		change(&e)
	}
	return e
}

// byHTTP is what a receiver with the SDK reads of a webhook.
func byHTTP(t *testing.T, envelope handlers.Envelope, sent outbox.Event) event.Event {
	t.Helper()
	var got *event.Event
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if got, err = cehttp.NewEventFromHTTPRequest(r); err != nil {
			t.Errorf("the SDK does not read it: %v", err)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	handler, err := handlers.NewHTTP(handlers.HTTPConfig{
		URL: receiver.URL, AllowHTTP: true, AllowPorts: []handlers.Ports{{First: 1, Last: 65535}},
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Envelope: envelope,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handler.Handle(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	return *got
}

// bySNS is what it reads of a topic's message.
func bySNS(t *testing.T, envelope handlers.Envelope, sent outbox.Event) event.Event {
	t.Helper()
	var message string
	topic := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		message = form.Get("Message")
		_, _ = io.WriteString(w, `<PublishResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishResult><MessageId>m-1</MessageId></PublishResult></PublishResponse>`)
	}))
	defer topic.Close()
	client := sns.New(sns.Options{
		Region: "eu-west-1", BaseEndpoint: &topic.URL, Credentials: aws.NewCredentialsCache(credentials.NewStaticCredentialsProvider("AKIATEST", "not-a-secret", "")),
	})
	handler, err := handlers.NewSNS(handlers.SNSConfig{
		TopicARN: "arn:aws:sns:eu-west-1:123456789012:orders", Client: client, Envelope: envelope,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handler.Handle(context.Background(), sent); err != nil {
		t.Fatal(err)
	}
	var got event.Event
	if err := got.UnmarshalJSON([]byte(message)); err != nil {
		t.Errorf("the SDK does not read %s: %v", message, err)
	}
	return got
}

// ways are all in which an envelope travels.
func ways() map[string]func(*testing.T, handlers.Envelope, outbox.Event) event.Event {
	return map[string]func(*testing.T, handlers.Envelope, outbox.Event) event.Event{
		"webhook, structured": byHTTP,
		"webhook, binary": func(t *testing.T, envelope handlers.Envelope, sent outbox.Event) event.Event {
			envelope.Format = handlers.EnvelopeBinary
			return byHTTP(t, envelope, sent)
		},
		"topic": bySNS,
	}
}

func TestTheSDKReadsWhatIsSent(t *testing.T) {
	t.Parallel()
	for name, send := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := row(nil)
			got := send(t, handlers.Envelope{Source: "https://shop.test/outbox", DataSchema: "https://shop.test/{type}.json"}, sent)
			if err := got.Validate(); err != nil {
				t.Errorf("the SDK finds it invalid: %v", err)
			}
			if string(got.Data()) != string(sent.Payload) {
				t.Errorf("data %s, want %s", got.Data(), sent.Payload)
			}
			for what, pair := range map[string][2]string{
				"id": {got.ID(), sent.ID}, "source": {got.Source(), "https://shop.test/outbox"}, "type": {got.Type(), sent.Type},
				"subject": {got.Subject(), "order/c0ffee00-0000-4000-8000-000000000001"}, "time": {got.Time().Format(time.RFC3339Nano), "2026-01-02T03:04:05.0000006Z"},
				"specversion": {got.SpecVersion(), "1.0"}, "datacontenttype": {got.DataContentType(), "application/json"},
				"dataschema": {got.DataSchema(), "https://shop.test/order.placed.json"},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s is %q, want %q", what, pair[0], pair[1])
				}
			}
			want := map[string]string{
				"traceparent": parent, "tracestate": "a=1,b=2", "partitionkey": sent.AggregateID,
				"sequence": "0000000000000000042", "idempotencykey": "order-17",
			}
			for name, value := range got.Extensions() {
				if value != want[name] {
					t.Errorf("extension %s is %q, want %q", name, value, want[name])
				}
				delete(want, name)
			}
			if len(want) > 0 {
				t.Errorf("extensions are missing: %v", want)
			}
		})
	}
}

// Whatever a row holds arrives, and is valid to the SDK.
func TestTheSDKReadsHostileRows(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*outbox.Event){
		"no type":             func(e *outbox.Event) { e.Type = "" },
		"no producer's words": func(e *outbox.Event) { e.Metadata, e.IdempotencyKey = nil, "" },
		"no aggregate":        func(e *outbox.Event) { e.AggregateType, e.AggregateID = "", "" },
		"lines":               func(e *outbox.Event) { e.Type, e.IdempotencyKey = "a\r\nce-id: 1", "x\ny\x00" },
		"no UTF-8":            func(e *outbox.Event) { e.Type, e.AggregateType = "a\xff", "\xc3(" },
		"noncharacters":       func(e *outbox.Event) { e.Type, e.IdempotencyKey = "\uffff", "\U0010fffe\ufdd0" },
		"all of Unicode":      func(e *outbox.Event) { e.Type, e.IdempotencyKey = `Euro € 😀 "100%" 日本語`, "\u2028<&>\\" },
		"quotes":              func(e *outbox.Event) { e.Type = `","id":"` },
		"long":                func(e *outbox.Event) { e.IdempotencyKey = strings.Repeat("k", 2000) },
		"no time":             func(e *outbox.Event) { e.CreatedAt = time.Time{} },
		"bad trace": func(e *outbox.Event) {
			e.Metadata = []byte(`{"traceparent":"x\ny","tracestate":"","dataschema":"no uri"}`)
		},
		"null": func(e *outbox.Event) { e.Payload = []byte(`null`) },
		"text": func(e *outbox.Event) { e.Payload = []byte(`"<b>"`) },
	} {
		for way, send := range ways() {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				sent := row(change)
				got := send(t, handlers.Envelope{DataSchema: "urn:schema:{type}"}, sent)
				if err := got.Validate(); err != nil {
					t.Errorf("the SDK finds it invalid: %v", err)
				}
				if string(got.Data()) != string(sent.Payload) {
					t.Errorf("data %s, want %s", got.Data(), sent.Payload)
				}
				// The HTTP binding has readers decode headers, which the SDK leaves to its user.
				kind := got.Type()
				if decoded, err := url.PathUnescape(kind); err == nil && way == "webhook, binary" {
					kind = decoded
				}
				if name == "all of Unicode" && kind != sent.Type {
					t.Errorf("type %q, want %q", kind, sent.Type)
				}
			})
		}
	}
}
