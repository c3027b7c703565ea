package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

const tenantTopics = "arn:aws:sns:eu-west-1:123456789012:orders-"

// tenantConfig has a topic for each of two tenants.
func tenantConfig() handlers.SNSConfig {
	return handlers.SNSConfig{
		TopicARN: tenantTopics + "{payload.tenant.id}", Topics: []string{tenantTopics + "a", tenantTopics + "17", tenantTopics + "b"},
	}
}

func TestSNSPublishesEachEventToTheTopicOfItsTenant(t *testing.T) {
	t.Parallel()
	fake := new(fakeSNS)
	handler := fake.handler(t, tenantConfig())
	events := batchOf(12, 10)
	topics := []string{"a", "17", "b"}
	for i := range events {
		events[i].Payload = json.RawMessage(fmt.Sprintf(`{"tenant": {"id": %q}}`, topics[i%3]))
		if i%3 == 1 {
			events[i].Payload = json.RawMessage(`{"tenant": {"id": 17}}`)
		}
		if got := handler.Part(events[i]); got != "orders-"+topics[i%3] {
			t.Errorf("event %d belongs to the circuit of %q", i, got)
		}
	}
	expectAll(t, handler.HandleBatch(t.Context(), events), outbox.Processed, "")
	if fake.count("PublishBatch") != 3 || len(fake.calls) != 1 {
		t.Errorf("calls %v, want one batch per topic", fake.calls)
	}
	for _, m := range fake.messages {
		if i := slices.IndexFunc(events, func(e outbox.Event) bool { return e.ID == m.Attributes["event_id"] }); m.Topic != tenantTopics+topics[i%3] {
			t.Errorf("event %d went to %s", i, m.Topic)
		}
	}
	if _, err := handler.Handle(t.Context(), events[0]); err != nil {
		t.Errorf("alone: %v", err)
	}
}

func TestSNSDiscardsWhatLeadsToNoTopic(t *testing.T) {
	t.Parallel()
	fake := new(fakeSNS)
	handler := fake.handler(t, tenantConfig())
	for payload, reason := range map[string]string{
		`{"tenant": {"id": "hunter2"}}`: "sns_topic_not_allowed: ", `{"tenant": {"id": "a:b"}}`: "sns_topic_not_allowed: ",
		`{"tenant": {"id": "{payload.tenant.id}"}}`: "sns_topic_not_allowed: ", `{"tenant": {"id": "a\n"}}`: "sns_topic_not_allowed: ",
		`{"tenant": {"id": ""}}`: "sns_topic_field_missing: topic_arn takes {payload.tenant.id}", `{"tenant": {"id": null}}`: "sns_topic_field_missing: ",
		`{"tenant": {"id": true}}`: "sns_topic_field_missing: ", `{"tenant": {"id": ["a"]}}`: "sns_topic_field_missing: ", `{"tenant": {"ID": "a"}}`: "sns_topic_field_missing: ",
		`{"tenant": "a"}`: "sns_topic_field_missing: ", `["a"]`: "sns_topic_field_missing: ", `null`: "sns_topic_field_missing: ", `{}`: "sns_topic_field_missing: ",
	} {
		event := sampleEvent()
		event.Payload = json.RawMessage(payload)
		_, err := handler.Handle(t.Context(), event)
		text := fmt.Sprint(err)
		if got := outbox.OutcomeOf(err); got != outbox.Discarded || !strings.HasPrefix(text, reason) || strings.Contains(text, "hunter2") {
			t.Errorf("%s: got %s %q, want a discard as %q", payload, got, text, reason)
		}
		if part := handler.Part(event); part != "" {
			t.Errorf("%s: belongs to the circuit of %q, want none of its own", payload, part)
		}
	}
	if len(fake.calls) != 0 {
		t.Errorf("calls %v, want none", fake.calls)
	}
}

func TestSNSFillsATopicFromEveryField(t *testing.T) {
	t.Parallel()
	const base = "arn:aws:sns:eu-west-1:123456789012:"
	event := sampleEvent()
	event.Type = "placed"
	event.Metadata = json.RawMessage(`{"tenant": "acme"}`)
	for template, arn := range map[string]string{
		base + "{event_type}":                       base + "placed",
		base + "{aggregate_type}-{event_type}.fifo": base + "order-placed.fifo",
		base + "x{aggregate_id}":                    base + "x0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10",
		base + "{metadata.tenant}_{payload.total}":  base + "acme_12",
	} {
		fake := new(fakeSNS)
		handler := fake.handler(t, handlers.SNSConfig{TopicARN: template, Topics: []string{arn}})
		if _, err := handler.Handle(t.Context(), event); err != nil {
			t.Errorf("%s: %v", template, err)
		} else if got := fake.messages[0].Topic; got != arn {
			t.Errorf("%s: published to %s, want %s", template, got, arn)
		}
	}
}

// Circuits are known by the topic's name, unless two have the same.
func TestSNSTellsTopicsOfOneNameApart(t *testing.T) {
	t.Parallel()
	const east, west = "arn:aws:sns:us-east-1:123456789012:orders", "arn:aws:sns:us-west-2:123456789012:orders"
	handler := newSNS(t, handlers.SNSConfig{TopicARN: "arn:aws:sns:{event_type}:123456789012:orders", Topics: []string{east, west}}, "http://sns.test")
	event := sampleEvent()
	for region, want := range map[string]string{"us-east-1": east, "us-west-2": west} {
		event.Type = region
		if got := handler.Part(event); got != want {
			t.Errorf("%s: circuit of %q, want %q", region, got, want)
		}
	}
	if got := newSNS(t, handlers.SNSConfig{}, "http://sns.test").Part(event); got != "" {
		t.Errorf("one topic: circuit of %q, want the destination's", got)
	}
}

func TestSNSConfigJudgesTemplates(t *testing.T) {
	t.Parallel()
	good := tenantTopics + "{payload.tenant}"
	for name, c := range map[string]struct {
		arn    string
		topics []string
		faults []string
	}{
		"good":                  {good, []string{tenantTopics + "a"}, nil},
		"never closed":          {tenantTopics + "{payload.tenant", []string{topicARN}, []string{"topic_arn: has a { that is never closed"}},
		"never opened":          {tenantTopics + "payload}", []string{topicARN}, []string{"topic_arn: has a } without a {"}},
		"unknown field":         {tenantTopics + "{hunter2}", []string{topicARN}, []string{"topic_arn: has an unknown field, takes {event_type}, "}},
		"empty field":           {tenantTopics + "{}", []string{topicARN}, []string{"topic_arn: has an unknown field"}},
		"payload without path":  {tenantTopics + "{payload}", []string{topicARN}, []string{"topic_arn: has an unknown field"}},
		"empty key":             {tenantTopics + "{payload..a}", []string{topicARN}, []string{"topic_arn: has an unknown field"}},
		"path of a column":      {tenantTopics + "{event_type.a}", []string{topicARN}, []string{"topic_arn: has an unknown field"}},
		"no topics":             {good, nil, []string{"topics: missing, takes the ARNs of all topics"}},
		"topics without fields": {topicARN, []string{topicARN}, []string{"topics: only together with fields in topic_arn"}},
		"topics alone":          {"", []string{topicARN}, []string{"topic_arn: missing"}},
		"every fault of topics": {good, []string{"hunter2", tenantTopics + "a", tenantTopics + "a", topicARN, tenantTopics}, []string{
			"topics[0]: not the ARN of an SNS topic", "topics[2]: is there a second time",
			"topics[3]: is no topic that topic_arn may come to", "topics[4]: is no topic that topic_arn may come to",
		}},
	} {
		var got []string
		for _, fault := range (handlers.SNSConfig{TopicARN: c.arn, Topics: c.topics}).Faults() {
			got = append(got, fault.Error())
		}
		matches := len(got) == len(c.faults)
		for i := range min(len(got), len(c.faults)) {
			matches = matches && strings.HasPrefix(got[i], c.faults[i]) && !strings.Contains(got[i], "hunter2")
		}
		if !matches {
			t.Errorf("%s: faults %q, want %q", name, got, c.faults)
		}
	}
}

func TestSNSConfigJudgesEnvelopesAndMaxima(t *testing.T) {
	t.Parallel()
	for field, config := range map[string]handlers.SNSConfig{
		"envelope":          {TopicARN: topicARN, Envelope: handlers.Envelope{Format: handlers.EnvelopeBinary}},
		"source":            {TopicARN: topicARN, Envelope: handlers.Envelope{Source: "a b"}},
		"max_message_bytes": {TopicARN: topicARN, ReadMaximum: true, MaxMessageBytes: 2048},
	} {
		if faults := config.Faults(); len(faults) != 1 || faults[0].Field != field {
			t.Errorf("faults %v, want one of %s", faults, field)
		}
	}
}

func TestSNSAsksATopicForItsMaximumOnce(t *testing.T) {
	t.Parallel()
	small, large := tenantTopics+"a", tenantTopics+"b"
	fake := &fakeSNS{maximum: map[string]int{small: 2048, large: 1 << 20}}
	config := tenantConfig()
	config.ReadMaximum = true
	handler := fake.handler(t, config)
	for range 3 {
		events := batchOf(4, 10)
		for i, size := range []int{300_000, 600_000, 100, 1500} {
			events[i].Payload = json.RawMessage(fmt.Sprintf(`{"tenant": {"id": %q}, "x": %q}`, []string{"b", "b", "a", "a"}[i], strings.Repeat("x", size)))
		}
		deliveries := handler.HandleBatch(t.Context(), events)
		expectAll(t, deliveries[:3], outbox.Processed, "")
		expectOutcome(t, "too large for its topic", deliveries[3], outbox.Discarded, "sns_message_too_large: ")
	}
	if fake.count("GetTopicAttributes") != 2 || fake.count("PublishBatch") != 3 || fake.count("Publish") != 3 {
		t.Errorf("calls %v, want each topic asked once, and one batch of two each time", fake.calls)
	}
}

func TestSNSAsksForTheMaximumAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeSNS{maximum: map[string]int{topicARN: 2048}}
		handler := newSNS(t, handlers.SNSConfig{ReadMaximum: true}, "http://sns.test", func(o *sns.Options) { o.HTTPClient = inProcess(fake) })
		event := batchOf(1, 10_000)
		expectAll(t, handler.HandleBatch(t.Context(), event), outbox.Discarded, "sns_message_too_large: ")
		fake.maximum[topicARN] = 65_536
		time.Sleep(11 * time.Minute)
		expectAll(t, handler.HandleBatch(t.Context(), event), outbox.Processed, "")
	})
}

// A role without the grant is told so where it matters; batches are packed as for any topic.
func TestSNSAssumesTheDefaultWhereATopicMayNotBeAsked(t *testing.T) {
	t.Parallel()
	for _, fault := range []fakeFault{
		{status: 403, code: "AuthorizationError", message: "hunter2"},
		{status: 403, code: "AccessDenied"},
		{garbage: true, message: "unknown action"},
		{code: "InvalidAction"},
	} {
		fake := &fakeSNS{refuse: func(action string, _ url.Values) *fakeFault {
			if action == "GetTopicAttributes" {
				return &fault
			}
			return nil
		}}
		handler := fake.handler(t, handlers.SNSConfig{ReadMaximum: true})
		for range 2 {
			deliveries := handler.HandleBatch(t.Context(), slices.Concat(batchOf(4, 100_000), batchOf(1, 262_144)))
			expectAll(t, deliveries[:4], outbox.Processed, "")
			expectOutcome(t, fault.code, deliveries[4], outbox.Discarded, "sns_message_too_large: ")
			if reason := fmt.Sprint(deliveries[4].Err); !strings.Contains(reason, "sns:GetTopicAttributes") {
				t.Errorf("reason %q, want the grant that is missing", reason)
			}
		}
		if fake.count("GetTopicAttributes") != 1 || fake.count("PublishBatch") != 4 {
			t.Errorf("%s: calls %v, want one question and four batches", fault.code, fake.calls)
		}
	}
}

// Nothing is discarded over a limit that could not be read just now.
func TestSNSDiscardsNothingWhileAMaximumIsUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault   fakeFault
		outcome outbox.Outcome
		reason  string
	}{
		{fakeFault{status: 429, code: "Throttled"}, outbox.Snoozed, "sns_throttled: "},
		{fakeFault{status: 500, code: "InternalError"}, outbox.Retry, "sns_service_failed: "},
		{fakeFault{status: 404, code: "NotFound"}, outbox.Snoozed, "sns_topic_missing: "},
	} {
		synctest.Test(t, func(t *testing.T) {
			failing := true
			fake := &fakeSNS{maximum: map[string]int{topicARN: 1 << 20}, refuse: func(action string, _ url.Values) *fakeFault {
				if failing && action == "GetTopicAttributes" {
					return &c.fault
				}
				return nil
			}}
			handler := newSNS(t, handlers.SNSConfig{ReadMaximum: true}, "http://sns.test", func(o *sns.Options) { o.HTTPClient = inProcess(fake) })
			events := slices.Concat(batchOf(1, 300_000), batchOf(1, 10))
			for range 3 {
				deliveries := handler.HandleBatch(t.Context(), events)
				expectOutcome(t, "large", deliveries[0], c.outcome, c.reason)
				expectOutcome(t, "small", deliveries[1], outbox.Processed, "")
			}
			if got := fake.count("GetTopicAttributes"); got > 2 { // the SDK's second attempt
				t.Errorf("asked %d times within a minute, want once", got)
			}
			failing = false
			time.Sleep(2 * time.Minute)
			expectAll(t, handler.HandleBatch(t.Context(), events), outbox.Processed, "")
		})
	}
}
