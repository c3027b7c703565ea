package cloud_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

// kumo has no PublishBatch: it answers 400, and a body that no SDK can read. Later the front plays it.
func TestBatchesReachATopicWhetherItTakesThemOrNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		played                 bool
		requests, limitForNext int
	}{
		"as it is": {played: false, requests: 31, limitForNext: 1},
		"played":   {played: true, requests: 3, limitForNext: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			front := start(t, nil)
			if c.played {
				front.PlayBatches()
			}
			topic, err := front.CreateTopic(t.Context(), unique("batches.fifo"))
			if err != nil {
				t.Fatal(err)
			}
			queue, err := front.Subscribe(t.Context(), topic, unique("batches.fifo"), true)
			if err != nil {
				t.Fatal(err)
			}
			handler, err := handlers.NewSNS(handlers.SNSConfig{TopicARN: topic, Client: sns.NewFromConfig(config(front)), ReadMaximum: true})
			if err != nil {
				t.Fatal(err)
			}
			for round := range 3 {
				for i, delivery := range handler.HandleBatch(t.Context(), batch(round, 10)) {
					if delivery.Err != nil {
						t.Errorf("round %d, event %d: %v", round, i, delivery.Err)
					}
				}
			}
			if front.Requests() != c.requests || handler.BatchLimit() != c.limitForNext {
				t.Errorf("%d requests, then batches of %d, want %d and %d", front.Requests(), handler.BatchLimit(), c.requests, c.limitForNext)
			}
			expectEachOnce(t, front, queue, 30)
		})
	}
}

func TestAPlayedBatchAnswersEntryByEntry(t *testing.T) {
	t.Parallel()
	front := start(t, func(call cloud.Call) *cloud.Fault {
		switch call.Attributes["event_id"] {
		case "event-0-3":
			return &cloud.Fault{Status: http.StatusTooManyRequests, Code: "Throttled", Message: "slow down"}
		case "event-0-4":
			return &cloud.Fault{Status: http.StatusInternalServerError, Code: "InternalError", Message: "lost"}
		}
		return nil
	})
	front.PlayBatches()
	topic, err := front.CreateTopic(t.Context(), unique("entries"))
	if err != nil {
		t.Fatal(err)
	}
	handler, err := handlers.NewSNS(handlers.SNSConfig{TopicARN: topic, Client: sns.NewFromConfig(config(front))})
	if err != nil {
		t.Fatal(err)
	}
	for i, delivery := range handler.HandleBatch(t.Context(), batch(0, 6)) {
		want := map[int]string{3: "sns_throttled", 4: "sns_service_failed"}[i]
		got := ""
		if delivery.Err != nil {
			got, _, _ = strings.Cut(delivery.Err.Error(), ":")
		}
		if got != want {
			t.Errorf("event %d: %q, want %q", i, got, want)
		}
	}
}

func expectEachOnce(t *testing.T, front *cloud.Cloud, queue string, n int) {
	t.Helper()
	messages, err := front.Receive(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, m := range messages {
		ids[m.Attributes["event_id"]] = true
		if want := fmt.Sprintf(`{"id": %q}`, m.Attributes["event_id"]); m.Data() != want {
			t.Errorf("data %s, want %s", m.Data(), want)
		}
	}
	if len(ids) != n || len(messages) != n {
		t.Errorf("%d messages of %d events, want each of %d once", len(messages), len(ids), n)
	}
}

func batch(round, n int) []outbox.Event {
	events := make([]outbox.Event, n)
	for i := range events {
		id := fmt.Sprintf("event-%d-%d", round, i)
		events[i] = outbox.Event{
			ID: id, Position: int64(round*n + i + 1), CreatedAt: time.Unix(0, 0), AggregateType: "order", AggregateID: fmt.Sprint(i),
			Type: "order.placed", IdempotencyKey: id, Attempts: 1, Payload: json.RawMessage(fmt.Sprintf(`{"id": %q}`, id)),
		}
	}
	return events
}
