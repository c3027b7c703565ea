package cloud_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// kumo has no PublishBatch: it answers 400, and a body that no SDK can read.
func TestBatchesReachATopicThatTakesNone(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	topic, err := c.CreateTopic(t.Context(), unique("batches.fifo"))
	if err != nil {
		t.Fatal(err)
	}
	queue, err := c.Subscribe(t.Context(), topic, unique("batches.fifo"), true)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := handlers.NewSNS(handlers.SNSConfig{TopicARN: topic, Client: sns.NewFromConfig(config(c)), ReadMaximum: true})
	if err != nil {
		t.Fatal(err)
	}
	const rounds, n = 3, 10
	for round := range rounds {
		for i, delivery := range handler.HandleBatch(t.Context(), batch(round, n)) {
			if delivery.Err != nil {
				t.Errorf("round %d, event %d: %v", round, i, delivery.Err)
			}
		}
	}
	if handler.BatchLimit() != 1 {
		t.Errorf("batches of %d from then on, want none", handler.BatchLimit())
	}
	messages, err := c.Receive(t.Context(), queue)
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
	if len(ids) != rounds*n || len(messages) != rounds*n {
		t.Errorf("%d messages of %d events, want each of %d once", len(messages), len(ids), rounds*n)
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
