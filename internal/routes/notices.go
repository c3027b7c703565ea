package routes

import (
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// OnDiscard is who is told of discards; the zero value is nobody.
type OnDiscard struct {
	// SQS is the URL of a queue, EventBridge the name or ARN of a bus. One of them at most is set.
	SQS, EventBridge string
}

// onDiscard reads on_discard; without one it is otherwise.
func (p *parser) onDiscard(fields map[string]entry, otherwise OnDiscard) (told OnDiscard) {
	field, found := fields["on_discard"]
	if !found {
		return otherwise
	}
	places, ok := p.fields(field.value, field.path, "sqs", "eventbridge")
	if !ok {
		return otherwise
	}
	if len(places) != 1 && 2*len(places) == len(field.value.Content) { // no key was refused
		p.report(field.line, field.path, "takes one of sqs and eventbridge")
	}
	for _, place := range []struct {
		name  string
		value *string
		check func(string) error
	}{{"sqs", &told.SQS, handlers.CheckQueueURL}, {"eventbridge", &told.EventBridge, handlers.CheckBus}} {
		e, found := places[place.name]
		if !found {
			continue
		}
		if t, sound := p.text(e.value, e.path); sound {
			if err := place.check(t.value); err != nil {
				p.report(t.line, t.path, "%v", err)
			}
			*place.value = t.value
		}
	}
	return told
}

// notifiers makes one for each place, for all routes that lead there: a pass tells each place in one go.
type notifiers struct {
	queues *sqs.Client
	buses  *eventbridge.Client
	made   map[OnDiscard]outbox.Notifier
}

func (c *clients) notifier(told OnDiscard) (notifier outbox.Notifier, err error) {
	switch made, found := c.made[told]; {
	case told == OnDiscard{}:
		return nil, nil //nolint:nilnil // nobody is told
	case found:
		return made, nil
	case c.options.AWS.Region == "":
		return nil, errNoRegion
	case told.SQS != "":
		if c.queues == nil {
			c.queues = sqs.NewFromConfig(c.options.AWS)
		}
		notifier, err = handlers.NewSQSNotifier(c.queues, told.SQS)
	default:
		if c.buses == nil {
			c.buses = eventbridge.NewFromConfig(c.options.AWS)
		}
		notifier, err = handlers.NewEventBridgeNotifier(c.buses, told.EventBridge)
	}
	if err != nil {
		return nil, err
	}
	if c.made == nil {
		c.made = map[OnDiscard]outbox.Notifier{}
	}
	c.made[told] = notifier
	return notifier, nil
}
