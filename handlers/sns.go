package handlers

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	// maxEntries is how many messages SNS takes in one PublishBatch.
	maxEntries = 10
	// topicMemory is how long what was found out about a topic, or about SNS, is taken for true.
	topicMemory = 10 * time.Minute
)

// SNS publishes events to one topic, or each to one of several. Build it with [NewSNS]; it may be used concurrently.
type SNS struct {
	client   *sns.Client
	template topicTemplate
	topics   map[string]*snsTopic // by ARN
	envelope Envelope
	limit    int          // 0: each topic's own
	singly   atomic.Int64 // until when there is no PublishBatch, in Unix nanoseconds
}

var _ outbox.BatchHandler = (*SNS)(nil)

// NewSNS builds the handler. Its error joins every fault of the configuration, each a *[FieldError].
func NewSNS(config SNSConfig) (*SNS, error) {
	faults := config.Faults()
	if config.Client == nil {
		faults = append(faults, &FieldError{Field: "client", Problem: "missing, takes an SNS client"})
	}
	if err := joinFaults(faults); err != nil {
		return nil, err
	}
	template, err := parseTopicTemplate(config.TopicARN)
	if err != nil {
		return nil, &FieldError{Field: "topic_arn", Problem: err.Error()}
	}
	if config.MaxMessageBytes == 0 && !config.ReadMaximum {
		config.MaxMessageBytes = DefaultMessageBytes
	}
	arns := config.Topics
	if template.isFixed() {
		arns = []string{config.TopicARN}
	}
	return &SNS{
		client: config.Client, template: template, topics: newTopics(arns), envelope: config.Envelope, limit: config.MaxMessageBytes,
	}, nil
}

// Handle publishes the event in its envelope, the payload byte for byte (but for characters that queues refuse, which are
// escaped as JSON can), with attributes that subscriptions can filter by. On a FIFO topic the group is the event's
// aggregate and the deduplication id its id, so that repetitions within five minutes are dropped by SNS. A message id
// means delivered; the receipt is then {"sns": {"messageId": "…"}}, with a sequenceNumber from a FIFO topic. All else is
// an error by the table in docs/faults.md; once ctx has ended the error wraps ctx.Err. Without a deadline in ctx it is
// [outbox.DefaultHandlerTimeout].
func (h *SNS) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	message, err := h.message(ctx, event)
	if err != nil {
		return nil, err
	}
	return h.publish(ctx, message)
}

// Part names the topic that an event goes to, where the configuration has several; each then has a circuit of its own
// if this is the [outbox.Route]'s Part. It is "" for an event that goes to none, and where there is one topic only.
func (h *SNS) Part(event outbox.Event) string {
	if h.template.isFixed() {
		return ""
	}
	topic, err := h.topic(event)
	if err != nil {
		return ""
	}
	return topic.name
}

func (h *SNS) publish(ctx context.Context, message *snsMessage) (outbox.Receipt, error) {
	ctx, path := watchPath(ctx)
	output, err := h.client.Publish(ctx, &sns.PublishInput{
		TopicArn: &message.topic.arn, Message: &message.body, MessageAttributes: message.attributes,
		MessageGroupId: message.group, MessageDeduplicationId: message.deduplication,
	}, message.topic.options)
	if err != nil {
		return nil, awsCall{provider: providerSNS, path: path}.fault(ctx, err)
	}
	if aws.ToString(output.MessageId) == "" {
		return nil, errUnanswered()
	}
	return snsReceipt(output.MessageId, output.SequenceNumber), nil
}

func snsReceipt(id, sequenceNumber *string) outbox.Receipt {
	receipt := map[string]any{"messageId": aws.ToString(id)}
	if number := aws.ToString(sequenceNumber); number != "" {
		receipt["sequenceNumber"] = number
	}
	return outbox.Receipt{"sns": receipt}
}

// errUnanswered is about a message of which the answer says nothing.
func errUnanswered() error { return errors.New("sns_answer_unreadable: " + unreadable) }
