package handlers_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	topicARN = "arn:aws:sns:eu-west-1:123456789012:orders"
	sender   = "Orders <orders@shop.example.com>"
)

// wire is a server that speaks a service's wire format: it answers every request alike, and keeps what it received.
type wire struct {
	*httptest.Server
	requests atomic.Int64
	received chan request
}

// serve answers with a status, headers ("Name: value") and a body.
func serve(t *testing.T, status int, body string, headers ...string) *wire {
	t.Helper()
	w := &wire{received: make(chan request, 64)}
	w.Server = httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		w.requests.Add(1)
		w.received <- request{r.Method, r.RequestURI, r.Header.Clone(), content}
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			writer.Header().Set(name, value)
		}
		writer.WriteHeader(status)
		io.WriteString(writer, body)
	}))
	t.Cleanup(w.Close)
	return w
}

// snsAnswers is a topic that takes everything.
func snsAnswers(t *testing.T) *wire {
	t.Helper()
	return serve(t, http.StatusOK, `<PublishResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishResult>`+
		`<MessageId>94f20ce6-13c5-43a0-9a9e-ca52d816e90b</MessageId><SequenceNumber>10000000000000003000</SequenceNumber>`+
		`</PublishResult><ResponseMetadata><RequestId>f187a3c1-376f-11df-8963-01868b7c937a</RequestId></ResponseMetadata>`+
		`</PublishResponse>`, "Content-Type: text/xml")
}

// sesAnswers is an SES that takes everything.
func sesAnswers(t *testing.T) *wire {
	t.Helper()
	return serve(t, http.StatusOK, `{"MessageId": "0102018e-mail"}`, "Content-Type: application/json")
}

func credentials() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "hunter2"}, nil
	})
}

// eager tries often and never waits, so that a handler's own limit shows and tests are quick.
func eager() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 7
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
}

func newSNS(t *testing.T, config handlers.SNSConfig, url string, options ...func(*sns.Options)) *handlers.SNS {
	t.Helper()
	config.Client = sns.New(sns.Options{
		Region: "us-east-1", BaseEndpoint: &url, Credentials: credentials(), Retryer: eager(),
	}, options...)
	if config.TopicARN == "" {
		config.TopicARN = topicARN
	}
	handler, err := handlers.NewSNS(config)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func newSES(t *testing.T, config handlers.SESConfig, url string, options ...func(*sesv2.Options)) *handlers.SES {
	t.Helper()
	config.Client = sesv2.New(sesv2.Options{
		Region: "us-east-1", BaseEndpoint: &url, Credentials: credentials(), Retryer: eager(),
	}, options...)
	if config.From == "" {
		config.From = sender
	}
	handler, err := handlers.NewSES(config)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// mailEvent is an event that SES takes, but for the payload when one is given.
func mailEvent(payload string) outbox.Event {
	event := sampleEvent()
	if payload == "" {
		payload = `{"to": ["ann@customer.example.org"], "subject": "Your order, total 12", "text": "hunter2"}`
	}
	event.Payload = json.RawMessage(payload)
	return event
}

// expectPrivate looks for what must never be in a reason.
func expectPrivate(t *testing.T, reason string) {
	t.Helper()
	for _, secret := range []string{"hunter2", "AKID", "example.", "@", "arn:", "123456789012", "http", "127.0.0.1", "order"} {
		if strings.Contains(reason, secret) {
			t.Errorf("reason %q shows %q", reason, secret)
		}
	}
}
