package handlers

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/outbox"
)

// maximumAttribute is what a topic calls its limit.
const maximumAttribute = "MaximumMessageSize"

// unsureTime is how long a topic is not asked again after it gave no answer.
const unsureTime = time.Minute

// snsTopic is one topic, and what is known of it.
type snsTopic struct {
	arn, region string
	name        string // of its circuit
	fifo        bool

	turn    chan struct{} // whoever fills it may use what follows
	maximum topicMaximum
	until   time.Time // when it is read again
}

// topicMaximum is how large a message and a batch may be.
type topicMaximum struct {
	bytes   int
	assumed bool  // the topic may not be asked
	unsure  error // why it gave no answer; a message above bytes may fit all the same
}

// newTopics takes ARNs that have been checked. Topics whose names are equal have circuits of their own.
func newTopics(arns []string) map[string]*snsTopic {
	topics, names := make(map[string]*snsTopic, len(arns)), make(map[string]int, len(arns))
	for _, text := range arns {
		parsed, err := arn.Parse(text)
		if err != nil {
			continue // was checked
		}
		names[parsed.Resource]++
		topics[text] = &snsTopic{
			arn: text, region: parsed.Region, name: parsed.Resource, fifo: strings.HasSuffix(parsed.Resource, fifoSuffix),
			turn: make(chan struct{}, 1), maximum: topicMaximum{bytes: DefaultMessageBytes},
		}
	}
	for _, topic := range topics {
		if names[topic.name] > 1 {
			topic.name = topic.arn
		}
	}
	return topics
}

// options are those of every call about the topic.
func (t *snsTopic) options(o *sns.Options) {
	o.Region = t.region
	o.Retryer = fewAttempts(o.Retryer)
}

// topic returns where an event goes, or a discard.
func (h *SNS) topic(event outbox.Event) (*snsTopic, error) {
	text, missing := h.template.fill(event)
	if missing != "" {
		return nil, discardf("sns_topic_field_missing: topic_arn takes %s, and the event has no text or number there", missing)
	}
	topic, allowed := h.topics[text]
	if !allowed {
		return nil, discardf("sns_topic_not_allowed: the topic that the event leads to is not among topics")
	}
	return topic, nil
}

// limitOf returns the topic's maximum, which it reads if that is wanted and due. One call at a time does so, since all
// others would ask the same.
func (h *SNS) limitOf(ctx context.Context, topic *snsTopic) topicMaximum {
	if h.limit != 0 {
		return topicMaximum{bytes: h.limit}
	}
	select {
	case topic.turn <- struct{}{}:
		defer func() { <-topic.turn }()
	case <-ctx.Done():
		return topicMaximum{bytes: DefaultMessageBytes, unsure: contextFault(ctx)}
	}
	if time.Now().Before(topic.until) {
		return topic.maximum
	}
	maximum, memory := h.readMaximum(ctx, topic)
	if memory > 0 {
		topic.maximum, topic.until = maximum, time.Now().Add(memory)
	}
	return maximum
}

// readMaximum asks the topic, and tells how long its answer holds.
func (h *SNS) readMaximum(ctx context.Context, topic *snsTopic) (maximum topicMaximum, memory time.Duration) {
	ctx, path := watchPath(ctx)
	output, err := h.client.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &topic.arn}, topic.options)
	if err == nil {
		bytes, err := strconv.Atoi(output.Attributes[maximumAttribute])
		if err != nil || bytes < minMessageBytes || bytes > maxMessageBytes {
			bytes = DefaultMessageBytes
		}
		return topicMaximum{bytes: bytes}, topicMemory
	}
	maximum = topicMaximum{bytes: topic.maximum.bytes} // what it was
	call := awsCall{provider: providerSNS, path: path}
	if ctx.Err() != nil {
		maximum.unsure = call.contextFault(ctx)
		return maximum, 0
	}
	answer := newAnswer(err)
	if call.judge(answer).reason == reasonDenied || isNoOperation(answer) {
		maximum.assumed = true
		return maximum, topicMemory
	}
	maximum.unsure = call.outcome(answer)
	return maximum, unsureTime
}

// isNoOperation is true of an answer that emulators give to an operation that they don't know: unreadable, or a code of
// the protocol and not of SNS.
func isNoOperation(answer awsAnswer) bool {
	switch answer.code {
	case "":
		return answer.status == 400 || answer.status == 404 || answer.status == 405 || answer.status == 501
	case "InvalidAction", "NotImplemented", "UnknownOperationException", "UnsupportedOperation":
		return true
	}
	return answer.status == 501
}
