package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/outbox"
)

// Bounds of [SNSConfig].MaxMessageBytes: what a topic takes unless it was told otherwise, and what it can be told.
const (
	DefaultMessageBytes = 256 << 10
	minMessageBytes     = 1 << 10
	maxMessageBytes     = 1 << 20
)

const (
	fifoSuffix     = ".fifo"
	maxTopicLength = 256
)

// SNSConfig configures an [SNS] handler. TopicARN and Client are required; every other zero value means its default.
type SNSConfig struct {
	// TopicARN is where events are published. A topic whose name ends in .fifo is a FIFO topic. Requests go to the
	// region that the ARN names, whatever the client's own is.
	TopicARN string
	// Client publishes. Its credentials, endpoint and HTTP client are used; of its retries at most one, since the
	// outbox repeats by itself. One client may serve any number of handlers.
	Client *sns.Client
	// MaxMessageBytes is the topic's MaximumMessageSize, 1,024 to 1,048,576: a larger event is discarded before
	// anything is sent. Zero means [DefaultMessageBytes].
	MaxMessageBytes int
}

// Faults returns every fault of the configuration but a missing client, so that a routes file can be checked before
// clients exist.
func (c SNSConfig) Faults() []*FieldError {
	var faults []*FieldError
	report := func(field, format string, args ...any) {
		faults = append(faults, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if problem := checkTopic(c.TopicARN); problem != "" {
		report("topic_arn", "%s", problem)
	}
	if c.MaxMessageBytes != 0 && (c.MaxMessageBytes < minMessageBytes || c.MaxMessageBytes > maxMessageBytes) {
		report("max_message_bytes", "%d, takes %d to %d, or zero for %d",
			c.MaxMessageBytes, minMessageBytes, maxMessageBytes, DefaultMessageBytes)
	}
	return faults
}

// checkTopic never repeats the ARN, which may be something else that was put in the wrong place.
func checkTopic(text string) string {
	const form = "takes one like arn:aws:sns:eu-west-1:123456789012:orders or …:orders.fifo"
	topic, err := arn.Parse(text)
	name := strings.TrimSuffix(topic.Resource, fifoSuffix)
	switch {
	case text == "":
		return "missing, " + form
	case err != nil || topic.Service != "sns":
		return "not the ARN of an SNS topic, " + form
	case topic.Partition == "" || !isName(topic.Partition, "-") || topic.Region == "" || !isName(topic.Region, "-"):
		return "has no valid partition or region, " + form
	case len(topic.AccountID) != 12 || strings.Trim(topic.AccountID, "0123456789") != "":
		return "has no account of 12 digits, " + form
	case strings.Contains(topic.Resource, ":"):
		return "is the ARN of a subscription or another part of a topic, " + form
	case name == "" || len(topic.Resource) > maxTopicLength || !isName(name, "-_"):
		return "has no valid topic name, " + form
	}
	return ""
}

// isName tells whether text consists of ASCII letters, digits and what extra holds.
func isName(text, extra string) bool {
	for _, c := range []byte(text) {
		if !isAlphanumeric(c) && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// SNS publishes events to one topic. Build it with [NewSNS]; it may be used concurrently.
type SNS struct {
	client *sns.Client
	topic  string
	region string
	fifo   bool
	limit  int
}

var _ outbox.Handler = (*SNS)(nil)

// NewSNS builds the handler. Its error joins every fault of the configuration, each a *[FieldError].
func NewSNS(config SNSConfig) (*SNS, error) {
	faults := config.Faults()
	if config.Client == nil {
		faults = append(faults, &FieldError{Field: "client", Problem: "missing, takes an SNS client"})
	}
	if err := joinFaults(faults); err != nil {
		return nil, err
	}
	topic, err := arn.Parse(config.TopicARN)
	if err != nil {
		return nil, &FieldError{Field: "topic_arn", Problem: "cannot be parsed"}
	}
	if config.MaxMessageBytes == 0 {
		config.MaxMessageBytes = DefaultMessageBytes
	}
	return &SNS{
		client: config.Client, topic: config.TopicARN, region: topic.Region,
		fifo: strings.HasSuffix(topic.Resource, fifoSuffix), limit: config.MaxMessageBytes,
	}, nil
}

// Handle publishes the event's payload, byte for byte (but for characters that queues refuse, which are escaped as JSON
// can), with attributes that subscriptions can filter by. On a FIFO topic the group is the event's aggregate and the deduplication id its id, so that repetitions within five minutes
// are dropped by SNS. A message id means delivered; the receipt is then {"sns": {"messageId": "…"}}, with a
// sequenceNumber from a FIFO topic. All else is an error by the table in docs/faults.md; once ctx has ended the error
// wraps ctx.Err. Without a deadline in ctx it is [outbox.DefaultHandlerTimeout].
func (h *SNS) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	input, err := h.message(event)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	ctx, path := watchPath(ctx)
	output, err := h.client.Publish(ctx, input, func(o *sns.Options) {
		o.Region = h.region
		o.Retryer = fewAttempts(o.Retryer)
	})
	if err != nil {
		return nil, awsCall{provider: providerSNS, path: path}.fault(ctx, err)
	}
	if aws.ToString(output.MessageId) == "" {
		return nil, errors.New("sns_answer_unreadable: " + unreadable)
	}
	receipt := map[string]any{"messageId": *output.MessageId}
	if number := aws.ToString(output.SequenceNumber); number != "" {
		receipt["sequenceNumber"] = number
	}
	return outbox.Receipt{"sns": receipt}, nil
}
