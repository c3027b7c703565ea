package handlers_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// published is a request as the wire carried it: its form, and its attributes as type and value.
func published(t *testing.T, server *wire) (url.Values, map[string][2]string) {
	t.Helper()
	form, err := url.ParseQuery(string((<-server.received).body))
	if err != nil {
		t.Fatal(err)
	}
	attributes := make(map[string][2]string)
	for i := 1; form.Has("MessageAttributes.entry." + strconv.Itoa(i) + ".Name"); i++ {
		entry := "MessageAttributes.entry." + strconv.Itoa(i)
		attributes[form.Get(entry+".Name")] = [2]string{
			form.Get(entry + ".Value.DataType"), form.Get(entry + ".Value.StringValue"),
		}
	}
	return form, attributes
}

// unwrapped returns the payload of a message, whatever its envelope.
func unwrapped(t *testing.T, envelope handlers.Envelope, message string) string {
	t.Helper()
	if envelope.Format == handlers.EnvelopeRaw {
		return message
	}
	_, data, found := strings.Cut(message, `"datacontenttype":"application/json","data":`)
	if !found || !strings.HasPrefix(message, `{"specversion":"1.0","id":"`) || !strings.HasSuffix(data, "}") {
		t.Fatalf("message %q, want a CloudEvent", message)
	}
	return strings.TrimSuffix(data, "}")
}

// envelopes are those that a topic takes.
func envelopes() []handlers.Envelope { return []handlers.Envelope{{}, {Format: handlers.EnvelopeRaw}} }

func TestSNSPublishesThePayloadByteForByte(t *testing.T) {
	t.Parallel()
	for _, envelope := range envelopes() {
		server := snsAnswers(t)
		handler := newSNS(t, handlers.SNSConfig{Envelope: envelope}, server.URL)
		for _, payload := range []string{
			`{}`, `null`, `""`, `1e400`, `12345678901234567890`, `{"b": 1, "a": 2, "b": 3}`, "{\"text\": \"<&>+%20 \u2028 é\"}",
		} {
			event := sampleEvent()
			event.Payload = json.RawMessage(payload)
			if _, err := handler.Handle(t.Context(), event); err != nil {
				t.Fatalf("%s: %v", payload, err)
			}
			form, _ := published(t, server)
			if got := unwrapped(t, envelope, form.Get("Message")); got != payload {
				t.Errorf("payload %q, want %q", got, payload)
			}
		}
	}
}

func TestSNSSendsACloudEventUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	server := snsAnswers(t)
	event := sampleEvent()
	event.Metadata = json.RawMessage(`{"claimToken": "hunter2"}`)
	handler := newSNS(t, handlers.SNSConfig{Envelope: handlers.Envelope{
		Source: "/shop", DataSchema: "https://schemas.example.com/{type}.json",
	}}, server.URL)
	if _, err := handler.Handle(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	form, _ := published(t, server)
	var got map[string]any
	if err := json.Unmarshal([]byte(form.Get("Message")), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"specversion": "1.0", "id": event.ID, "source": "/shop", "type": "order.placed", "subject": "order/" + event.AggregateID,
		"time": "2026-11-30T06:00:00.123456Z", "dataschema": "https://schemas.example.com/order.placed.json",
		"partitionkey": event.AggregateID, "sequence": "0000000000000000042", "idempotencykey": "order-17/placed",
		"datacontenttype": "application/json", "data": map[string]any{"total": 12.0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("message %v, want %v", got, want)
	}
}

// SQS takes no other characters; a queue behind the topic would lose the message, and nobody would hear of it.
func TestSNSEscapesWhatQueuesRefuseAndKeepsTheValue(t *testing.T) {
	t.Parallel()
	for _, envelope := range envelopes() {
		server := snsAnswers(t)
		handler := newSNS(t, handlers.SNSConfig{Envelope: envelope}, server.URL)
		for payload, want := range map[string]string{
			"{\"a\ufffe\": \"\uffff b\", \"n\": 12345678901234567890}":             `{"a\ufffe": "\uffff b", "n": 12345678901234567890}`,
			"\t[\"\ud7ff\ue000\ufffd\U0001fffe\U0010ffff\u007f\u0085\ufffe\"]\r\n": "\t[\"\ud7ff\ue000\ufffd\U0001fffe\U0010ffff\u007f\u0085\\ufffe\"]\r\n",
			`["\\` + "\ufffe\"]": `["\\\ufffe"]`,
		} {
			event := sampleEvent()
			event.Payload = json.RawMessage(payload)
			if _, err := handler.Handle(t.Context(), event); err != nil {
				t.Fatalf("%q: %v", payload, err)
			}
			form, _ := published(t, server)
			got := unwrapped(t, envelope, form.Get("Message"))
			if got != want {
				t.Errorf("payload %q, want %q", got, want)
			}
			if before, after := decode(t, payload), decode(t, got); !reflect.DeepEqual(before, after) {
				t.Errorf("%q is another value than %q", got, payload)
			}
		}
	}
}

func TestSNSSendsAttributesToFilterBy(t *testing.T) {
	t.Parallel()
	server := snsAnswers(t)
	event := sampleEvent()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	event.Metadata = json.RawMessage(`{"claimToken": "hunter2", "traceparent": "` + parent + `"}`)
	if _, err := newSNS(t, handlers.SNSConfig{}, server.URL).Handle(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	_, got := published(t, server)
	want := map[string][2]string{
		"event_id":        {"String", "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47"},
		"event_type":      {"String", "order.placed"},
		"aggregate_type":  {"String", "order"},
		"aggregate_id":    {"String", "0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10"},
		"idempotency_key": {"String", "order-17/placed"},
		"position":        {"Number", "42"},
		"attempt":         {"Number", "3"},
		"created_at":      {"String", "2026-11-30T06:00:00.123456Z"},
		"traceparent":     {"String", parent},
	}
	if !maps.Equal(got, want) {
		t.Errorf("attributes %v, want %v", got, want)
	}
}

func TestSNSOmitsEmptyAttributesAndEncodesWhatQueuesRefuse(t *testing.T) {
	t.Parallel()
	server := snsAnswers(t)
	event := sampleEvent()
	event.AggregateType, event.IdempotencyKey = "", "100%\u0000\n \ufffe\xff é 😀\ufffd"
	if _, err := newSNS(t, handlers.SNSConfig{}, server.URL).Handle(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	_, got := published(t, server)
	if _, found := got["aggregate_type"]; found {
		t.Error("an empty attribute was sent, which SNS refuses")
	}
	want := "100%25%00%0A %EF%BF%BE%FF é 😀\ufffd"
	if got["idempotency_key"][1] != want {
		t.Errorf("idempotency_key %q, want %q", got["idempotency_key"][1], want)
	}
	if decoded, err := url.PathUnescape(want); err != nil || decoded != event.IdempotencyKey {
		t.Errorf("decoded %q, want the value itself", decoded)
	}
}

func TestSNSSendsGroupAndDeduplicationToFIFOTopicsOnly(t *testing.T) {
	t.Parallel()
	server := snsAnswers(t)
	plain := newSNS(t, handlers.SNSConfig{}, server.URL)
	fifo := newSNS(t, handlers.SNSConfig{TopicARN: topicARN + ".fifo"}, server.URL)

	receipt, err := fifo.Handle(t.Context(), sampleEvent())
	if err != nil {
		t.Fatal(err)
	}
	form, _ := published(t, server)
	if got, want := form.Get("MessageGroupId"), "order:0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10"; got != want {
		t.Errorf("group %q, want %q", got, want)
	}
	if got, want := form.Get("MessageDeduplicationId"), sampleEvent().ID; got != want {
		t.Errorf("deduplication id %q, want %q", got, want)
	}
	want := outbox.Receipt{"sns": map[string]any{
		"messageId": "94f20ce6-13c5-43a0-9a9e-ca52d816e90b", "sequenceNumber": "10000000000000003000",
	}}
	if !reflect.DeepEqual(receipt, want) {
		t.Errorf("receipt %v, want %v", receipt, want)
	}

	if _, err := plain.Handle(t.Context(), sampleEvent()); err != nil {
		t.Fatal(err)
	}
	form, _ = published(t, server)
	for _, name := range []string{"MessageGroupId", "MessageDeduplicationId", "Subject", "MessageStructure"} {
		if form.Has(name) {
			t.Errorf("%s was sent to a standard topic", name)
		}
	}
}

// Else a retry would be a second message.
func TestSNSDeduplicatesWhateverTheAttemptAndTime(t *testing.T) {
	t.Parallel()
	server := snsAnswers(t)
	fifo := newSNS(t, handlers.SNSConfig{TopicARN: topicARN + ".fifo"}, server.URL)
	ids := make(map[string]bool)
	for i := range 3 {
		event := sampleEvent()
		event.Attempts += i
		event.CreatedAt = event.CreatedAt.Add(time.Duration(i) * time.Hour)
		event.Metadata = json.RawMessage(`{"claimToken": "` + strconv.Itoa(i) + `"}`)
		if _, err := fifo.Handle(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		form, _ := published(t, server)
		ids[form.Get("MessageDeduplicationId")] = true
	}
	if len(ids) != 1 {
		t.Errorf("deduplication ids %v, want one", ids)
	}
}

// transport answers without a network, and tells where a request would have gone.
type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(request *http.Request) (*http.Response, error) { return f(request) }

func TestSNSPublishesInTheRegionOfTheTopic(t *testing.T) {
	t.Parallel()
	for arn, host := range map[string]string{
		"arn:aws:sns:eu-west-1:123456789012:orders":             "sns.eu-west-1.amazonaws.com",
		"arn:aws:sns:us-east-1:123456789012:orders.fifo":        "sns.us-east-1.amazonaws.com",
		"arn:aws-cn:sns:cn-north-1:123456789012:orders":         "sns.cn-north-1.amazonaws.com.cn",
		"arn:aws-us-gov:sns:us-gov-west-1:123456789012:orders1": "sns.us-gov-west-1.amazonaws.com",
	} {
		var got, scope string
		client := transport(func(r *http.Request) (*http.Response, error) {
			got, scope = r.URL.Host, r.Header.Get("Authorization")
			return &http.Response{StatusCode: http.StatusTeapot, Body: io.NopCloser(strings.NewReader(""))}, nil
		})
		handler, err := handlers.NewSNS(handlers.SNSConfig{TopicARN: arn, Client: sns.New(sns.Options{
			Region: "ap-south-1", Credentials: credentials(), HTTPClient: client,
		})})
		if err != nil {
			t.Fatal(err)
		}
		settlementOf(t, handler, sampleEvent(), 0)
		region := strings.Split(arn, ":")[3]
		if got != host || !strings.Contains(scope, "/"+region+"/sns/") {
			t.Errorf("%s: sent to %s, signed %.80s, want %s", arn, got, scope, host)
		}
	}
}

func TestSNSDiscardsWhatIsTooLargeUnsent(t *testing.T) {
	t.Parallel()
	server := snsAnswers(t)
	event := sampleEvent()
	if _, err := newSNS(t, handlers.SNSConfig{}, server.URL).Handle(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	form, sent := published(t, server)
	attributes := len(form.Get("Message")) - len(event.Payload) // and its envelope
	for name, attribute := range sent {
		attributes += len(name) + len(attribute[0]) + len(attribute[1])
	}
	for name, c := range map[string]struct{ limit, size int }{
		"default": {0, 262_144}, "least": {1024, 1024}, "most": {1_048_576, 1_048_576},
	} {
		handler := newSNS(t, handlers.SNSConfig{MaxMessageBytes: c.limit}, server.URL)
		for over := range 2 {
			event.Payload = json.RawMessage(`"` + strings.Repeat("é", (c.size-attributes-2)/2) + strings.Repeat("x", (c.size-attributes)%2+over) + `"`)
			before := server.requests.Load()
			got := settlementOf(t, handler, event, 0)
			requests := server.requests.Load() - before
			if over == 0 && (got.Outcome != outbox.Processed || requests != 1) {
				t.Errorf("%s: %d bytes: got %s %q, want it published", name, c.size, got.Outcome, got.Reason)
			}
			want := "sns_message_too_large: " + strconv.Itoa(c.size+1) + " bytes with its attributes, the limit is " + strconv.Itoa(c.size)
			if over == 1 && (got.Outcome != outbox.Discarded || got.Reason != want || requests != 0) {
				t.Errorf("%s: got %s %q after %d requests, want a discard as %q", name, got.Outcome, got.Reason, requests, want)
			}
		}
	}
	event.Payload = nil
	if got := settlementOf(t, newSNS(t, handlers.SNSConfig{}, server.URL), event, 0); got.Outcome != outbox.Discarded ||
		!strings.HasPrefix(got.Reason, "sns_message_empty: ") {
		t.Errorf("no payload: got %s %q, want a discard", got.Outcome, got.Reason)
	}
}

func TestNewSNSReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := handlers.NewSNS(handlers.SNSConfig{TopicARN: "arn:aws:sqs:hunter2", MaxMessageBytes: 1023})
	for _, field := range []string{"topic_arn: ", "max_message_bytes: 1023, takes 1024 to 1048576", "client: missing"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v lacks %q", err, field)
		}
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v shows the ARN", err)
	}
}

func TestSNSConfigJudgesTopics(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for arn, valid := range map[string]bool{
		topicARN:           true,
		topicARN + ".fifo": true,
		"arn:aws-cn:sns:cn-north-1:123456789012:a_b-C9":              true,
		"arn:aws:sns:eu-west-1:123456789012:" + long:                 true,
		"arn:aws:sns:eu-west-1:123456789012:" + long + "x":           false,
		"arn:aws:sns:eu-west-1:123456789012:" + long[:252] + ".fifo": false,
		"":                                     false,
		"orders":                               false,
		"arn:aws:sqs:eu-west-1:123456789012:a": false,
		"arn:aws:sns:eu-west-1:123456789012:":  false,
		"arn:aws:sns:eu-west-1:123456789012:.fifo": false,
		"arn:aws:sns:eu-west-1:123456789012:a.b":   false,
		"arn:aws:sns:eu-west-1:12345678901:a":      false,
		"arn:aws:sns:eu-west-1:12345678901x:a":     false,
		"arn:aws:sns::123456789012:a":              false,
		"arn:aws:sns:eu.evil/:123456789012:a":      false,
		"arn::sns:eu-west-1:123456789012:a":        false,
		topicARN + ":5f0c1d7e-2b7a-4c8e-9a51-0d3f": false,
		" " + topicARN:  false,
		topicARN + "\n": false,
	} {
		faults := handlers.SNSConfig{TopicARN: arn}.Faults()
		if valid != (len(faults) == 0) {
			t.Errorf("%q: faults %v, want valid %v", arn, faults, valid)
		}
	}
}
