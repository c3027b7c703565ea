package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const (
	testARN    = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:routes-AbCdEf"
	testTopic  = "arn:aws:sns:eu-west-1:123456789012:orders"
	testRegion = "eu-central-1"
)

// fakeAWS speaks as much of three services' wire formats as deliveries need; the SDK's own clients call it.
type fakeAWS struct {
	url string

	mu      sync.Mutex
	secret  string            // "" answers an error
	named   map[string]string // other secrets, by their ARN
	reads   int               // of the secret
	regions []string          // that requests were signed for, in order of their arrival
	topics  []url.Values
	mails   []map[string]any
	other   []string // requests of no known service
}

func startAWS(t *testing.T, secret string) *fakeAWS {
	t.Helper()
	f := &fakeAWS{secret: secret}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

func (f *fakeAWS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	if scope := strings.Split(r.Header.Get("Authorization"), "/"); len(scope) > 2 {
		f.regions = append(f.regions, scope[2])
	}
	form, _ := url.ParseQuery(string(body))
	switch {
	case r.Header.Get("X-Amz-Target") == "secretsmanager.GetSecretValue":
		f.reads++
		secret := f.secret
		var asked struct{ SecretId string }
		if _ = json.Unmarshal(body, &asked); f.named != nil && asked.SecretId != testARN {
			secret = f.named[asked.SecretId]
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if secret == "" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"ResourceNotFoundException","message":"Secrets Manager can't find the specified secret."}`)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": secret})
	case form.Get("Action") == "Publish":
		f.topics = append(f.topics, form)
		_, _ = io.WriteString(w, `<PublishResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishResult><MessageId>m-1</MessageId></PublishResult></PublishResponse>`)
	case r.URL.Path == "/v2/email/outbound-emails":
		var mail map[string]any
		_ = json.Unmarshal(body, &mail)
		f.mails = append(f.mails, mail)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"MessageId":"m-2"}`)
	case r.URL.Path == "/v2/email/account":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"SendQuota":{"Max24HourSend":50000,"MaxSendRate":14,"SentLast24Hours":0}}`)
	default:
		f.other = append(f.other, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}
}

// load is a loadAWS that leads everything to the fake; it keeps the HTTP client that it is given.
func (f *fakeAWS) load(_ context.Context, options ...func(*awsconfig.LoadOptions) error) (aws.Config, error) {
	var given awsconfig.LoadOptions
	for _, option := range options {
		if err := option(&given); err != nil {
			return aws.Config{}, err
		}
	}
	return aws.Config{
		Region: testRegion, BaseEndpoint: &f.url, HTTPClient: given.HTTPClient,
		Credentials: credentials.NewStaticCredentialsProvider("AKIATEST", "not-a-secret", ""),
	}, nil
}

// secretReads counts how often the secret was asked for.
func (f *fakeAWS) secretReads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (f *fakeAWS) hold(secret string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secret = secret
}

const cloudRoutes = `
version: 1
destinations:
  hook: {http: {url: "${HOOK_URL}", allow_http: true, allow_ports: [1-65535], allow_private: [127.0.0.0/8]}}
  topic: {sns: {topic_arn: "${TOPIC_ARN}"}}
  mail: {ses: {from: "Orders <orders@example.com>", configuration_set: orders, reply_to: [help@example.com]}}
routes:
  order.placed: {to: hook}
  order.paid: {to: topic}
  order.mailed: {to: mail}
`

const insertEach = `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
	select 'order', '00000000-0000-4000-8000-000000000001', event_type, o::text, payload from (values
		(1, 'order.placed', '{"total": 12.50}'::jsonb),
		(2, 'order.paid', '{"total": 12.50}'),
		(3, 'order.mailed', '%s'),
		(4, 'order.mailed', '%s')) as e (o, event_type, payload)
	order by o`

// documentedMails are the two payloads that docs/routes.md shows: a mail of its own words, and a template.
func documentedMails(t *testing.T) (words, template string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```json\n")
	if len(blocks) < 3 {
		t.Fatalf("docs/routes.md has %d payloads, want two at least", len(blocks)-1)
	}
	words, _, _ = strings.Cut(blocks[1], "```")
	template, _, _ = strings.Cut(blocks[2], "```")
	return words, template
}

// The whole way but for Lambda and AWS: the environment alone leads the SDK's own configuration to local endpoints, as
// with an emulator; the routes are in a secret.
func TestEachKindOfDestinationIsReached(t *testing.T) {
	fake := startAWS(t, cloudRoutes)
	t.Setenv("AWS_REGION", testRegion)
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_SESSION_TOKEN": "",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_SNS": fake.url, "AWS_ENDPOINT_URL_SESV2": fake.url, "AWS_ENDPOINT_URL_SECRETS_MANAGER": fake.url,
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": t.TempDir() + "/none", "AWS_SHARED_CREDENTIALS_FILE": t.TempDir() + "/none",
	} {
		t.Setenv(name, value)
	}
	db := postgrestest.URL(t)
	words, template := documentedMails(t)
	execute(t, db, fmt.Sprintf(insertEach, words, template))
	hook, bodies := receiver(t)
	var l logs
	a := newApp(t.Context(), environment(map[string]string{
		"DATABASE_URL": db, "HOOK_URL": hook, "TOPIC_ARN": testTopic, "OUTBOX_ROUTES": "", "OUTBOX_ROUTES_SECRET_ARN": testARN,
	}), awsconfig.LoadDefaultConfig, l.logger())
	if a.fault != nil {
		t.Fatal(a.fault)
	}
	t.Cleanup(a.pool.Close)

	result, err := invoke(t, a, `{}`)
	if err != nil || result.Processed != 4 || !result.OK {
		t.Fatalf("got %+v, %v; want 4 processed", result, err)
	}
	if got := bodies(); len(got) != 1 || !strings.HasSuffix(got[0], `,"data":{"total": 12.50}}`) {
		t.Errorf("webhook: got %v", got)
	}
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if len(fake.topics) != 1 || fake.topics[0].Get("TopicArn") != testTopic ||
		!strings.HasSuffix(fake.topics[0].Get("Message"), `,"data":{"total": 12.50}}`) {
		t.Errorf("topic: got %v", fake.topics)
	}
	if len(fake.mails) != 2 {
		t.Fatalf("mails: got %v, want two", fake.mails)
	}
	for i, wants := range [][]string{{"Your order 17", "<p>Thank you.</p>"}, {"order-confirmed", "17"}} {
		mail := fmt.Sprint(fake.mails[i])
		for _, want := range append(wants, "ann@example.com", "orders@example.com", "help@example.com", "ConfigurationSetName:orders") {
			if !strings.Contains(mail, want) {
				t.Errorf("mail %d: got %s, want it to contain %s", i, mail, want)
			}
		}
	}
	// The secret's own region, the topic's own region, and the function's for the account's rate and the mails.
	if want := []string{"eu-west-1", "eu-west-1", testRegion, testRegion, testRegion}; !slices.Equal(fake.regions, want) || fake.other != nil {
		t.Errorf("got requests to %v and %v, want to %v", fake.regions, fake.other, want)
	}
}

func TestAWSIsNotNeededForWebhooks(t *testing.T) {
	t.Parallel()
	if _, err := load(t, nil); err != nil { // noAWS would be the fault
		t.Error(err)
	}
	_, err := load(t, map[string]string{"OUTBOX_ROUTES": cloudRoutes, "TOPIC_ARN": testTopic})
	if want := "OUTBOX_ROUTES: destination mail: load the AWS configuration: "; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestMissingRegionIsAFaultAndNobodyIsAskedForIt(t *testing.T) {
	metadata := startAWS(t, "")
	for name, value := range map[string]string{
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": t.TempDir() + "/none",
		"AWS_DEFAULTS_MODE": "auto", "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.url, "AWS_EXECUTION_ENV": "",
	} {
		t.Setenv(name, value)
	}
	changes := map[string]string{"OUTBOX_ROUTES": cloudRoutes, "TOPIC_ARN": testTopic}
	_, err := loadConfig(t.Context(), environment(changes), awsconfig.LoadDefaultConfig)
	want := "configuration: OUTBOX_ROUTES: destination mail: AWS_REGION: not set, takes a region like eu-central-1"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	t.Setenv("AWS_REGION", testRegion)
	if _, err := loadConfig(t.Context(), environment(changes), awsconfig.LoadDefaultConfig); err != nil {
		t.Error(err)
	}
	metadata.mu.Lock()
	defer metadata.mu.Unlock()
	if len(metadata.other) > 0 {
		t.Errorf("the metadata service was asked: %v", metadata.other)
	}
}

func TestConnectionsToAWSAreKeptForEveryDelivery(t *testing.T) {
	t.Parallel()
	transport := httpClient(256).GetTransport()
	if transport.MaxIdleConnsPerHost != 256 || transport.MaxIdleConns != 0 || transport.ResponseHeaderTimeout != 0 {
		t.Errorf("got %d connections per host, %d in all, an answer within %v",
			transport.MaxIdleConnsPerHost, transport.MaxIdleConns, transport.ResponseHeaderTimeout)
	}
}

// startWithSecret is an app whose routes are in the fake's secret.
func startWithSecret(t *testing.T, l *logs, fake *fakeAWS) *app {
	t.Helper()
	a := newApp(t.Context(), environment(map[string]string{
		"DATABASE_URL": postgrestest.URL(t), "OUTBOX_ROUTES": "", "OUTBOX_ROUTES_SECRET_ARN": testARN,
	}), fake.load, l.logger())
	if a.fault != nil {
		t.Fatal(a.fault)
	}
	t.Cleanup(a.pool.Close)
	return a
}

func TestSecretIsReadByTheFirstInvocationAndTriedAgain(t *testing.T) {
	t.Parallel()
	fake := startAWS(t, "")
	a := startWithSecret(t, &logs{}, fake)
	if fake.secretReads() != 0 {
		t.Error("the secret was read before an invocation")
	}
	for _, test := range []struct{ secret, want string }{
		{"", "configuration: OUTBOX_ROUTES_SECRET_ARN: read the secret: operation error Secrets Manager: GetSecretValue"},
		{"", "ResourceNotFoundException"},
		{"hunter2", "configuration: OUTBOX_ROUTES_SECRET_ARN:1: is text, takes a mapping"},
		{"version: 1\nx: hunter2\n", `OUTBOX_ROUTES_SECRET_ARN:2: unknown key "x"`},
		{strings.ReplaceAll(testRoutes, "timeout: 10s", "timeout: hunter2"), "OUTBOX_ROUTES_SECRET_ARN:5: destinations.hook.http.timeout: is no duration"},
		{strings.ReplaceAll(testRoutes, "timeout: 10s", "timeout: 298s"), "takes more than the timeout of destination hook (4m58s)"},
	} {
		fake.hold(test.secret)
		_, err := invoke(t, a, `{}`)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %s", test.secret, err, test.want)
		}
		if got := errorType(t, a, `{}`); got != "ConfigError" {
			t.Errorf("%s: got errorType %s, want ConfigError", test.secret, got)
		}
	}
	fake.hold(testRoutes)
	before := fake.secretReads()
	for range 3 {
		if result, err := invoke(t, a, `{"eventTypes":["order.paid"]}`); err != nil || !result.OK {
			t.Errorf("mended: got %+v, %v", result, err)
		}
	}
	if got := fake.secretReads() - before; got != 1 {
		t.Errorf("read %d times for three invocations, want once", got)
	}
}

func TestSecretIsReadAgainWhenItIsOld(t *testing.T) {
	t.Parallel()
	fake := startAWS(t, testRoutes)
	var l logs
	a := startWithSecret(t, &l, fake)
	grow := func() { ageSecrets(a) }
	for _, test := range []struct {
		name, secret, payload, want string
		reads                       int
	}{
		{"first", testRoutes, `{"eventTypes":["order.paid"]}`, "<nil>", 1},
		{"same", testRoutes, `{"eventTypes":["order.paid"]}`, "<nil>", 2},
		{"changed", strings.ReplaceAll(testRoutes, "order.paid", "order.shipped"), `{"eventTypes":["order.shipped"]}`, "<nil>", 3},
		{"old type is gone", strings.ReplaceAll(testRoutes, "order.paid", "order.shipped"), `{"eventTypes":["order.paid"]}`, "no route for", 4},
		{"unreadable, the last ones stay", "", `{"eventTypes":["order.shipped"]}`, "<nil>", 5},
		{"faulty", "version: 2", `{}`, "OUTBOX_ROUTES_SECRET_ARN:1: version: takes 1", 6},
		{"unreadable after a fault", "", `{}`, "read the secret", 7},
		{"mended", testRoutes, `{"eventTypes":["order.paid"]}`, "<nil>", 8},
	} {
		fake.hold(test.secret)
		grow()
		_, err := invoke(t, a, test.payload)
		if got := fmt.Sprint(err); !strings.Contains(got, test.want) || fake.secretReads() != test.reads {
			t.Errorf("%s: got %s after %d reads, want %s after %d", test.name, got, fake.secretReads(), test.want, test.reads)
		}
	}
	if got := strings.Count(l.text.String(), "[outbox-dispatch] secret_unread"); got != 1 {
		t.Errorf("got %d warnings of an unread secret, want one", got)
	}
}

func TestSilentSecretsManagerIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	silent := &fakeAWS{url: "http://" + silentServer(t)}
	a := startWithSecret(t, &logs{}, silent)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // two of them are kept for the answer
	defer cancel()
	_, err := a.Invoke(ctx, nil)
	if err == nil || !strings.Contains(err.Error(), "OUTBOX_ROUTES_SECRET_ARN: read the secret: no answer from Secrets Manager in time") {
		t.Errorf("got %v", err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Error("the answer came after the deadline")
	}
}

func TestColdStartTellsTheSchemaVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct {
		start    string
		mismatch int
	}{
		"":          {`"schemaVersion":"unmanaged"`, 0},
		"unmanaged": {`"schemaVersion":"unmanaged"`, 0},
		"999":       {`"schemaVersion":"999"`, 1},
	} {
		var l logs
		a := start(t, &l, map[string]string{"OUTBOX_SCHEMA_VERSION": version})
		if a.fault != nil {
			t.Fatal(a.fault)
		}
		text := l.text.String()
		if !strings.Contains(text, want.start) || strings.Count(text, "[outbox-dispatch] schema_version_mismatch") != want.mismatch {
			t.Errorf("%q: got log\n%s\nwant %s and %d mismatches", version, text, want.start, want.mismatch)
		}
	}
}
