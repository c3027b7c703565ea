package acceptance_test

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

const discardRoutes = `
version: 1
destinations:
  customers:
    endpoints: {by: payload.tenant}
    on_discard: {sqs: "https://sqs.` + cloud.Region + `.amazonaws.com/000000000000/${QUEUE}"}
routes:
  order.placed: {to: customers}
`

// TestNoNoticeOfADiscardIsLost: discards of other clients, of spent attempts and of the function's own are told of to a queue,
// though the function is killed while it tells.
func TestNoNoticeOfADiscardIsLost(t *testing.T) {
	t.Parallel()
	const own, others, spent = 200, 1500, 50
	w := newWorld(t)
	front, err := emulator().Front(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close)
	name := rand.Text()[:8] + "-discards"
	queue, err := front.CreateQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	w.env = append(front.Env(), "OUTBOX_ROUTES="+discardRoutes, "QUEUE="+name)
	w.insert(own+others+spent, 5000)
	w.exec(`update outbox_events set attempts = 8, status = 'failed' where position > $1 and position <= $2`, others, others+spent)
	w.exec(`select outbox_mark_failed(c.id, c.metadata ->> 'claimToken', 'no such customer', 'discard')
		from generate_series(1, $1::int / 100) g cross join lateral outbox_claim_batch(array['order.placed'], p_batch_size => 100 + 0 * g) c`, others)
	if n := w.count("status = 'discarded'"); n < others {
		t.Fatalf("another client discarded %d, want %d at least", n, others)
	}

	f := w.function(30 * time.Second)
	done := make(chan error, 1)
	go func() { _, err := f.Invoke(t.Context(), []byte("{}")); done <- err }()
	for w.count("metadata ? 'discardTold'") == 0 {
		time.Sleep(time.Millisecond)
	}
	f.Kill()
	if err := <-done; err == nil {
		t.Log("the pass was over before it was killed")
	}
	if n := w.count("status = 'discarded' and not metadata ? 'discardTold'"); n == 0 {
		t.Fatal("all was told before the kill: the case shows nothing")
	}
	w.ageLeases()
	next := w.function(30 * time.Second)
	for range 3 {
		w.dispatch(next)
		w.ageLeases()
	}
	if n := w.count("status = 'discarded' and metadata ->> 'discardTold' = metadata ->> 'discardedAt'"); n != own+others+spent {
		t.Errorf("%d of %d discards are known to be told", n, own+others+spent)
	}
	messages, err := front.Receive(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, message := range messages {
		var notice struct{ ID, Reason string }
		if err := json.Unmarshal([]byte(message.Body), &notice); err != nil || notice.Reason == "" || strings.Contains(message.Body, `"n"`) {
			t.Errorf("notice %s: %v, want a reason and no payload", message.Body, err)
		}
		told[notice.ID]++
	}
	for id := range w.ids("true") {
		if told[id] == 0 {
			t.Errorf("nobody was told of %s", id)
		}
	}
	if again := len(messages) - len(told); again > 100 {
		t.Errorf("%d notices came again, want at most what was under way at the kill", again)
	}
}
