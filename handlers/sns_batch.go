package handlers

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/openlup/outbox-dispatch/outbox"
)

// maxBatchAttempts is how often an event may be tried together with others. What fails more often goes alone, so that no
// batch is at fault, nor any other event of it.
const maxBatchAttempts = 2

// BatchLimit is 10, what SNS takes in one request; or 1 for a while after SNS turned out to know no PublishBatch.
func (h *SNS) BatchLimit() int {
	if h.isSingly() {
		return 1
	}
	return maxEntries
}

// HandleBatch publishes each event as [SNS.Handle] does, in as few requests as its topics and their maxima allow, which run
// at once and share the deadline of ctx. An event that SNS would never take is discarded before the others are packed. A
// request refused as a whole, over an event or over being a batch, is sent again event by event.
func (h *SNS) HandleBatch(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	ctx, cancel := bound(ctx)
	defer cancel()
	deliveries := make([]outbox.Delivery, len(events))
	messages := make([]*snsMessage, 0, len(events))
	for i, event := range events {
		message, err := h.message(ctx, event)
		if err != nil {
			deliveries[i].Err = err
			continue
		}
		message.answer = &deliveries[i]
		messages = append(messages, message)
	}
	atOnce(pack(messages), func(batch []*snsMessage) { h.publishAll(ctx, batch) })
	return deliveries
}

// pack puts messages of one topic together, as many as one request takes by count and by bytes: the largest first, each
// into the first batch that has room for it. In a batch they are in the order of the rows, though none is promised.
func pack(messages []*snsMessage) [][]*snsMessage {
	type batch struct {
		messages []*snsMessage
		size     int
	}
	bySize := slices.Clone(messages)
	slices.SortStableFunc(bySize, func(a, b *snsMessage) int { return b.size - a.size })
	var batches []*batch
	for _, m := range bySize {
		i := slices.IndexFunc(batches, func(b *batch) bool {
			first := b.messages[0]
			return !m.alone && !first.alone && first.topic == m.topic && len(b.messages) < maxEntries && b.size+m.size <= m.maximum
		})
		if i < 0 {
			i, batches = len(batches), append(batches, new(batch))
		}
		batches[i].messages = append(batches[i].messages, m)
		batches[i].size += m.size
	}
	packed := make([][]*snsMessage, len(batches))
	for i, b := range batches {
		slices.SortStableFunc(b.messages, func(a, b *snsMessage) int { return cmp.Compare(a.position, b.position) })
		packed[i] = b.messages
	}
	return packed
}

// publishAll publishes the messages of a batch and answers each.
func (h *SNS) publishAll(ctx context.Context, batch []*snsMessage) {
	if len(batch) == 1 || h.isSingly() {
		h.publishSingly(ctx, batch)
		return
	}
	ctx, path := watchPath(ctx)
	call := awsCall{provider: providerSNS, path: path}
	output, err := h.client.PublishBatch(ctx, batchInput(batch), batch[0].topic.options)
	if err == nil {
		call.answerEach(batch, output)
		return
	}
	answer := newAnswer(err)
	switch refusal := call.judge(answer); {
	case ctx.Err() == nil && sameCode(codeTooLong, answer.code):
		half := len(batch) / 2
		atOnce([][]*snsMessage{batch[:half], batch[half:]}, func(part []*snsMessage) { h.publishAll(ctx, part) })
	case ctx.Err() == nil && refusal.outcome != outbox.Snoozed && isRefusal(answer):
		if h.publishSingly(ctx, batch) && isNoOperation(answer) {
			h.singly.Store(time.Now().Add(topicMemory).UnixNano())
		}
	default:
		for _, m := range batch {
			m.answer.Err = call.fault(ctx, err)
		}
	}
}

// isRefusal is true of an answer after which nothing was published, and nothing will be however often it is asked.
func isRefusal(answer awsAnswer) bool {
	return answer.status >= 400 && answer.status < 500 || answer.status == 501 || isUnsendable(awsCall{}, answer)
}

// isSingly tells whether SNS is known to have no PublishBatch.
func (h *SNS) isSingly() bool { return time.Now().UnixNano() < h.singly.Load() }

// publishSingly publishes each message by a request of its own, and tells whether some was taken.
func (h *SNS) publishSingly(ctx context.Context, messages []*snsMessage) (taken bool) {
	atOnce(messages, func(m *snsMessage) {
		m.answer.Receipt, m.answer.Err = h.publish(ctx, m)
	})
	return slices.ContainsFunc(messages, func(m *snsMessage) bool { return m.answer.Err == nil })
}

func batchInput(batch []*snsMessage) *sns.PublishBatchInput {
	entries := make([]types.PublishBatchRequestEntry, len(batch))
	for i, m := range batch {
		entries[i] = types.PublishBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), Message: &m.body, MessageAttributes: m.attributes,
			MessageGroupId: m.group, MessageDeduplicationId: m.deduplication,
		}
	}
	return &sns.PublishBatchInput{TopicArn: &batch[0].topic.arn, PublishBatchRequestEntries: entries}
}

// answerEach finds each message's answer by its id, since SNS promises no order.
func (c awsCall) answerEach(batch []*snsMessage, output *sns.PublishBatchOutput) {
	byID := make(map[string]*snsMessage, len(batch))
	for i, m := range batch {
		byID[strconv.Itoa(i)] = m
		m.answer.Err = errUnanswered()
	}
	for _, failed := range output.Failed {
		if m := byID[aws.ToString(failed.Id)]; m != nil {
			m.answer.Err = c.outcome(awsAnswer{
				code: aws.ToString(failed.Code), message: aws.ToString(failed.Message), sender: failed.SenderFault,
			})
		}
	}
	for _, entry := range output.Successful {
		if m := byID[aws.ToString(entry.Id)]; m != nil && aws.ToString(entry.MessageId) != "" {
			*m.answer = outbox.Delivery{Receipt: snsReceipt(entry.MessageId, entry.SequenceNumber)}
		}
	}
}

// atOnce calls do for every item, each on a goroutine of its own, and waits for all. What one panics with, it panics with.
func atOnce[T any](items []T, do func(T)) {
	var wait sync.WaitGroup
	panics := make(chan any, len(items))
	for _, item := range items {
		wait.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panics <- v
				}
			}()
			do(item)
		})
	}
	wait.Wait()
	select {
	case v := <-panics:
		panic(v) //nolint:forbidigo // it is another goroutine's, passed on to where panics are judged
	default:
	}
}
