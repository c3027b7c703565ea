package rail

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

// amazon is the other end of SNS and SES. Its troubles: the topic of shipments is missing at first, SES has sending
// paused at first, and SNS loses answers after it has done its work.
type amazon struct {
	*cloud.Cloud
	journal *journal
	queues  map[string]string // URLs, by topic

	mu     sync.Mutex
	paused int            // how many mails SES still turns away
	open   bool           // the topic of shipments exists
	times  map[string]int // calls by event, since its topic exists
	lost   map[string]int // answers that were lost, by event
}

func newAmazon(ctx context.Context, emulator *cloud.Emulator, journal *journal) (*amazon, error) {
	a := &amazon{journal: journal, queues: map[string]string{}, paused: 3, times: map[string]int{}, lost: map[string]int{}}
	var err error
	if a.Cloud, err = emulator.Front(a.fault); err != nil {
		return nil, err
	}
	a.PlayBatches()
	err = a.create(ctx, stock)
	if err == nil {
		err = a.CreateTemplate(ctx, receiptTemplate, receiptSubject, receiptText)
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// env is what function and routes need to know.
func (a *amazon) env() []string {
	return append(a.Env(), "SHIPMENTS_TOPIC="+cloud.TopicARN(shipments), "STOCK_TOPIC="+cloud.TopicARN(stock))
}

// create makes a topic, with a queue behind it.
func (a *amazon) create(ctx context.Context, topic string) error {
	arn, err := a.CreateTopic(ctx, topic)
	if err != nil {
		return err
	}
	a.queues[topic], err = a.Subscribe(ctx, arn, topic, true)
	return err
}

// mend ends the trouble of the missing topic.
func (a *amazon) mend(ctx context.Context) error {
	if err := a.create(ctx, shipments); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = true
	return nil
}

// fault plays the scenario. An answer is lost twice, so that the SDK's own repetition doesn't help.
func (a *amazon) fault(call cloud.Call) *cloud.Fault {
	id := callID(call)
	a.journal.note(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case call.Action == "SendEmail" && a.paused > 0:
		a.paused--
		return &cloud.Fault{Status: http.StatusBadRequest, Code: "SendingPausedException", Message: "paused"}
	case call.Action == "SendEmail" || call.Topic == cloud.TopicARN(shipments) && !a.open:
		return nil
	}
	a.times[id]++
	if a.times[id] <= 2 && losing(call.Attributes["idempotency_key"]) {
		a.lost[id]++
		return &cloud.Fault{Status: http.StatusInternalServerError, Code: "InternalError", Message: "lost", Late: true}
	}
	return nil
}

// losing tells whether SNS loses its answers about an event.
func losing(key string) bool {
	return strings.HasSuffix(key, "07") || strings.HasSuffix(key, "47") || strings.HasSuffix(key, "87")
}

// callID is the id of the event that a call is for.
func callID(call cloud.Call) string {
	if call.Action == "SendEmail" {
		return call.Tags["outbox_event_id"]
	}
	return call.Attributes["event_id"]
}

// message is what the consumer of a topic's queue got.
type message struct {
	topic, id string
	facts
}

// received empties queues and mailbox.
func (a *amazon) received(ctx context.Context, into *arrivals) error {
	for topic, queue := range a.queues {
		all, err := a.Receive(ctx, queue)
		if err != nil {
			return err
		}
		for _, m := range all {
			into.messages = append(into.messages, message{topic: topic, id: m.Attributes["event_id"], facts: facts{
				aggregate: m.Attributes["aggregate_type"] + "/" + m.Attributes["aggregate_id"],
				eventType: m.Attributes["event_type"], key: m.Attributes["idempotency_key"],
				position: m.Attributes["position"], body: m.Data(),
			}})
		}
	}
	var err error
	if into.mails, err = a.Mails(ctx); err != nil {
		return err
	}
	into.calls, into.snsRequests = a.Calls(), a.Requests()
	a.mu.Lock()
	defer a.mu.Unlock()
	into.lost = a.lost
	return nil
}
