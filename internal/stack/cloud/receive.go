package cloud

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// hiddenPause is how often Receive looks for messages that come again.
const hiddenPause = 500 * time.Millisecond

// Receive takes every message that waits in a queue, in its order.
func (c *Cloud) Receive(ctx context.Context, queue string) ([]Message, error) {
	var all []Message
	for {
		out, err := c.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &queue, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			return nil, fmt.Errorf("receive from %s: %w", queue, err)
		}
		if len(out.Messages) == 0 {
			hidden, err := c.hidden(ctx, queue)
			if err != nil || hidden == 0 {
				return all, err
			}
			// An answer was lost on its way, and the request repeated: those messages come again in half a minute.
			if err := wait(ctx, hiddenPause); err != nil {
				return nil, err
			}
			continue
		}
		for _, m := range out.Messages {
			got := Message{Body: aws.ToString(m.Body), Attributes: map[string]string{}}
			for name, value := range m.MessageAttributes {
				got.Attributes[name] = aws.ToString(value.StringValue)
			}
			all = append(all, got)
			_, err := c.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: m.ReceiptHandle})
			if err != nil {
				return nil, fmt.Errorf("take from %s: %w", queue, err)
			}
		}
	}
}

// hidden returns how many messages of a queue somebody has received and not deleted.
func (c *Cloud) hidden(ctx context.Context, queue string) (int, error) {
	const name = sqstypes.QueueAttributeNameApproximateNumberOfMessagesNotVisible
	out, err := c.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &queue, AttributeNames: []sqstypes.QueueAttributeName{name},
	})
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", queue, err)
	}
	n, err := strconv.Atoi(out.Attributes[string(name)])
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", queue, err)
	}
	return n, nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
