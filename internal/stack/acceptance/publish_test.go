package acceptance_test

import (
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

// SNS is paid by the request, and ten messages may share one: ten thousand events cost little more than a thousand.
func TestTenThousandEventsTakeAThousandPublishCalls(t *testing.T) {
	t.Parallel()
	const n, aggregates, most = 10_000, 1000, 1050
	w := newWorld(t)
	topic := newTopic(w, "ten-thousand")
	topic.PlayBatches()
	w.env = append(w.env, "OUTBOX_BATCH_SIZE=25") // the default
	w.insertTyped("order.shipped", n, aggregates)
	f := w.function(60 * time.Second)
	w.drain(f)
	if got := topic.Requests(); got > most {
		t.Errorf("%d events took %d publish calls, want %d at most", n, got, most)
	}
	// In order of their arrival at SNS. A queue hands out again, later, what an answer that was lost had in it.
	var published []cloud.Message
	for _, call := range topic.Calls() {
		published = append(published, cloud.Message{Body: call.Message, Attributes: call.Attributes})
	}
	onceInOrder(w, published, n)
	queued := map[string]bool{}
	for _, m := range topic.receive() {
		queued[m.Attributes["event_id"]] = true
	}
	if len(queued) != n {
		t.Errorf("%d events are in the queue, want %d", len(queued), n)
	}
	if got := w.count("status = 'processed' and attempts = 1"); got != n {
		t.Errorf("%d rows were processed at the cost of one attempt, want all %d", got, n)
	}
	t.Logf("%d events of %d aggregates: %d publish calls", n, aggregates, topic.Requests())
}
