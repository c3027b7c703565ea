package cloud_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	sestypes "github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/smithy-go"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

// emulator serves all tests.
var emulator = sync.OnceValue(cloud.Boot)

func TestWhatIsPublishedArrivesInTheQueues(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	topic, err := c.CreateTopic(t.Context(), unique("arrives.fifo"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.Subscribe(t.Context(), topic, unique("arrives-raw.fifo"), true)
	if err != nil {
		t.Fatal(err)
	}
	enveloped, err := c.Subscribe(t.Context(), topic, unique("arrives-enveloped.fifo"), false)
	if err != nil {
		t.Fatal(err)
	}
	const n = 25 // more than one receive takes
	for i := range n {
		publish(t, c, topic, fmt.Sprintf(`{"n": %d}`, i), fmt.Sprintf("d%d", i)) // kumo refuses what looks like a number
	}
	publish(t, c, topic, "again", "d0") // a duplicate to a FIFO topic

	got, err := c.Receive(t.Context(), raw)
	if err != nil || len(got) != n {
		t.Fatalf("%d messages (%v), want %d", len(got), err, n)
	}
	for i, m := range got {
		if m.Body != fmt.Sprintf(`{"n": %d}`, i) || m.Attributes["kind"] != "test" {
			t.Errorf("message %d is %+v, want n %d and the attribute kind", i, m, i)
		}
	}
	got, err = c.Receive(t.Context(), enveloped)
	if err != nil || len(got) != n {
		t.Fatalf("%d messages in envelopes (%v), want %d", len(got), err, n)
	}
	var envelope struct{ Message string }
	if err := json.Unmarshal([]byte(got[3].Body), &envelope); err != nil || envelope.Message != `{"n": 3}` {
		t.Errorf("envelope %s (%v), want the message n 3 in it", got[3].Body, err)
	}
	calls := c.Calls()
	if len(calls) != n+1 {
		t.Fatalf("%d calls, want %d", len(calls), n+1)
	}
	want := cloud.Call{Action: "Publish", Topic: topic, Message: "again", Group: "group", Deduplication: "d0", Attributes: map[string]string{"kind": "test"}}
	if got := calls[n]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("last call %+v, want %+v", got, want)
	}
}

func TestDataIsTheCloudEventsOwnByteForByte(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"specversion":"1.0","id":"1","data":{"b": 1e400,  "a": 2}}`: `{"b": 1e400,  "a": 2}`,
		`{"specversion":"1.0","data":null}`:                           `null`,
		`{"specversion":"1.0"}`:                                       "",
		`{"data": {}}`:                                                "",
		`no JSON`:                                                     "",
	} {
		if got := (cloud.Message{Body: body}).Data(); got != want {
			t.Errorf("%s: data %q, want %q", body, got, want)
		}
	}
}

func TestADeletedTopicTakesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	topic, err := c.CreateTopic(t.Context(), unique("deleted"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	var fault smithy.APIError
	if err := tryPublish(t.Context(), c, topic, "{}", ""); !errors.As(err, &fault) || fault.ErrorCode() != "NotFound" {
		t.Errorf("error %v, want NotFound", err)
	}
}

func TestMailsArriveWithSubjectAndRecipient(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	to := unique("arrives@example.com")
	greeting := unique("greeting")
	if err := c.CreateTemplate(t.Context(), greeting, "Hello {{name}}", "Welcome, {{name}}."); err != nil {
		t.Fatal(err)
	}
	for _, content := range []*sestypes.EmailContent{
		simple("Simple"),
		{Template: &sestypes.Template{TemplateName: &greeting, TemplateData: aws.String(`{"name": "Ana"}`)}},
	} {
		if err := send(t.Context(), c, to, content); err != nil {
			t.Fatal(err)
		}
	}
	if got := subjects(t, c, to); !slices.Equal(got, []string{"Simple", "Hello Ana"}) {
		t.Errorf("subjects %q, want Simple and Hello Ana", got)
	}
	if got := c.Calls()[0]; got.Action != "SendEmail" || got.Tags["tag"] != "value" || got.To[0] != to {
		t.Errorf("call %+v, want the recipient and the tag", got)
	}
}

func TestFaultsAreAnsweredAsTheServicesDo(t *testing.T) {
	t.Parallel()
	var fault atomic.Pointer[cloud.Fault]
	c := start(t, func(cloud.Call) *cloud.Fault { return fault.Load() })
	topic, err := c.CreateTopic(t.Context(), unique("faulty"))
	if err != nil {
		t.Fatal(err)
	}
	to := unique("faulty@example.com")
	queue, err := c.Subscribe(t.Context(), topic, unique("faulty"), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []cloud.Fault{
		{Status: http.StatusTooManyRequests, Code: "Throttled", Message: "slow down"},
		{Status: http.StatusInternalServerError, Code: "InternalError", Message: "lost", Late: true},
	} {
		fault.Store(&f)
		for kind, err := range map[string]error{
			"sns": tryPublish(t.Context(), c, topic, f.Code, ""),
			"ses": send(t.Context(), c, to, simple(f.Code)),
		} {
			var got smithy.APIError
			if !errors.As(err, &got) || got.ErrorCode() != f.Code || got.ErrorMessage() != f.Message {
				t.Errorf("%s: error %v, want %s with its message", kind, err, f.Code)
			}
		}
	}
	got, err := c.Receive(t.Context(), queue)
	if err != nil || len(got) != 1 || got[0].Body != "InternalError" {
		t.Errorf("received %v (%v), want what was published although its answer was lost", got, err)
	}
	if got := subjects(t, c, to); !slices.Equal(got, []string{"InternalError"}) {
		t.Errorf("mails %q, want the one whose answer was lost", got)
	}
}

// unique is a name of its own, since everything outlives the test in this process.
func unique(name string) string { return rand.Text()[:8] + "-" + name }

func start(t *testing.T, fault func(cloud.Call) *cloud.Fault) *cloud.Cloud {
	t.Helper()
	c, err := emulator().Front(fault)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// config is of clients that use the front, once for each call.
func config(c *cloud.Cloud) aws.Config {
	return aws.Config{
		Region: cloud.Region, BaseEndpoint: aws.String(c.URL), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	}
}

func publish(t *testing.T, c *cloud.Cloud, topic, message, deduplication string) {
	t.Helper()
	if err := tryPublish(t.Context(), c, topic, message, deduplication); err != nil {
		t.Fatal(err)
	}
}

func tryPublish(ctx context.Context, c *cloud.Cloud, topic, message, deduplication string) error {
	input := &sns.PublishInput{
		TopicArn: &topic, Message: &message,
		MessageAttributes: map[string]snstypes.MessageAttributeValue{
			"kind": {DataType: aws.String("String"), StringValue: aws.String("test")},
		},
	}
	if deduplication != "" {
		input.MessageGroupId, input.MessageDeduplicationId = aws.String("group"), &deduplication
	}
	_, err := sns.NewFromConfig(config(c)).Publish(ctx, input)
	return err
}

func simple(subject string) *sestypes.EmailContent {
	return &sestypes.EmailContent{Simple: &sestypes.Message{
		Subject: &sestypes.Content{Data: &subject},
		Body:    &sestypes.Body{Text: &sestypes.Content{Data: aws.String("text")}},
	}}
}

func send(ctx context.Context, c *cloud.Cloud, to string, content *sestypes.EmailContent) error {
	_, err := sesv2.NewFromConfig(config(c)).SendEmail(ctx, &sesv2.SendEmailInput{
		FromEmailAddress: aws.String("shop@example.com"), Destination: &sestypes.Destination{ToAddresses: []string{to}},
		Content: content, EmailTags: []sestypes.MessageTag{{Name: aws.String("tag"), Value: aws.String("value")}},
	})
	return err
}

// subjects are those of the mails to one address: the mailbox is shared by all tests of this process.
func subjects(t *testing.T, c *cloud.Cloud, to string) []string {
	t.Helper()
	mails, err := c.Mails(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range mails {
		if slices.Equal(m.Destination.To, []string{to}) {
			found = append(found, m.Subject)
		}
	}
	return found
}
