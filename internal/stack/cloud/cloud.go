// Package cloud stands in for AWS on this machine: SNS, SQS and SES as the emulator kumo plays them, in this process,
// behind a front that sees every call and can make it fail.
//
// kumo keeps its state in the process, not in the server: one [Emulator] serves a process, and topics, queues and mails of
// one [Cloud] are visible to all.
package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	sestypes "github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/sivchari/kumo"
)

// Region is the only one there is.
const Region = "us-east-1"

const account = "000000000000"

// Emulator is a running kumo.
type Emulator struct{ server *kumo.Server }

// Boot starts kumo. Only one may run in a process at a time: a second one changes what the first is reading.
func Boot() *Emulator { return &Emulator{server: kumo.NewServer()} }

// Close ends the server. Topics, queues and mails stay in the process.
func (e *Emulator) Close() { e.server.Close() }

// Cloud is a front of an emulator. Its methods may be called by several goroutines.
type Cloud struct {
	// URL is the endpoint of every service, for programs under test: [Cloud.Env] hands it to them.
	URL string

	kumo  string // URL
	proxy *httputil.ReverseProxy
	front *httptest.Server
	fault func(Call) *Fault
	sns   *sns.Client // these ask kumo itself
	sqs   *sqs.Client
	ses   *sesv2.Client

	batches  atomic.Bool // the front plays PublishBatch
	requests atomic.Int64

	mu    sync.Mutex
	calls []Call
}

// Front starts a front, which asks fault about each delivery, see [Call]; nil means that none fails. The caller closes
// it, before the emulator.
func (e *Emulator) Front(fault func(Call) *Fault) (*Cloud, error) {
	target, err := url.Parse(e.server.URL)
	if err != nil {
		return nil, fmt.Errorf("find kumo: %w", err)
	}
	config := aws.Config{
		Region: Region, BaseEndpoint: aws.String(e.server.URL),
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	}
	c := &Cloud{
		kumo: e.server.URL, fault: fault,
		sns: sns.NewFromConfig(config), sqs: sqs.NewFromConfig(config), ses: sesv2.NewFromConfig(config),
		proxy: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }},
	}
	c.front = httptest.NewServer(http.HandlerFunc(c.serve))
	c.URL = c.front.URL
	return c, nil
}

// Close ends the front.
func (c *Cloud) Close() {
	c.front.CloseClientConnections()
	c.front.Close()
}

// Env is what makes a program that loads the SDK's default configuration use the stand-in.
func (c *Cloud) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + c.URL, "AWS_REGION=" + Region, "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local",
		"AWS_ENDPOINT_URL_SNS=", "AWS_ENDPOINT_URL_SESV2=", "AWS_SESSION_TOKEN=", "AWS_PROFILE=", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=", "AWS_EC2_METADATA_DISABLED=true",
	}
}

// TopicARN is the ARN that a topic of this name has, or would have.
func TopicARN(name string) string { return "arn:aws:sns:" + Region + ":" + account + ":" + name }

// CreateTopic returns the ARN of a topic, which it creates if it is missing. A name that ends in .fifo makes a FIFO topic.
func (c *Cloud) CreateTopic(ctx context.Context, name string) (string, error) {
	out, err := c.sns.CreateTopic(ctx, &sns.CreateTopicInput{Name: &name, Attributes: fifo(name)})
	if err != nil {
		return "", fmt.Errorf("create topic %s: %w", name, err)
	}
	return aws.ToString(out.TopicArn), nil
}

// DeleteTopic deletes a topic and its subscriptions; the queues behind it stay.
func (c *Cloud) DeleteTopic(ctx context.Context, topic string) error {
	if _, err := c.sns.DeleteTopic(ctx, &sns.DeleteTopicInput{TopicArn: &topic}); err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return nil
}

// Subscribe lets a queue, which it creates if it is missing, receive what is published to a topic, and returns the
// queue's URL. Raw means that messages arrive as they were published, not in an envelope.
func (c *Cloud) Subscribe(ctx context.Context, topic, queue string, raw bool) (string, error) {
	made, err := c.CreateQueue(ctx, queue)
	if err != nil {
		return "", err
	}
	arn := "arn:aws:sqs:" + Region + ":" + account + ":" + queue
	_, err = c.sns.Subscribe(ctx, &sns.SubscribeInput{
		TopicArn: &topic, Protocol: aws.String("sqs"), Endpoint: &arn,
		Attributes: map[string]string{"RawMessageDelivery": fmt.Sprint(raw)},
	})
	if err != nil {
		return "", fmt.Errorf("subscribe %s: %w", queue, err)
	}
	return made, nil
}

// CreateQueue returns the URL of a queue, which it creates if it is missing.
func (c *Cloud) CreateQueue(ctx context.Context, name string) (string, error) {
	made, err := c.sqs.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: fifo(name)})
	if err != nil {
		return "", fmt.Errorf("create queue %s: %w", name, err)
	}
	return aws.ToString(made.QueueUrl), nil
}

func fifo(name string) map[string]string {
	if strings.HasSuffix(name, ".fifo") {
		return map[string]string{"FifoQueue": "true", "FifoTopic": "true"}
	}
	return nil
}

// Message is what a queue's consumer gets.
type Message struct {
	Body       string
	Attributes map[string]string
}

// Data is the payload of a message that is a CloudEvent, byte for byte; "" of any other.
func (m Message) Data() string {
	var event struct {
		SpecVersion string
		Data        json.RawMessage
	}
	if err := json.Unmarshal([]byte(m.Body), &event); err != nil || event.SpecVersion != "1.0" {
		return ""
	}
	return string(event.Data)
}

// CreateTemplate makes a mail template.
func (c *Cloud) CreateTemplate(ctx context.Context, name, subject, text string) error {
	_, err := c.ses.CreateEmailTemplate(ctx, &sesv2.CreateEmailTemplateInput{
		TemplateName:    &name,
		TemplateContent: &sestypes.EmailTemplateContent{Subject: &subject, Text: &text},
	})
	if err != nil {
		return fmt.Errorf("create template %s: %w", name, err)
	}
	return nil
}

// Mail is one that was sent.
type Mail struct {
	From        string `json:"FromEmailAddress"`
	Destination struct {
		To  []string `json:"ToAddresses"`
		Cc  []string `json:"CcAddresses"`
		Bcc []string `json:"BccAddresses"`
	} `json:"Destination"`
	Subject  string `json:"Subject"`
	Text     string `json:"Body"`
	HTML     string `json:"HTMLBody"`
	Template string `json:"TemplateName"`
	Raw      []byte `json:"RawData"` // of a mail that came as MIME
}

// Mails returns every mail sent in this process, in the order of sending.
func (c *Cloud) Mails(ctx context.Context) ([]Mail, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.kumo+"/kumo/ses/v2/sent-emails", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("read the mailbox: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the mailbox: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("read the mailbox: " + resp.Status)
	}
	var box struct{ SentEmails []Mail }
	if err := json.NewDecoder(resp.Body).Decode(&box); err != nil {
		return nil, fmt.Errorf("read the mailbox: %w", err)
	}
	return box.SentEmails, nil
}
