package handlers_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// noticeEntry is what a fake of SQS or EventBridge reads of an entry.
type noticeEntry struct {
	ID                     string `json:"Id"`
	MessageBody            string
	MessageGroupID         string `json:"MessageGroupId"`
	MessageDeduplicationID string `json:"MessageDeduplicationId"`

	Source, DetailType, Detail, EventBusName string
	Time                                     float64
}

// notices is a fake of both services.
type notices struct {
	mu      sync.Mutex
	calls   [][]noticeEntry
	sizes   []int64
	queue   string
	refuse  map[string]bool // event ids
	status  int             // of whole calls; 0: answered
	swallow bool            // answers nothing of any entry
}

func (n *notices) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var request struct {
		QueueURL string `json:"QueueUrl"`
		Entries  []noticeEntry
	}
	_ = json.NewDecoder(r.Body).Decode(&request)
	n.calls, n.sizes, n.queue = append(n.calls, request.Entries), append(n.sizes, r.ContentLength), request.QueueURL
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if n.status != 0 {
		w.WriteHeader(n.status)
		_, _ = w.Write([]byte(`{"__type": "AccessDeniedException", "message": "hunter2 may not"}`))
		return
	}
	isQueue := strings.HasPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	answer := map[string][]map[string]any{}
	for _, entry := range request.Entries {
		refused := n.refuse[idOf(entry)]
		sum := md5.Sum([]byte(entry.MessageBody))
		switch {
		case n.swallow:
		case isQueue && refused:
			answer["Failed"] = append(answer["Failed"], map[string]any{"Id": entry.ID, "Code": "InternalError", "SenderFault": false})
		case isQueue:
			answer["Successful"] = append(answer["Successful"], map[string]any{"Id": entry.ID, "MessageId": "m", "MD5OfMessageBody": hex.EncodeToString(sum[:])})
		case refused:
			answer["Entries"] = append(answer["Entries"], map[string]any{"ErrorCode": "ThrottlingException", "ErrorMessage": "hunter2"})
		default:
			answer["Entries"] = append(answer["Entries"], map[string]any{"EventId": "e"})
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func idOf(entry noticeEntry) string {
	var notice struct{ ID string }
	_ = json.Unmarshal([]byte(entry.MessageBody+entry.Detail), &notice)
	return notice.ID
}

// notifiers are one of each service, with a fake behind each.
func notifiers(t *testing.T, queue string) map[string]struct {
	outbox.Notifier
	*notices
} {
	t.Helper()
	start := func() (*notices, aws.Config) {
		fake := &notices{refuse: map[string]bool{}}
		server := httptest.NewServer(fake)
		t.Cleanup(server.Close)
		return fake, aws.Config{Region: "eu-west-1", BaseEndpoint: &server.URL, Credentials: credentials()}
	}
	queueFake, queueConfig := start()
	busFake, busConfig := start()
	toQueue, err := handlers.NewSQSNotifier(sqs.NewFromConfig(queueConfig), queue)
	if err != nil {
		t.Fatal(err)
	}
	toBus, err := handlers.NewEventBridgeNotifier(eventbridge.NewFromConfig(busConfig), "arn:aws:events:us-east-1:123456789012:event-bus/discards")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]struct {
		outbox.Notifier
		*notices
	}{"sqs": {toQueue, queueFake}, "eventbridge": {toBus, busFake}}
}

const queueURL = "https://sqs.eu-west-1.amazonaws.com/123456789012/discards"

func sampleNotices(n int) []outbox.Notice {
	all := make([]outbox.Notice, n)
	for i := range all {
		all[i] = outbox.Notice{
			EventID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Position: int64(i), AggregateType: "order",
			AggregateID: "0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10", Type: "order.placed", IdempotencyKey: "k\uffff", Attempts: 8,
			Reason: "http_404: \"not\" found\x01", DiscardReason: "max_attempts", Mark: "1",
			CreatedAt:   time.Date(2026, 11, 30, 6, 0, 0, 123456000, time.UTC),
			DiscardedAt: time.Date(2026, 11, 30, 8, 0, 0, 0, time.FixedZone("", 3600)),
		}
	}
	return all
}

func TestNoticesGoTenToACallWithoutThePayload(t *testing.T) {
	t.Parallel()
	for name, n := range notifiers(t, queueURL) {
		all := sampleNotices(23)
		for i, err := range n.Notify(t.Context(), all) {
			if err != nil {
				t.Errorf("%s: notice %d: %v", name, i, err)
			}
		}
		if len(n.calls) != 3 || len(n.calls[0]) != 10 || len(n.calls[2]) != 3 {
			t.Fatalf("%s: %d calls, want three of ten at most", name, len(n.calls))
		}
		entry := n.calls[2][1]
		want := `{"id":"00000000-0000-4000-8000-000000000021","type":"order.placed",` +
			`"aggregate":{"type":"order","id":"0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10"},"idempotencyKey":"k\uffff","position":21,"attempts":8,` +
			`"reason":"http_404: \"not\" found\u0001","discardReason":"max_attempts","createdAt":"2026-11-30T06:00:00.123456Z","discardedAt":"2026-11-30T07:00:00Z"}`
		if got := entry.MessageBody + entry.Detail; got != want {
			t.Errorf("%s: notice\n%s\nwant\n%s", name, got, want)
		}
		switch name {
		case "sqs":
			if n.queue != queueURL || entry.MessageGroupID != "" {
				t.Errorf("sent to %s in group %q, want no group", n.queue, entry.MessageGroupID)
			}
		default:
			if entry.Source != "outbox-dispatch" || entry.DetailType != "Outbox Event Discarded" || entry.Time != 1796022000 ||
				entry.EventBusName != "arn:aws:events:us-east-1:123456789012:event-bus/discards" {
				t.Errorf("event is %+v", entry)
			}
		}
	}
}

func TestNoticesOfAFIFOQueueAreKnownWhenTheyComeAgain(t *testing.T) {
	t.Parallel()
	n := notifiers(t, queueURL+".fifo")["sqs"]
	all := sampleNotices(2)
	anew := all[0]
	anew.Mark = "2"
	n.Notify(t.Context(), []outbox.Notice{all[0], all[1], anew, all[0]})
	sent := n.calls[0]
	if sent[0].MessageGroupID != all[0].AggregateID || sent[0].MessageDeduplicationID == "" {
		t.Errorf("entry %+v, want the aggregate as group and an id", sent[0])
	}
	ids := []string{sent[0].MessageDeduplicationID, sent[1].MessageDeduplicationID, sent[2].MessageDeduplicationID}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 3 || sent[3].MessageDeduplicationID != sent[0].MessageDeduplicationID {
		t.Errorf("ids %+v, want another for each discard, and the same for a repetition", sent)
	}
}

func TestNoticesAnswerEachByItself(t *testing.T) {
	t.Parallel()
	for name, n := range notifiers(t, queueURL) {
		all := sampleNotices(12)
		n.refuse[all[3].EventID], n.refuse[all[11].EventID] = true, true
		for i, err := range n.Notify(t.Context(), all) {
			if refused := i == 3 || i == 11; (err != nil) != refused || err != nil && (!strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("%s: notice %d answered %v, want refused %t", name, i, err, refused)
			}
		}
		n.swallow = true
		for i, err := range n.Notify(t.Context(), all) {
			if err == nil {
				t.Errorf("%s: notice %d counts as arrived, and nobody said so", name, i)
			}
		}
		n.swallow, n.status, n.calls = false, http.StatusBadRequest, nil
		answers := n.Notify(t.Context(), all)
		if len(answers) != 12 || len(n.calls) != 1 {
			t.Errorf("%s: %d answers after %d calls, want all refused by the first", name, len(answers), len(n.calls))
		}
		for _, err := range answers {
			if err == nil || err.Error() != name+": AccessDeniedException" {
				t.Errorf("%s: answered %v, want the code alone", name, err)
			}
		}
	}
}

func TestNoticesFitIntoTheirCalls(t *testing.T) {
	t.Parallel()
	for name, n := range notifiers(t, queueURL) {
		all := sampleNotices(20)
		for i := range all {
			all[i].Reason, all[i].IdempotencyKey, all[i].Type = strings.Repeat("\x01", 5000), strings.Repeat("\uffff", 5000), strings.Repeat("😀", 5000)
		}
		for i, err := range n.Notify(t.Context(), all) {
			if err != nil {
				t.Errorf("%s: notice %d: %v", name, i, err)
			}
		}
		for i, size := range n.sizes {
			if size > 512<<10 { // each notice is quoted once more on its way
				t.Errorf("%s: call %d has %d bytes", name, i, size)
			}
			sum := 0
			for _, entry := range n.calls[i] {
				sum += len(entry.MessageBody + entry.Detail)
			}
			if sum > 256<<10 {
				t.Errorf("%s: the notices of call %d have %d bytes, want 256 KiB at most", name, i, sum)
			}
		}
	}
}

// TestADiscardIsToldByAPass plays both notifiers through a pass.
func TestADiscardIsToldByAPass(t *testing.T) {
	t.Parallel()
	for name, n := range notifiers(t, queueURL) {
		store := &outboxtest.Memory{}
		ids := store.Insert(outboxtest.Row{Type: "a", Payload: json.RawMessage(`{"secret": "hunter2"}`)})
		worker, err := outbox.NewWorker(outbox.Config{Store: store, Discards: store, Registry: outbox.Registry{"a": {
			OnDiscard: n.Notifier, Handler: failing(outbox.Discard(context.Canceled)),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := worker.Run(t.Context(), outbox.Pass{}); err != nil {
				t.Fatal(err)
			}
		}
		if len(n.calls) != 1 || idOf(n.calls[0][0]) != ids[0] || strings.Contains(fmt.Sprint(n.calls), "hunter2") {
			t.Errorf("%s: calls %+v, want one about %s without its payload", name, n.calls, ids[0])
		}
	}
}

func TestNotifiersCheckWhereTheySendTo(t *testing.T) {
	t.Parallel()
	for text, sound := range map[string]bool{
		queueURL: true, queueURL + ".fifo": true, "https://localhost:4566/000000000000/q": true,
		"": false, "discards": false, "http://sqs.eu-west-1.amazonaws.com/1/q": false, "https://sqs.eu-west-1.amazonaws.com/q": false,
		"arn:aws:sqs:eu-west-1:123456789012:q": false, queueURL + "?x=1": false, "https://a:b@sqs.eu-west-1.amazonaws.com/1/q": false,
	} {
		if err := handlers.CheckQueueURL(text); (err == nil) != sound {
			t.Errorf("queue %q: %v, want sound %t", text, err, sound)
		}
	}
	for text, sound := range map[string]bool{
		"default": true, "shop/discards": true, "arn:aws:events:eu-west-1:123456789012:event-bus/a": true, "": false, "a b": false,
		"arn:aws:events:eu-west-1:123456789012:rule/a": false, "arn:aws:sqs:eu-west-1:123456789012:q": false, queueURL: false,
	} {
		if err := handlers.CheckBus(text); (err == nil) != sound {
			t.Errorf("bus %q: %v, want sound %t", text, err, sound)
		}
	}
}
