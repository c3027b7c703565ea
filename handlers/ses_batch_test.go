package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// letters are events with mails from a template; each payload's fields are added to it.
func letters(fields ...string) []outbox.Event {
	events := make([]outbox.Event, len(fields))
	for i, field := range fields {
		events[i] = mailEvent(fmt.Sprintf(`{"to": ["ann%d@customer.example.org"], "template": "letter"%s}`, i, field))
		events[i].ID = fmt.Sprintf("event-%d", i)
	}
	return events
}

// outcomes are what a pass makes of each delivery: the message id, or how the reason begins and what it leads to.
func outcomes(t *testing.T, deliveries []outbox.Delivery) []string {
	t.Helper()
	var all []string
	for i, delivery := range deliveries {
		if delivery.Err == nil {
			all = append(all, fmt.Sprint(delivery.Receipt["ses"].(map[string]any)["messageId"]))
			continue
		}
		if reason := delivery.Err.Error(); !strings.HasPrefix(reason, "ses_payload_invalid: ") { // which shows an example
			expectPrivate(t, reason)
		}
		event := mailEvent("")
		event.ID = fmt.Sprint(i)
		settled := settlementOf(t, outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
			return nil, delivery.Err
		}), event, 0)
		reason, _, _ := strings.Cut(settled.Reason, ":")
		all = append(all, string(settled.Outcome)+" "+reason)
	}
	return all
}

func TestSESSharesACallBetweenMailsOfOneTemplate(t *testing.T) {
	t.Parallel()
	server := serve(t, http.StatusOK, `{"BulkEmailEntryResults": [
		{"Status": "SUCCESS", "MessageId": "m-0"}, {"Status": "SUCCESS", "MessageId": "m-1"}]}`)
	config := handlers.SESConfig{ConfigurationSet: "orders-1", ReplyTo: []string{"help@shop.example.com"}, FromAllowed: []string{"@shop.example.com"}}
	events := letters(
		`, "data": {"n": 12345678901234567890}, "cc": ["bob@customer.example.org"], "tags": {"tenant": "a"}`,
		`, "bcc": ["eve@customer.example.org"], "headers": {"X-A": "b"}, "list_unsubscribe": {"url": "https://shop.example.com/u"}`,
	)
	got := outcomes(t, newSES(t, config, server.URL).HandleBatch(t.Context(), events))
	if want := []string{"m-0", "m-1"}; !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
	call := <-server.received
	if call.method != http.MethodPost || call.uri != "/v2/email/outbound-bulk-emails" || server.requests.Load() != 1 {
		t.Errorf("%s %s in %d requests, want SendBulkEmail in one", call.method, call.uri, server.requests.Load())
	}
	labels := func(i int) string {
		return fmt.Sprintf(`{"Name": "outbox_event_id", "Value": "event-%d"}, {"Name": "event_type", "Value": "order_placed"}`, i)
	}
	want := decode(t, `{
		"FromEmailAddress": "\"Orders\" <orders@shop.example.com>", "ConfigurationSetName": "orders-1",
		"ReplyToAddresses": ["help@shop.example.com"],
		"DefaultContent": {"Template": {"TemplateName": "letter", "TemplateData": "{}"}},
		"BulkEmailEntries": [{
			"Destination": {"ToAddresses": ["ann0@customer.example.org"], "CcAddresses": ["bob@customer.example.org"]},
			"ReplacementEmailContent": {"ReplacementTemplate": {"ReplacementTemplateData": "{\"n\": 12345678901234567890}"}},
			"ReplacementHeaders": [{"Name": "X-Outbox-Event-Id", "Value": "event-0"}],
			"ReplacementTags": [`+labels(0)+`, {"Name": "tenant", "Value": "a"}]
		}, {
			"Destination": {"ToAddresses": ["ann1@customer.example.org"], "BccAddresses": ["eve@customer.example.org"]},
			"ReplacementEmailContent": {"ReplacementTemplate": {"ReplacementTemplateData": "{}"}},
			"ReplacementHeaders": [{"Name": "X-Outbox-Event-Id", "Value": "event-1"}, {"Name": "X-A", "Value": "b"},
				{"Name": "List-Unsubscribe", "Value": "<https://shop.example.com/u>"},
				{"Name": "List-Unsubscribe-Post", "Value": "List-Unsubscribe=One-Click"}],
			"ReplacementTags": [`+labels(1)+`]
		}]
	}`)
	if got := decode(t, string(call.body)); !reflect.DeepEqual(got, want) {
		t.Errorf("sent\n%v\nwant\n%v", got, want)
	}
}

func TestSESGroupsWhatABatchHolds(t *testing.T) {
	t.Parallel()
	fake := &fakeSES{}
	handler := fake.handler(t, handlers.SESConfig{FromAllowed: []string{"@shop.example.com"}})
	events := letters("", "", `, "reply_to": ["x@shop.example.com"]`, `, "from": "x@shop.example.com"`, "",
		`, "attachments": [{"filename": "a.txt", "content": "YQ=="}]`, `, "template": "other"`, `, "template": "other"`)
	simple := mailEvent("")
	simple.ID = "simple"
	broken := mailEvent(`{"to": ["hunter2"]}`)
	got := outcomes(t, handler.HandleBatch(t.Context(), append(events, simple, broken)))
	want := []string{"m", "m", "m", "m", "m", "m", "m", "m", "m", "discard ses_payload_invalid"}
	if !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
	slices.Sort(fake.sizes)
	if !slices.Equal(fake.sizes, []int{2, 3}) || fake.calls["SendEmail"] != 4 {
		t.Errorf("shared calls of sizes %v and %d others, want 2, 3 and 4 others", fake.sizes, fake.calls["SendEmail"])
	}
	for i := range events {
		if got := fake.mails[fmt.Sprint("event-", i)]; len(got) != 1 || got[0] != fmt.Sprintf("ann%d@customer.example.org", i) {
			t.Errorf("event %d went to %v", i, got)
		}
	}
}

func TestSESSharesNoLargerCallThanSESTakes(t *testing.T) {
	t.Parallel()
	// Megabytes under the race detector, on a busy machine, may take longer than a batch without a deadline is given.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	fake := &fakeSES{}
	handler := fake.handler(t, handlers.SESConfig{})
	many, large := make([]string, 120), make([]string, 9)
	for i := range large {
		large[i] = `, "data": {"a": "` + strings.Repeat("x", 250_000) + `"}`
	}
	for name, c := range map[string]struct {
		events []outbox.Event
		want   []int
	}{"many": {letters(many...), []int{20, 50, 50}}, "large": {letters(large...), []int{4, 4}}} {
		fake.sizes = nil
		for _, outcome := range outcomes(t, handler.HandleBatch(ctx, c.events)) {
			if outcome != "m" {
				t.Errorf("%s: an answer %q, want all sent", name, outcome)
			}
		}
		if slices.Sort(fake.sizes); !slices.Equal(fake.sizes, c.want) {
			t.Errorf("%s: shared calls of sizes %v, want %v", name, fake.sizes, c.want)
		}
	}
}

func TestSESAnswersEachMailOfASharedCall(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{
		`"SUCCESS", "MessageId": "m-1"`:                                   "m-1",
		`"SUCCESS"`:                                                       "retry ses_answer_unreadable",
		`"MESSAGE_REJECTED", "Error": "hunter2"`:                          "discard ses_message_rejected",
		`"MAIL_FROM_DOMAIN_NOT_VERIFIED"`:                                 "snooze ses_sender_unverified",
		`"TEMPLATE_NOT_FOUND"`:                                            "discard ses_template_missing",
		`"TEMPLATE_DOES_NOT_EXIST", "Error": "no hunter2"`:                "discard ses_template_missing",
		`"CONFIGURATION_SET_NOT_FOUND"`:                                   "snooze ses_configuration_missing",
		`"CONFIGURATION_SET_DOES_NOT_EXIST", "Error": "template hunter2"`: "snooze ses_configuration_missing",
		`"INVALID_PARAMETER"`:                                             "discard ses_message_invalid",
		`"INVALID_PARAMETER_VALUE", "Error": "ann1@customer.example.org"`: "discard ses_message_invalid",
		`"ACCOUNT_SUSPENDED"`:                                             "snooze ses_account_suspended",
		`"ACCOUNT_THROTTLED"`:                                             "snooze ses_throttled",
		`"ACCOUNT_DAILY_QUOTA_EXCEEDED"`:                                  "snooze ses_daily_quota",
		`"INVALID_SENDING_POOL_NAME"`:                                     "snooze ses_configuration_missing",
		`"ACCOUNT_SENDING_PAUSED"`:                                        "snooze ses_sending_paused",
		`"CONFIGURATION_SET_SENDING_PAUSED"`:                              "snooze ses_sending_paused",
		`"TRANSIENT_FAILURE"`:                                             "retry ses_service_failed",
		`"FAILED", "Error": "hunter2"`:                                    "retry ses_service_failed",
		`"SOMETHING_NEW", "Error": "hunter2"`:                             "retry ses_unknown",
		`""`:                                                              "retry ses_answer_unreadable",
	} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			server := serve(t, http.StatusOK, `{"BulkEmailEntryResults": [
				{"Status": "SUCCESS", "MessageId": "m-0"}, {"Status": `+status+`}, {"Status": "SUCCESS", "MessageId": "m-2"}]}`)
			got := outcomes(t, newSES(t, handlers.SESConfig{}, server.URL).HandleBatch(t.Context(), letters("", "", "")))
			if want := []string{"m-0", want, "m-2"}; !slices.Equal(got, want) {
				t.Errorf("answers %q, want %q", got, want)
			}
		})
	}
}

func TestSESRetriesWhatASharedCallLeavesUnanswered(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		`{"BulkEmailEntryResults": [{"Status": "SUCCESS", "MessageId": "m-0"}]}`: {"m-0", "retry ses_answer_unreadable", "retry ses_answer_unreadable"},
		`{}`: {"retry ses_answer_unreadable", "retry ses_answer_unreadable", "retry ses_answer_unreadable"},
		`{"BulkEmailEntryResults": [{"Status": "SUCCESS", "MessageId": "a"}, {"Status": "SUCCESS", "MessageId": "b"},
			{"Status": "SUCCESS", "MessageId": "c"}, {"Status": "SUCCESS", "MessageId": "d"}]}`: {"a", "b", "c"},
	} {
		server := serve(t, http.StatusOK, body)
		got := outcomes(t, newSES(t, handlers.SESConfig{}, server.URL).HandleBatch(t.Context(), letters("", "", "")))
		if !slices.Equal(got, want) {
			t.Errorf("%s: answers %q, want %q", body, got, want)
		}
	}
}

func TestSESSendsOneByOneWhatWasRefusedTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status       int
		code         string
		want         string
		alone        bool
		stopsSharing bool
	}{
		{http.StatusBadRequest, "BadRequestException", "m", true, false},
		{http.StatusBadRequest, "MessageRejected", "m", true, false},
		{http.StatusForbidden, "AccessDeniedException", "m", true, true},
		{http.StatusNotFound, "NotFoundException", "discard ses_template_missing", false, false},
		{http.StatusBadRequest, "SendingPausedException", "snooze ses_sending_paused", false, false},
		{http.StatusTooManyRequests, "TooManyRequestsException", "snooze ses_throttled", false, false},
		{http.StatusInternalServerError, "InternalServiceErrorException", "retry ses_service_failed", false, false},
	} {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			fake := &fakeSES{bulk: func([]types.BulkEmailEntry) (int, string) {
				return c.status, fmt.Sprintf(`{"__type": %q, "message": "the template hunter2"}`, c.code)
			}}
			handler := fake.handler(t, handlers.SESConfig{})
			got := outcomes(t, handler.HandleBatch(t.Context(), letters("", "", "")))
			if want := []string{c.want, c.want, c.want}; !slices.Equal(got, want) {
				t.Errorf("answers %q, want %q", got, want)
			}
			if alone := fake.calls["SendEmail"]; (alone == 3) != c.alone || alone != 3 && alone != 0 {
				t.Errorf("%d mails sent alone, want all: %v", alone, c.alone)
			}
			if limit := handler.BatchLimit(); (limit == 1) != c.stopsSharing {
				t.Errorf("the next batch may have %d mails, want 1: %v", limit, c.stopsSharing)
			}
		})
	}
}

func TestSESTakesBatchesWhileMailsCanShareCalls(t *testing.T) {
	t.Parallel()
	fake := &fakeSES{}
	handler := fake.handler(t, handlers.SESConfig{})
	expect := func(want int, when string) {
		t.Helper()
		if got := handler.BatchLimit(); got != want {
			t.Errorf("%s the limit is %d, want %d", when, got, want)
		}
	}
	expect(1, "at first")
	handler.Handle(t.Context(), letters("")[0])
	expect(50, "after a template")
	handler.Handle(t.Context(), mailEvent(""))
	expect(1, "after a mail of its own")
	handler.HandleBatch(t.Context(), letters("", ""))
	expect(50, "after a shared call")
	handler.HandleBatch(t.Context(), letters("", `, "template": "other"`))
	expect(1, "after a batch of which nothing was shared")
}

func TestSESCountsRecipients(t *testing.T) {
	t.Parallel()
	handler := (&fakeSES{}).handler(t, handlers.SESConfig{})
	for payload, want := range map[string]int{
		`{"to": ["a@b.test"]}`: 1, `{"to": ["a@b.test", "c@b.test"], "cc": ["d@b.test"], "bcc": ["e@b.test"]}`: 4,
		`{}`: 1, `null`: 1, `[`: 1, ``: 1, `{"to": "a@b.test"}`: 1,
		`{"to": ["a@b.test"` + strings.Repeat(`, "a@b.test"`, 49) + `]}`:   50,
		`{"to": ["a@b.test"` + strings.Repeat(`, "a@b.test"`, 4999) + `]}`: 1, // is never sent
	} {
		if got := handler.Weight(outbox.Event{Payload: json.RawMessage(payload)}); got != want {
			t.Errorf("%s weighs %d, want %d", payload, got, want)
		}
	}
}

func TestASharedCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	fake := &fakeSES{}
	for _, delivery := range fake.handler(t, handlers.SESConfig{}).HandleBatch(ended(t), append(letters("", ""), mailEvent(""))) {
		if !errors.Is(delivery.Err, ended(t).Err()) {
			t.Errorf("the error is %v, want the context's", delivery.Err)
		}
	}
}

func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestSESIsAHandlerAsPassesExpectThem(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{
		"simple":   `{"to": ["ann@customer.example.org"], "subject": "s", "text": "t"}`,
		"raw":      `{"to": ["ann@customer.example.org"], "subject": "s", "text": "t", "format": "raw"}`,
		"template": `{"to": ["ann@customer.example.org"], "template": "letter", "data": {"n": 1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outboxtest.TestHandler(t, func(t *testing.T) outboxtest.HandlerHarness {
				fake := &fakeSES{quota: 14}
				handler := fake.handler(t, handlers.SESConfig{Rate: handlers.NewSESRate(fake.client(), 0)})
				if name == "template" { // or it would take no batches yet
					if _, err := handler.Handle(t.Context(), letters("")[0]); err != nil {
						t.Fatal(err)
					}
				}
				return outboxtest.HandlerHarness{
					Handler: handler,
					Event:   func(int) outbox.Event { return outbox.Event{Payload: json.RawMessage(payload)} },
					Poison: func() []outbox.Event {
						return []outbox.Event{
							{Payload: json.RawMessage(`{"to": ["hunter2"]}`)},
							{Payload: json.RawMessage(`{}`)},
							{Payload: json.RawMessage(`{"to": ["ann@customer.example.org"], "template": "hunter2", "format": "raw"}`)},
						}
					},
					Secrets: []string{"hunter2", "AKIDEXAMPLE", "ann@customer.example.org"},
				}
			})
		})
	}
}
