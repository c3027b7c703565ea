package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// batchOf are n events of aggregates of their own, whose payloads are JSON texts of that many bytes.
func batchOf(n, bytes int) []outbox.Event {
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = sampleEvent()
		events[i].ID = fmt.Sprintf("5f0c1d7e-2b7a-4c8e-9a51-%012d", i)
		events[i].AggregateID = fmt.Sprintf("0b6e2f2a-7c1d-4d2b-8a61-%012d", i)
		events[i].Position = int64(i + 1)
		events[i].Attempts = 1
		events[i].Payload = json.RawMessage(`"` + strings.Repeat("x", bytes-2) + `"`)
	}
	return events
}

func expectOutcome(t *testing.T, what string, delivery outbox.Delivery, outcome outbox.Outcome, reason string) {
	t.Helper()
	got, text := outbox.OutcomeOf(delivery.Err), ""
	if delivery.Err != nil {
		text = delivery.Err.Error()
	}
	if got != outcome || !strings.HasPrefix(text, reason) || reason == "" && text != "" {
		t.Errorf("%s: got %s %q, want %s %q", what, got, text, outcome, reason)
	}
	expectPrivate(t, text)
}

func expectAll(t *testing.T, deliveries []outbox.Delivery, outcome outbox.Outcome, reason string) {
	t.Helper()
	for i, delivery := range deliveries {
		expectOutcome(t, fmt.Sprintf("event %d", i), delivery, outcome, reason)
	}
}

func TestSNSIsAHandlerAsPassesExpectThem(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(string, url.Values) *fakeFault{
		"with batches": nil,
		"without batches": func(action string, _ url.Values) *fakeFault {
			if action == "PublishBatch" {
				return &fakeFault{garbage: true}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outboxtest.TestHandler(t, func(t *testing.T) outboxtest.HandlerHarness {
				fake := &fakeSNS{refuse: refuse}
				return outboxtest.HandlerHarness{
					Handler: fake.handler(t, handlers.SNSConfig{TopicARN: topicARN + ".fifo"}),
					Event:   func(int) outbox.Event { return outbox.Event{Payload: json.RawMessage(`{"total": 12}`)} },
					Poison: func() []outbox.Event {
						return []outbox.Event{{Payload: batchOf(1, 300_000)[0].Payload}, {Payload: json.RawMessage{}}}
					},
					Secrets: []string{"hunter2", "AKIDEXAMPLE"},
				}
			})
		})
	}
}

func TestSNSPublishesABatchInOneRequest(t *testing.T) {
	t.Parallel()
	for _, arn := range []string{topicARN, topicARN + ".fifo"} {
		fake := &fakeSNS{backward: true}
		handler := fake.handler(t, handlers.SNSConfig{TopicARN: arn, Envelope: handlers.Envelope{Format: handlers.EnvelopeRaw}})
		events := batchOf(10, 100)
		deliveries := handler.HandleBatch(t.Context(), events)
		for i, delivery := range deliveries {
			expectOutcome(t, arn, delivery, outbox.Processed, "")
			want := outbox.Receipt{"sns": map[string]any{"messageId": "m-" + events[i].ID}}
			if !reflect.DeepEqual(delivery.Receipt, want) {
				t.Errorf("receipt %v, want %v", delivery.Receipt, want)
			}
		}
		if fake.count("PublishBatch") != 1 || fake.count("Publish") != 0 || len(fake.messages) != 10 {
			t.Errorf("%s: calls %v for %d messages, want one PublishBatch of ten", arn, fake.calls, len(fake.messages))
		}
		order := fake.taken("position")
		slices.Reverse(order) // the fake is backward
		if want := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}; !slices.Equal(order, want) {
			t.Errorf("sent in the order %v, want %v", order, want)
		}
		for _, m := range fake.messages {
			if i := slices.IndexFunc(events, func(e outbox.Event) bool { return e.ID == m.Attributes["event_id"] }); m.Body != string(events[i].Payload) ||
				m.Attributes["aggregate_id"] != events[i].AggregateID || strings.HasSuffix(arn, ".fifo") && m.Deduplication != events[i].ID {
				t.Errorf("message %+v, want event %d", m, i)
			}
		}
	}
}

// The fake refuses a batch that is too large, and the split would show as more calls.
func TestSNSPacksAsMuchAsFits(t *testing.T) {
	t.Parallel()
	mixed := slices.Concat(batchOf(3, 200_000), batchOf(6, 50_000), batchOf(9, 10))
	for name, c := range map[string]struct {
		events    []outbox.Event
		most      int // bytes
		batches   int
		singles   int
		messages  int
		discarded int
	}{
		"ten of 200 kB":               {events: batchOf(10, 200_000), singles: 10, messages: 10},
		"ten of 100 kB":               {events: batchOf(10, 100_000), batches: 5, messages: 10},
		"more than one request takes": {events: batchOf(25, 10), batches: 3, messages: 25},
		"one":                         {events: batchOf(1, 10), singles: 1, messages: 1},
		"none":                        {},
		"large, middling and small":   {events: mixed, batches: 4, messages: 18},
		"a topic that takes more":     {events: batchOf(10, 100_000), most: 1 << 20, batches: 1, messages: 10},
		"a topic that takes less":     {events: slices.Concat(batchOf(2, 100), batchOf(1, 2000)), most: 2048, batches: 1, messages: 2, discarded: 1},
		"too large, among others":     {events: slices.Concat(batchOf(1, 262_144), batchOf(9, 10)), batches: 1, messages: 9, discarded: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := &fakeSNS{maximum: map[string]int{topicARN: c.most}}
			discarded := 0
			for i, delivery := range fake.handler(t, handlers.SNSConfig{MaxMessageBytes: c.most}).HandleBatch(t.Context(), c.events) {
				if outbox.OutcomeOf(delivery.Err) == outbox.Discarded {
					expectOutcome(t, "too large", delivery, outbox.Discarded, "sns_message_too_large: ")
					discarded++
				} else {
					expectOutcome(t, fmt.Sprintf("event %d", i), delivery, outbox.Processed, "")
				}
			}
			if fake.count("PublishBatch") != c.batches || fake.count("Publish") != c.singles || len(fake.messages) != c.messages || discarded != c.discarded {
				t.Errorf("calls %v, %d messages, %d discarded; want %d batches, %d singles, %d messages, %d discarded",
					fake.calls, len(fake.messages), discarded, c.batches, c.singles, c.messages, c.discarded)
			}
			for _, size := range fake.batches {
				if size > max(c.most, 262_144) {
					t.Errorf("a batch of %d bytes", size)
				}
			}
		})
	}
}

// Both requests wait for each other: one after the other, the first would never be answered.
func TestSNSSendsTheBatchesOfOneCallAtOnce(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	fake := &fakeSNS{refuse: func(string, url.Values) *fakeFault {
		both.Done()
		both.Wait()
		return nil
	}}
	expectAll(t, fake.handler(t, handlers.SNSConfig{}).HandleBatch(t.Context(), batchOf(4, 100_000)), outbox.Processed, "")
}

func TestSNSJudgesEachEntryOfABatchByItsCode(t *testing.T) {
	t.Parallel()
	cases := []struct {
		fault   fakeFault
		outcome outbox.Outcome
		reason  string
	}{
		{fakeFault{code: "Throttled", sender: true}, outbox.Snoozed, "sns_throttled: "},
		{fakeFault{code: "KMSDisabled", sender: true}, outbox.Snoozed, "sns_key_unusable: "},
		{fakeFault{code: "AuthorizationError", sender: true}, outbox.Snoozed, "sns_access_denied: "},
		{fakeFault{code: "InternalError"}, outbox.Retry, "sns_service_failed: "},
		{fakeFault{code: "InternalError", sender: true}, outbox.Retry, "sns_service_failed: "},
		{fakeFault{code: "InvalidParameter", message: "Invalid parameter: hunter2", sender: true}, outbox.Discarded, "sns_message_invalid: "},
		{fakeFault{code: "InvalidParameter", message: "Invalid parameter: TopicArn " + topicARN, sender: true}, outbox.Snoozed, "sns_topic_invalid: "},
		{fakeFault{code: "NeverHeardOf", message: "hunter2", sender: true}, outbox.Discarded, "sns_message_refused: "},
		{fakeFault{code: "NeverHeardOf", message: "hunter2"}, outbox.Retry, "sns_unknown: "},
	}
	events := batchOf(len(cases)+1, 10)
	fake := &fakeSNS{backward: true, fail: func(m fakeMessage) *fakeFault {
		if i := slices.IndexFunc(events, func(e outbox.Event) bool { return e.ID == m.Attributes["event_id"] }); i < len(cases) {
			return &cases[i].fault
		}
		return nil
	}}
	deliveries := fake.handler(t, handlers.SNSConfig{}).HandleBatch(t.Context(), events)
	for i, c := range cases {
		expectOutcome(t, fmt.Sprintf("%s, sender %v", c.fault.code, c.fault.sender), deliveries[i], c.outcome, c.reason)
	}
	expectOutcome(t, "the last", deliveries[len(cases)], outbox.Processed, "")
	if fake.count("PublishBatch") != 1 || fake.count("Publish") != 0 {
		t.Errorf("calls %v, want one batch and nothing again", fake.calls)
	}
}

func TestSNSRetriesWhatAnAnswerLeavesOut(t *testing.T) {
	t.Parallel()
	events := batchOf(3, 10)
	fake := &fakeSNS{hide: func(m fakeMessage) bool { return m.Attributes["event_id"] == events[1].ID }}
	deliveries := fake.handler(t, handlers.SNSConfig{}).HandleBatch(t.Context(), events)
	expectOutcome(t, "first", deliveries[0], outbox.Processed, "")
	expectOutcome(t, "left out", deliveries[1], outbox.Retry, "sns_answer_unreadable: ")
	expectOutcome(t, "last", deliveries[2], outbox.Processed, "")
}

// Ids that nobody gave, and messages without an id of their own, are no answers.
func TestSNSTrustsNoAnswerToAnEntryItDidNotSend(t *testing.T) {
	t.Parallel()
	server := serve(t, http.StatusOK, "<PublishBatchResponse><PublishBatchResult><Failed><member><Id>x</Id><Code>InvalidParameter</Code></member></Failed>"+
		"<Successful><member><Id>17</Id><MessageId>m</MessageId></member><member><Id>0</Id></member><member><MessageId>m</MessageId></member></Successful>"+
		"</PublishBatchResult></PublishBatchResponse>", "Content-Type: text/xml")
	expectAll(t, newSNS(t, handlers.SNSConfig{}, server.URL).HandleBatch(t.Context(), batchOf(2, 10)), outbox.Retry, "sns_answer_unreadable: ")
}

// One row that SNS refuses takes no other with it.
func TestSNSSendsARefusedBatchAgainOneByOne(t *testing.T) {
	t.Parallel()
	for _, fault := range []fakeFault{
		{code: "InvalidParameter", message: "Invalid parameter: hunter2"},
		{code: "InvalidParameterException"},
		{code: "ParameterValueInvalid"},
		{code: "ValidationError"},
		{code: "TooManyEntriesInBatchRequest"},
		{code: "EmptyBatchRequest"},
		{code: "BatchEntryIdsNotDistinct"},
		{code: "InvalidBatchEntryId"},
		{code: "NeverHeardOf"},
		{status: 403, garbage: true, message: "<html>hunter2"},
		{status: 404, garbage: true},
		{status: 501, code: "InternalFailure", message: "not yet implemented"},
		{garbage: true, message: `{"__type": "hunter2"}`},
		{code: "InvalidAction"},
	} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			t.Parallel()
			events := batchOf(10, 10)
			fake := &fakeSNS{
				refuse: func(action string, _ url.Values) *fakeFault {
					if action == "PublishBatch" {
						return &fault
					}
					return nil
				},
				fail: func(m fakeMessage) *fakeFault {
					if m.Attributes["event_id"] == events[4].ID {
						return &fakeFault{code: "InvalidParameter"}
					}
					return nil
				},
			}
			deliveries := fake.handler(t, handlers.SNSConfig{}).HandleBatch(t.Context(), events)
			expectOutcome(t, "the bad one", deliveries[4], outbox.Discarded, "sns_message_invalid: ")
			expectAll(t, slices.Delete(deliveries, 4, 5), outbox.Processed, "")
			if fake.count("Publish") != 10 || len(fake.messages) != 9 {
				t.Errorf("calls %v for %d messages, want ten for nine", fake.calls, len(fake.messages))
			}
		})
	}
}

// What is no event's fault is every event's fate, and asked once only.
func TestSNSDoesNotRepeatWhatIsTheDestinations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault   fakeFault
		outcome outbox.Outcome
		reason  string
	}{
		{fakeFault{status: 429, code: "Throttled"}, outbox.Snoozed, "sns_throttled: "},
		{fakeFault{status: 400, code: "Throttling"}, outbox.Snoozed, "sns_throttled: "},
		{fakeFault{status: 429, garbage: true}, outbox.Snoozed, "sns_throttled: "},
		{fakeFault{status: 403, code: "AuthorizationError"}, outbox.Snoozed, "sns_access_denied: "},
		{fakeFault{status: 403, code: "ExpiredToken"}, outbox.Snoozed, "sns_credentials_refused: "},
		{fakeFault{status: 404, code: "NotFound", message: "Topic does not exist"}, outbox.Snoozed, "sns_topic_missing: "},
		{fakeFault{code: "InvalidParameter", message: "Invalid parameter: TopicArn"}, outbox.Snoozed, "sns_topic_invalid: "},
		{fakeFault{code: "KMSAccessDenied"}, outbox.Snoozed, "sns_key_unusable: "},
		{fakeFault{status: 500, code: "InternalError"}, outbox.Retry, "sns_service_failed: "},
		{fakeFault{status: 503, garbage: true, message: "<html>hunter2"}, outbox.Retry, "sns_service_failed: "},
		{fakeFault{status: 200, garbage: true, message: "<html>hunter2"}, outbox.Retry, "sns_answer_unreadable: "},
	} {
		t.Run(fmt.Sprint(c.fault), func(t *testing.T) {
			t.Parallel()
			fake := &fakeSNS{refuse: func(string, url.Values) *fakeFault { return &c.fault }}
			handler := fake.handler(t, handlers.SNSConfig{})
			expectAll(t, handler.HandleBatch(t.Context(), batchOf(10, 10)), c.outcome, c.reason)
			if fake.count("Publish") != 0 || fake.count("PublishBatch") > 2 {
				t.Errorf("calls %v, want one batch, at most twice by the SDK", fake.calls)
			}
			if handler.BatchLimit() != 10 {
				t.Errorf("batches of %d from then on, want 10", handler.BatchLimit())
			}
		})
	}
}

// The topic's maximum may be less than the routes say.
func TestSNSHalvesABatchThatIsTooLong(t *testing.T) {
	t.Parallel()
	fake := &fakeSNS{maximum: map[string]int{topicARN: 65_536}}
	events := slices.Concat(batchOf(9, 25_000), batchOf(1, 70_000))
	events[9].ID = "large"
	deliveries := fake.handler(t, handlers.SNSConfig{MaxMessageBytes: 1 << 20}).HandleBatch(t.Context(), events)
	expectAll(t, deliveries[:9], outbox.Processed, "")
	expectOutcome(t, "the large one", deliveries[9], outbox.Discarded, "sns_message_invalid: ")
	ids := fake.taken("event_id")
	slices.Sort(ids)
	if len(ids) != 9 || len(slices.Compact(ids)) != 9 {
		t.Errorf("taken %v, want nine, each once", ids)
	}
	if got := fake.count("Publish"); got > 5 {
		t.Errorf("%d single calls, want halves first", got)
	}
}

// inProcess calls a server without a network, so that synctest's clock runs.
func inProcess(server http.Handler) transport {
	return func(r *http.Request) (*http.Response, error) {
		recorder := httptest.NewRecorder()
		server.ServeHTTP(recorder, r)
		return recorder.Result(), nil
	}
}

func TestSNSRemembersForAWhileThatThereAreNoBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		missing := true
		fake := &fakeSNS{refuse: func(action string, _ url.Values) *fakeFault {
			if missing && action == "PublishBatch" {
				return &fakeFault{garbage: true, message: "unknown action"}
			}
			return nil
		}}
		handler := newSNS(t, handlers.SNSConfig{}, "http://sns.test", func(o *sns.Options) { o.HTTPClient = inProcess(fake) })
		for range 3 {
			expectAll(t, handler.HandleBatch(t.Context(), batchOf(10, 10)), outbox.Processed, "")
			if handler.BatchLimit() != 1 {
				t.Errorf("batches of %d, want none", handler.BatchLimit())
			}
		}
		if fake.count("PublishBatch") != 1 || fake.count("Publish") != 30 {
			t.Errorf("calls %v, want one failed batch and thirty singles", fake.calls)
		}
		missing = false
		time.Sleep(11 * time.Minute)
		if handler.BatchLimit() != 10 {
			t.Errorf("batches of %d after a while, want 10", handler.BatchLimit())
		}
		expectAll(t, handler.HandleBatch(t.Context(), batchOf(10, 10)), outbox.Processed, "")
		if fake.count("PublishBatch") != 2 || fake.count("Publish") != 30 {
			t.Errorf("calls %v, want one more batch", fake.calls)
		}
	})
}

// Where single calls are refused alike, it is not batches that are missing.
func TestSNSKeepsBatchesWhenSinglesFailAlike(t *testing.T) {
	t.Parallel()
	fake := &fakeSNS{refuse: func(string, url.Values) *fakeFault { return &fakeFault{garbage: true, message: "<html>hunter2"} }}
	handler := fake.handler(t, handlers.SNSConfig{})
	expectAll(t, handler.HandleBatch(t.Context(), batchOf(10, 10)), outbox.Retry, "sns_unknown: ")
	if handler.BatchLimit() != 10 {
		t.Errorf("batches of %d, want 10", handler.BatchLimit())
	}
}

// Whatever a batch does to an event, it comes to an end: the third attempt is made alone.
func TestSNSSendsWhatFailedTwiceAlone(t *testing.T) {
	t.Parallel()
	fake := &fakeSNS{refuse: func(action string, _ url.Values) *fakeFault {
		if action == "PublishBatch" {
			return &fakeFault{status: 500, code: "InternalError"}
		}
		return nil
	}}
	events := batchOf(4, 10)
	events[2].Attempts, events[3].Attempts = 3, 4
	deliveries := fake.handler(t, handlers.SNSConfig{}).HandleBatch(t.Context(), events)
	expectAll(t, deliveries[:2], outbox.Retry, "sns_service_failed: ")
	expectAll(t, deliveries[2:], outbox.Processed, "")
}

// A batch that was answered stays so, when time runs out for another.
func TestSNSKeepsTheAnswersThatCameInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := batchOf(4, 100_000)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		fake := &fakeSNS{refuse: func(_ string, form url.Values) *fakeFault {
			for _, values := range form {
				if slices.Contains(values, events[0].ID) {
					time.Sleep(time.Second) // until nothing else is left to do
					cancel()
					return &fakeFault{status: 503}
				}
			}
			return nil
		}}
		handler := newSNS(t, handlers.SNSConfig{}, "http://sns.test", func(o *sns.Options) { o.HTTPClient = inProcess(fake) })
		delivered := 0
		for i, delivery := range handler.HandleBatch(ctx, events) {
			switch {
			case delivery.Err == nil:
				delivered++
			case !errors.Is(delivery.Err, context.Canceled):
				t.Errorf("event %d: %v, want the context's end", i, delivery.Err)
			}
		}
		if delivered != 2 {
			t.Errorf("%d delivered, want the two of the batch that was answered", delivered)
		}
	})
}

// A panic on another goroutine would end the process, and with it every delivery.
func TestSNSPanicsWhereAPassCatchesIt(t *testing.T) {
	t.Parallel()
	handler := newSNS(t, handlers.SNSConfig{}, "http://sns.test", func(o *sns.Options) {
		o.HTTPClient = transport(func(*http.Request) (*http.Response, error) { panic("hunter2") })
	})
	defer func() {
		if got := recover(); got != "hunter2" {
			t.Errorf("recovered %v, want the panic", got)
		}
	}()
	handler.HandleBatch(t.Context(), batchOf(10, 10))
}
