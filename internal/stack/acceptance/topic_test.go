package acceptance_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

// A topic that an operator deletes while a pass publishes to it costs nothing: what was published has arrived, the rest
// waits, charged no attempt, until the topic is back. Meanwhile other destinations go on.
func TestATopicDeletedInMidPassDiscardsNothing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"deleted-in-mid-pass", "deleted-in-mid-pass.fifo"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			topic := newTopic(w, name)
			const shipped, placed = 300, 100
			w.insertTyped("order.shipped", shipped, 60)
			w.insertTyped("user.invited", placed, 20)
			f := w.function(30 * time.Second)

			topic.deleteAt(shipped / 3)
			w.dispatch(f)
			if err := topic.deletion(); err != nil {
				t.Fatalf("delete the topic: %v", err)
			}
			published := topic.receive()
			if got := w.count("event_type = 'order.shipped' and status = 'processed'"); got != len(published) || got == 0 || got == shipped {
				t.Fatalf("%d rows are processed and %d messages arrived, want the same, and some of %d", got, len(published), shipped)
			}
			if got := w.count("status = 'discarded'"); got != 0 {
				t.Errorf("%d rows are discarded, want none", got)
			}
			const waiting = "event_type = 'order.shipped' and status in ('pending', 'failed')"
			if got := w.count(waiting); got != shipped-len(published) {
				t.Errorf("%d rows wait, want the other %d", got, shipped-len(published))
			}
			if got := w.count(waiting + " and metadata ? 'snoozeCount' and error like '%sns_topic_missing%'"); got == 0 {
				t.Error("no row says that its topic is missing")
			}
			if got := w.count(waiting + " and attempts > 0"); got != 0 {
				t.Errorf("%d waiting rows were charged an attempt, want none", got)
			}
			w.drainType(f, "user.invited")
			if got := w.hook.distinct(); got != placed {
				t.Errorf("%d events reached the webhook, want all %d", got, placed)
			}

			topic.create()
			w.dispatch(f)
			if got := w.count(waiting + " and available_at > now()"); got == 0 {
				t.Error("nothing waits out its snooze after the topic came back, so the next step shows nothing")
			}
			w.ageLeases() // the snooze is over
			w.drain(f)
			published = append(published, topic.receive()...)
			onceInOrder(w, published, shipped)
			if got := w.count("status = 'processed' and attempts = 1"); got != shipped+placed {
				t.Errorf("%d rows were processed at the cost of one attempt, want all %d", got, shipped+placed)
			}
		})
	}
}

const topicRoutes = `
version: 1
destinations:
  hook:  {http: {url: "${HOOK_URL}", timeout: 2s, allow_http: true, allow_ports: [1-65535], allow_private: ["127.0.0.0/8"]}}
  topic: {sns: {topic_arn: "${TOPIC_ARN}", timeout: 2s}}
routes:
  user.invited: {to: hook}
  order.shipped: {to: topic}
`

// emulator serves all tests of topics.
var emulator = sync.OnceValue(cloud.Boot)

// topic is one topic, with a queue of its own.
type topic struct {
	*world
	*cloud.Cloud
	name, queue string

	mu    sync.Mutex
	calls int
	at    int   // the call at which the topic is deleted; 0 for never
	gone  error // of deleting it
}

func newTopic(w *world, name string) *topic {
	w.Helper()
	t := &topic{world: w, name: rand.Text()[:8] + "-" + name} // topics outlive a test, so that it may run again
	var err error
	if t.Cloud, err = emulator().Front(t.before); err != nil {
		w.Fatalf("start the cloud: %v", err)
	}
	w.Cleanup(t.Close)
	if strings.HasSuffix(name, ".fifo") {
		t.PlayBatches() // kumo itself has none, as is the other topic's lot
	}
	t.create()
	w.env = append(t.Env(), "OUTBOX_ROUTES="+topicRoutes, "TOPIC_ARN="+cloud.TopicARN(t.name))
	return t
}

func (t *topic) create() {
	t.Helper()
	arn, err := t.CreateTopic(t.Context(), t.name)
	if err != nil {
		t.Fatal(err)
	}
	if t.queue, err = t.Subscribe(t.Context(), arn, t.name, true); err != nil {
		t.Fatal(err)
	}
}

// deleteAt deletes the topic just before its nth call.
func (t *topic) deleteAt(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = n
}

func (t *topic) deletion() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

func (t *topic) before(cloud.Call) *cloud.Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls++; t.calls == t.at {
		t.gone = t.DeleteTopic(context.Background(), cloud.TopicARN(t.name))
	}
	return nil
}

func (t *topic) receive() []cloud.Message {
	t.Helper()
	all, err := t.Receive(t.Context(), t.queue)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// insertTyped inserts n events of a type over aggregates of their own, round robin.
func (w *world) insertTyped(eventType string, n, aggregates int) {
	w.Helper()
	w.exec(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		select 'order', md5($1 || (n % $3::int)::text)::uuid, $1, n::text, jsonb_build_object('n', n)
		from generate_series(1, $2::int) n order by n`, eventType, n, aggregates)
}

// drainType dispatches pass after pass until nothing of a type is unfinished.
func (w *world) drainType(f *lambda.Function, eventType string) {
	w.Helper()
	for range 20 {
		if w.count("event_type = '"+eventType+"' and status <> 'processed'") == 0 {
			return
		}
		if _, err := f.Invoke(w.Context(), []byte("{}")); err != nil {
			w.Fatalf("invoke: %v", err)
		}
	}
}

// onceInOrder fails unless n events arrived in the queue, each once, in order within each aggregate.
func onceInOrder(w *world, published []cloud.Message, n int) {
	w.Helper()
	seen, last := map[string]bool{}, map[string]int64{}
	for _, m := range published {
		id, aggregate := m.Attributes["event_id"], m.Attributes["aggregate_id"]
		position, err := strconv.ParseInt(m.Attributes["position"], 10, 64)
		if err != nil {
			w.Fatalf("message %v has no position: %v", m, err)
		}
		if seen[id] {
			w.Errorf("event %s arrived again", id)
		}
		if position < last[aggregate] {
			w.Errorf("event %s: position %d arrived after %d", id, position, last[aggregate])
		}
		if want := fmt.Sprintf(`{"n": %s}`, m.Attributes["idempotency_key"]); m.Data() != want {
			w.Errorf("event %s: body %s, want the data %s", id, m.Body, want)
		}
		seen[id], last[aggregate] = true, position
	}
	if len(seen) != n {
		w.Errorf("%d events arrived in the queue, want %d", len(seen), n)
	}
}
