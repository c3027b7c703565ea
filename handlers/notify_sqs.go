package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/openlup/outbox-dispatch/outbox"
)

// SQSNotifier tells of discards by messages on a queue. Build it with [NewSQSNotifier]; it may be used concurrently.
type SQSNotifier struct {
	client *sqs.Client
	queue  string
	region string
}

var _ outbox.Notifier = (*SQSNotifier)(nil)

// CheckQueueURL tells why text is no URL of a queue: https://sqs.<region>.amazonaws.com/<account>/<name>. Nil means that it is.
func CheckQueueURL(text string) error {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" ||
		strings.Count(strings.Trim(parsed.Path, "/"), "/") != 1 {
		return errors.New("is no queue, takes a URL like https://sqs.eu-west-1.amazonaws.com/123456789012/discards")
	}
	return nil
}

// NewSQSNotifier builds a notifier for one queue. A queue in another region than the client's is found by its URL.
func NewSQSNotifier(client *sqs.Client, queueURL string) (*SQSNotifier, error) {
	if err := CheckQueueURL(queueURL); err != nil {
		return nil, err
	}
	return &SQSNotifier{client: client, queue: queueURL, region: queueRegion(queueURL)}, nil
}

// queueRegion is that of sqs.<region>.amazonaws.com; empty for hosts of another form.
func queueRegion(queueURL string) string {
	parsed, err := url.Parse(queueURL)
	if err != nil {
		return ""
	}
	labels := strings.Split(parsed.Hostname(), ".")
	if len(labels) >= 4 && labels[0] == "sqs" && labels[2] == "amazonaws" {
		return labels[1]
	}
	return ""
}

// Notify implements [outbox.Notifier]: ten notices a call, each a JSON object without the event's payload. On a FIFO queue the
// group is the aggregate's id, and a notice that is sent again within five minutes is dropped by SQS.
func (n *SQSNotifier) Notify(ctx context.Context, notices []outbox.Notice) []error {
	return sendNotices(ctx, notices, n.send)
}

func (n *SQSNotifier) send(ctx context.Context, notices []outbox.Notice, texts []string) ([]error, error) {
	entries := make([]types.SendMessageBatchRequestEntry, len(notices))
	for i, notice := range notices {
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: &texts[i]}
		if strings.HasSuffix(n.queue, ".fifo") {
			entries[i].MessageGroupId, entries[i].MessageDeduplicationId = &notices[i].AggregateID, aws.String(noticeKey(notice))
		}
	}
	output, err := n.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &n.queue, Entries: entries}, n.options)
	if err != nil {
		return nil, noticeFault("sqs", err)
	}
	answers := make([]error, len(notices))
	for i := range answers {
		answers[i] = errors.New("sqs: unanswered")
	}
	for _, arrived := range output.Successful {
		if i, err := strconv.Atoi(aws.ToString(arrived.Id)); err == nil && i >= 0 && i < len(answers) {
			answers[i] = nil
		}
	}
	for _, failed := range output.Failed {
		if i, err := strconv.Atoi(aws.ToString(failed.Id)); err == nil && i >= 0 && i < len(answers) {
			answers[i] = fmt.Errorf("sqs: %s", aws.ToString(failed.Code))
		}
	}
	return answers, nil
}

func (n *SQSNotifier) options(o *sqs.Options) {
	o.Retryer = fewAttempts(o.Retryer)
	if n.region != "" {
		o.Region = n.region
	}
}
