package handlers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sns"
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
	//
	// It may hold fields that each event fills in: {event_type}, {aggregate_type}, {aggregate_id}, {payload.a.b} and
	// {metadata.a}, where a path leads to a text or a number. An event without such a value is discarded.
	TopicARN string
	// Topics are the ARNs that a TopicARN with fields may come to, all that it may; an event whose topic is not among them
	// is discarded. They are required with fields, and not taken without.
	Topics []string
	// Envelope is what surrounds the payload in the message; the zero value makes it a CloudEvent. It has no binary mode here.
	Envelope Envelope
	// Client publishes. Its credentials, endpoint and HTTP client are used; of its retries at most one, since the
	// outbox repeats by itself. One client may serve any number of handlers.
	Client *sns.Client
	// MaxMessageBytes is the topic's MaximumMessageSize, 1,024 to 1,048,576: a larger event is discarded before
	// anything is sent, and no batch is larger. Zero means [DefaultMessageBytes].
	MaxMessageBytes int
	// ReadMaximum asks each topic for its MaximumMessageSize in place of MaxMessageBytes, which must be zero: with the
	// topic's first event, and again when ten minutes have passed. It needs sns:GetTopicAttributes; where that is refused, and
	// where a topic names none, it is [DefaultMessageBytes].
	ReadMaximum bool
}

// Faults returns every fault of the configuration but a missing client, so that a routes file can be checked before
// clients exist.
func (c SNSConfig) Faults() []*FieldError {
	var faults []*FieldError
	report := func(field, format string, args ...any) {
		faults = append(faults, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	template, err := parseTopicTemplate(c.TopicARN)
	fixed := err == nil && template.isFixed()
	if err != nil {
		report("topic_arn", "%v", err)
	} else if problem := checkTopic(c.TopicARN); fixed && problem != "" {
		report("topic_arn", "%s", problem)
	}
	switch {
	case fixed && c.TopicARN != "" && len(c.Topics) > 0:
		report("topics", "only together with fields in topic_arn, like {aggregate_type}")
	case err == nil && !fixed && len(c.Topics) == 0:
		report("topics", "missing, takes the ARNs of all topics that topic_arn may come to")
	}
	for i, topic := range c.Topics {
		problem := checkTopic(topic)
		switch {
		case problem != "":
		case slices.Contains(c.Topics[:i], topic):
			problem = "is there a second time"
		case err == nil && !fixed && !template.matches(topic):
			problem = "is no topic that topic_arn may come to"
		}
		if problem != "" {
			report(fmt.Sprintf("topics[%d]", i), "%s", problem)
		}
	}
	faults = append(faults, c.Envelope.structuredFaults()...)
	switch {
	case c.ReadMaximum && c.MaxMessageBytes != 0:
		report("max_message_bytes", "%d, takes a number or what the topic says, not both", c.MaxMessageBytes)
	case c.MaxMessageBytes != 0 && (c.MaxMessageBytes < minMessageBytes || c.MaxMessageBytes > maxMessageBytes):
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
