package handlers

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"github.com/openlup/outbox-dispatch/outbox"
)

// What rules of a bus match notices by.
const (
	NoticeSource     = "outbox-dispatch"
	NoticeDetailType = "Outbox Event Discarded"
)

// EventBridgeNotifier tells of discards by events on a bus. Build it with [NewEventBridgeNotifier]; it may be used concurrently.
type EventBridgeNotifier struct {
	client *eventbridge.Client
	bus    string
	region string
}

var _ outbox.Notifier = (*EventBridgeNotifier)(nil)

// CheckBus tells why text is neither the name of an event bus nor its ARN. Nil means that it is.
func CheckBus(text string) error {
	if busName().MatchString(text) || busARN().MatchString(text) {
		return nil
	}
	return errors.New("is no event bus, takes a name like default or an ARN like arn:aws:events:eu-west-1:123456789012:event-bus/discards")
}

func busName() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._/-]{1,256}$`) }

func busARN() *regexp.Regexp {
	return regexp.MustCompile(`^arn:[A-Za-z0-9-]+:events:([A-Za-z0-9-]+):[0-9]{12}:event-bus/[A-Za-z0-9._/-]{1,256}$`)
}

// NewEventBridgeNotifier builds a notifier for one bus, by its name in the client's region or by its ARN.
func NewEventBridgeNotifier(client *eventbridge.Client, bus string) (*EventBridgeNotifier, error) {
	if err := CheckBus(bus); err != nil {
		return nil, err
	}
	region := ""
	if parts := busARN().FindStringSubmatch(bus); parts != nil {
		region = parts[1]
	}
	return &EventBridgeNotifier{client: client, bus: bus, region: region}, nil
}

// Notify implements [outbox.Notifier]: ten notices a call, each the detail of an event whose source is [NoticeSource] and whose
// type is [NoticeDetailType], without the outbox event's payload.
func (n *EventBridgeNotifier) Notify(ctx context.Context, notices []outbox.Notice) []error {
	return sendNotices(ctx, notices, n.send)
}

func (n *EventBridgeNotifier) send(ctx context.Context, notices []outbox.Notice, texts []string) ([]error, error) {
	entries := make([]types.PutEventsRequestEntry, len(notices))
	for i := range notices {
		entries[i] = types.PutEventsRequestEntry{
			Source: aws.String(NoticeSource), DetailType: aws.String(NoticeDetailType), Detail: &texts[i],
			EventBusName: &n.bus, Time: &notices[i].DiscardedAt,
		}
	}
	output, err := n.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: entries}, n.options)
	if err != nil {
		return nil, noticeFault("eventbridge", err)
	}
	answers := make([]error, len(notices))
	for i := range answers {
		switch {
		case i >= len(output.Entries):
			answers[i] = errors.New("eventbridge: unanswered")
		case output.Entries[i].ErrorCode != nil:
			answers[i] = fmt.Errorf("eventbridge: %s", *output.Entries[i].ErrorCode)
		case aws.ToString(output.Entries[i].EventId) == "":
			answers[i] = errors.New("eventbridge: unanswered")
		}
	}
	return answers, nil
}

func (n *EventBridgeNotifier) options(o *eventbridge.Options) {
	o.Retryer = fewAttempts(o.Retryer)
	if n.region != "" {
		o.Region = n.region
	}
}
