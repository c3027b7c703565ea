package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	typeString = "String"
	typeNumber = "Number"

	maxIDLength = 128
	hashPrefix  = "sha256-"
)

// snsMessage is what is sent of one event.
type snsMessage struct {
	topic                *snsTopic
	body                 string
	attributes           map[string]types.MessageAttributeValue
	group, deduplication *string
	size                 int
	position             int64            // of the event
	maximum              int              // of the topic
	alone                bool             // it goes into no batch
	answer               *outbox.Delivery // of a batch: where the answer belongs
}

// message returns what is sent of one event, or a discard when the topic would never take it.
func (h *SNS) message(ctx context.Context, event outbox.Event) (*snsMessage, error) {
	topic, err := h.topic(event)
	if err != nil {
		return nil, err
	}
	if len(event.Payload) == 0 {
		return nil, discardf("sns_message_empty: the payload is empty, and SNS takes no empty message")
	}
	body, _, headers := h.envelope.encode(event)
	message := &snsMessage{
		topic: topic, body: messageBody(body), attributes: snsAttributes(event, headers["traceparent"]),
		position: event.Position, alone: event.Attempts > maxBatchAttempts,
	}
	if topic.fifo {
		message.group = aws.String(groupID(event.AggregateType, event.AggregateID))
		message.deduplication = aws.String(stableID(event.ID))
	}
	maximum := h.limitOf(ctx, topic)
	message.size, message.maximum = messageSize(message), maximum.bytes
	switch {
	case message.size <= maximum.bytes:
		return message, nil
	case maximum.unsure != nil:
		return nil, maximum.unsure
	}
	why := ""
	if maximum.assumed {
		why = ", as far as known: the role may not ask the topic (sns:GetTopicAttributes)"
	}
	return nil, discardf("sns_message_too_large: %d bytes with its attributes, the limit is %d%s", message.size, maximum.bytes, why)
}

func discardf(format string, args ...any) error { return outbox.Discard(fmt.Errorf(format, args...)) }

// messageBody is a body byte for byte, but for what queues take in no message: a queue behind the topic would lose
// it, unseen by the publisher. Valid JSON has such characters within strings only, where an escape is the same value.
func messageBody(body []byte) string {
	text := string(body)
	if !strings.ContainsFunc(text, isRefused) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, c := range text { // bytes that are no UTF-8 come as U+FFFD, which is what readers of JSON make of them
		if isRefused(c) {
			fmt.Fprintf(&b, `\u%04x`, c)
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

// isRefused is true of a character that SQS takes in no message: its reference allows #x9, #xA, #xD, #x20 to #xD7FF,
// #xE000 to #xFFFD and #x10000 to #x10FFFF.
func isRefused(c rune) bool {
	return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0xfffe || c == 0xffff
}

// messageSize counts as SNS does: body, and names, types and values of the attributes.
func messageSize(message *snsMessage) int {
	size := len(message.body)
	for name, value := range message.attributes {
		size += len(name) + len(*value.DataType) + len(*value.StringValue)
	}
	return size
}

// snsAttributes are what subscriptions can filter by: at most ten, since a queue with raw delivery drops messages that
// have more, unseen by the publisher. Empty values are left out, since SNS refuses them.
func snsAttributes(event outbox.Event, traceparent string) map[string]types.MessageAttributeValue {
	attributes := make(map[string]types.MessageAttributeValue)
	add := func(name, kind, value string) {
		if value != "" {
			attributes[name] = types.MessageAttributeValue{DataType: aws.String(kind), StringValue: &value}
		}
	}
	add("event_id", typeString, encodeAttribute(event.ID))
	add("event_type", typeString, encodeAttribute(event.Type))
	add("aggregate_type", typeString, encodeAttribute(event.AggregateType))
	add("aggregate_id", typeString, encodeAttribute(event.AggregateID))
	add("idempotency_key", typeString, encodeAttribute(event.IdempotencyKey))
	add("position", typeNumber, strconv.FormatInt(event.Position, 10))
	add("attempt", typeNumber, strconv.Itoa(event.Attempts))
	add("created_at", typeString, event.CreatedAt.UTC().Format(time.RFC3339Nano))
	add("traceparent", typeString, traceparent)
	return attributes
}

// encodeAttribute percent-encodes the percent sign and what SQS takes in no message: control characters, the
// noncharacters U+FFFE and U+FFFF, bytes that are no UTF-8. All else stays, so that filter policies can be read;
// percent-decoding gives the value back.
func encodeAttribute(value string) string {
	var b strings.Builder
	for i, size := 0, 0; i < len(value); i += size {
		var c rune
		c, size = utf8.DecodeRuneInString(value[i:])
		invalid := c == utf8.RuneError && size == 1
		if !invalid && c >= ' ' && c != 0x7f && c != '%' && c != 0xfffe && c != 0xffff {
			b.WriteString(value[i : i+size])
			continue
		}
		for _, raw := range []byte(value[i : i+size]) {
			fmt.Fprintf(&b, "%%%02X", raw)
		}
	}
	return b.String()
}

// groupID names an aggregate in what SNS takes as a message group id: up to 128 visible ASCII characters. Distinct
// aggregates get distinct groups: the readable form splits at its last colon only, and a hash holds none.
func groupID(kind, id string) string {
	if readable := kind + ":" + id; isVisible(readable) && !strings.Contains(id, ":") {
		return readable
	}
	return hashed(strconv.Itoa(len(kind)) + ":" + kind + id)
}

// stableID is text itself where it is up to 128 visible ASCII characters, else a hash of it, for any text the same
// each time and distinct from any other's.
func stableID(text string) string {
	if isVisible(text) && !strings.HasPrefix(text, hashPrefix) {
		return text
	}
	return hashed(text)
}

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// isVisible tells whether text has 1 to 128 characters, all visible ASCII.
func isVisible(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return text != "" && len(text) <= maxIDLength
}
