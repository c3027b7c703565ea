package routes_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/internal/routes"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

func TestRegistryBuildsOneHandlerPerDestination(t *testing.T) {
	t.Parallel()
	file, err := routes.Parse([]byte(`
version: 1
destinations:
  crm: {http: {url: "${CRM_URL}", timeout: 3s}}
  erp: {http: {url: "https://erp.test"}}
routes:
  order.placed: {to: crm}
  order.paid: {to: crm}
  invoice.sent: {to: erp}
`), "routes.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := routes.Registry(file, routes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(registry) != 3 {
		t.Errorf("%d routes, want 3", len(registry))
	}
	placed, paid, invoice := registry["order.placed"], registry["order.paid"], registry["invoice.sent"]
	if placed.Handler != paid.Handler || placed.Handler == invoice.Handler {
		t.Error("handlers are not one per destination")
	}
	if placed.Destination != "crm" || placed.Timeout != 3*time.Second {
		t.Errorf("order.placed goes to %s in %v, want crm in 3s", placed.Destination, placed.Timeout)
	}
	if invoice.Destination != "erp" || invoice.Timeout != 10*time.Second {
		t.Errorf("invoice.sent goes to %s in %v, want erp in 10s", invoice.Destination, invoice.Timeout)
	}
}

func TestRegistryTakesTheOptions(t *testing.T) {
	t.Parallel()
	file, err := routes.Parse([]byte(`
version: 1
source: /shop
destinations:
  crm:
    http: {url: "https://crm.test"}
    concurrency: 4
    rate: 0.5
    circuit: partner
    max_age: 1d12h
    discard_on: [404]
  erp: {http: {url: "https://erp.test"}, circuit: partner, rate: 7, source: /erp}
routes:
  order.placed: {to: crm}
  order.paid: {to: crm, max_age: 15m, discard_on: []}
  invoice.sent: {to: erp, snooze_on: [http_401]}
`), "routes.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	if crm, erp := file.Destinations["crm"].Envelope, file.Destinations["erp"].Envelope; crm.Source != "/shop" || erp.Source != "/erp" {
		t.Errorf("sources %q and %q, want the file's and the destination's", crm.Source, erp.Source)
	}
	if got := file.Routes["invoice.sent"].Outcomes.SnoozeOn; len(got) != 1 || got[0] != "http_401" {
		t.Errorf("invoice.sent snoozes on %v", got)
	}
	registry, err := routes.Registry(file, routes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	placed, paid, invoice := registry["order.placed"], registry["order.paid"], registry["invoice.sent"]
	if placed.Destination != "partner" || invoice.Destination != "partner" || placed.Gate != "crm" || invoice.Gate != "erp" {
		t.Errorf("circuits %s and %s, gates %s and %s, want one circuit and two gates",
			placed.Destination, invoice.Destination, placed.Gate, invoice.Gate)
	}
	if placed.Concurrency != 4 || paid.Concurrency != 4 || placed.Limit != paid.Limit || placed.Limit.PerSecond() != 0.5 {
		t.Errorf("routes of crm don't share its limits: %+v and %+v", placed, paid)
	}
	if placed.MaxAge != 36*time.Hour || paid.MaxAge != 15*time.Minute || invoice.MaxAge != 0 {
		t.Errorf("ages %v, %v and %v, want 36 h, 15 min and none", placed.MaxAge, paid.MaxAge, invoice.MaxAge)
	}
	if _, plain := paid.Handler.(*handlers.HTTP); !plain {
		t.Errorf("order.paid has a handler %T, want the list emptied", paid.Handler)
	}
	if _, plain := placed.Handler.(*handlers.HTTP); plain {
		t.Error("order.placed does not discard on 404")
	}
	if _, err := outbox.NewWorker(outbox.Config{Store: &outboxtest.Memory{}, Registry: registry}); err != nil {
		t.Errorf("no worker takes the registry: %v", err)
	}
}

func TestRegistryGivesEachOfSeveralTopicsACircuit(t *testing.T) {
	t.Parallel()
	file, err := routes.Parse([]byte(`
version: 1
destinations:
  orders:
    sns:
      topic_arn: "arn:aws:sns:eu-west-1:123456789012:orders-{payload.tenant}"
      topics: ["arn:aws:sns:eu-west-1:123456789012:orders-acme"]
      max_message_bytes: topic
  bills: {sns: {topic_arn: "arn:aws:sns:eu-west-1:123456789012:bills"}}
routes:
  order.placed: {to: orders}
  order.billed: {to: bills}
`), "routes.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	if config := file.Destinations["orders"].SNS; !config.ReadMaximum || len(config.Topics) != 1 {
		t.Errorf("config %+v, want one topic, which is asked for its maximum", config)
	}
	registry, err := routes.Registry(file, routes.Options{AWS: aws.Config{Region: "eu-west-1"}})
	if err != nil {
		t.Fatal(err)
	}
	if registry["order.billed"].Part != nil {
		t.Error("one topic has parts, want the destination's circuit")
	}
	part := registry["order.placed"].Part
	if part == nil {
		t.Fatal("several topics have no parts")
	}
	if got := part(outbox.Event{Payload: []byte(`{"tenant": "acme"}`)}); got != "orders-acme" {
		t.Errorf("part %q, want orders-acme", got)
	}
}

func TestRegistryGivesTopicsTheirEnvelope(t *testing.T) {
	t.Parallel()
	file, err := routes.Parse([]byte(`
version: 1
source: /shop
destinations:
  raw: {sns: {topic_arn: "arn:aws:sns:eu-west-1:123456789012:orders"}, envelope: raw}
  event: {sns: {topic_arn: "arn:aws:sns:eu-west-1:123456789012:orders"}}
routes:
  order.placed: {to: raw}
  order.paid: {to: event}
`), "routes.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	var message string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		message = r.FormValue("Message")
		io.WriteString(w, "<PublishResponse><PublishResult><MessageId>m-1</MessageId></PublishResult></PublishResponse>")
	}))
	t.Cleanup(server.Close)
	registry, err := routes.Registry(file, routes.Options{AWS: aws.Config{
		Region: "eu-west-1", BaseEndpoint: &server.URL,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}, nil
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for eventType, start := range map[string]string{"order.placed": `{"total"`, "order.paid": `{"specversion":"1.0","id":"1","source":"/shop"`} {
		event := outbox.Event{ID: "1", Type: eventType, AggregateType: "order", AggregateID: "2", Payload: []byte(`{"total": 1}`)}
		if _, err := registry[eventType].Handler.Handle(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(message, start) {
			t.Errorf("%s: message %s, want it to start with %s", eventType, message, start)
		}
	}
}

func TestRegistryReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := routes.Registry(routes.File{
		Destinations: map[string]routes.Destination{
			"none": {},
			"bad":  {HTTP: &handlers.HTTPConfig{URL: "https://hunter2@a.test"}},
			"sns":  {SNS: &handlers.SNSConfig{TopicARN: "arn:aws:sns:eu-west-1:123456789012:orders"}},
			"ses":  {SES: &handlers.SESConfig{From: "orders@a.test"}},
		},
		Routes: map[string]routes.Route{"a": {To: "bad"}, "b": {To: "elsewhere"}},
	}, routes.Options{})
	want := `destination bad: url: has user information, takes none
destination none: has no kind, takes one of http, endpoints, sns, ses
destination ses: takes an AWS configuration with a region, has none
destination sns: takes an AWS configuration with a region, has none
route "b": no destination "elsewhere"`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func ExampleParse() {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println("received", string(body))
	}))
	defer receiver.Close()
	lookup := func(name string) (string, bool) { return receiver.URL, name == "CRM_URL" }

	file, err := routes.Parse([]byte(`
version: 1
destinations:
  crm: {http: {url: "${CRM_URL}", allow_http: true, allow_ports: [1024-65535], allow_private: [127.0.0.0/8]}}
routes:
  order.placed: {to: crm}
`), "routes.yaml", lookup)
	if err != nil {
		fmt.Println(err)
		return
	}
	registry, err := routes.Registry(file, routes.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	route := registry["order.placed"]
	_, err = route.Handler.Handle(context.Background(), outbox.Event{ID: "1", Type: "order.placed", Payload: []byte(`{"total": 12.50}`)})
	fmt.Println(route.Destination, route.Timeout, err)

	_, err = routes.Parse([]byte("version: 1\nroute: {}\n"), "routes.yaml", lookup)
	fmt.Println(err)
	// Output:
	// received {"specversion":"1.0","id":"1","source":"/outbox","type":"order.placed","sequence":"0000000000000000000","datacontenttype":"application/json","data":{"total": 12.50}}
	// crm 10s <nil>
	// routes.yaml:1: destinations are missing, takes at least one
	// routes.yaml:1: routes are missing, takes at least one
	// routes.yaml:2: unknown key "route", did you mean routes?, takes version, source, known, destinations, routes
}

// FuzzParse looks for panics, and for values of the environment in faults.
func FuzzParse(f *testing.F) {
	for _, test := range fileCases() {
		f.Add(test.file)
	}
	f.Fuzz(func(t *testing.T, content string) {
		file, err := routes.Parse([]byte(content), "f", environment)
		if err != nil {
			if strings.Contains(err.Error(), "hunter2") && !strings.Contains(content, "hunter2") {
				t.Errorf("a fault shows a value of the environment: %v", err)
			}
			return
		}
		options := routes.Options{AWS: aws.Config{Region: "eu-west-1"}, Endpoints: noEndpoints{}, Secret: noSecret}
		if _, err := routes.Registry(file, options); err != nil {
			t.Errorf("a file that was accepted gives no registry: %v", err)
		}
	})
}

type noEndpoints struct{}

func (noEndpoints) Endpoints(context.Context, []string) (map[string][]handlers.Endpoint, error) {
	return map[string][]handlers.Endpoint{}, nil
}

func (noEndpoints) Disable(context.Context, handlers.Endpoint, string) error { return nil }

func noSecret(context.Context, string) (string, error) { return "", nil }

func TestRegistryOfEndpointsHasPartsAndNeedsASource(t *testing.T) {
	t.Parallel()
	file, err := routes.Parse([]byte(`
version: 1
destinations:
  customers: {endpoints: {by: aggregate_id, timeout: 3s}, circuit: hooks}
  crm: {http: {url: "https://crm.test"}}
routes:
  order.placed: {to: customers}
  order.paid: {to: customers, discard_on: [404]}
  order.shipped: {to: crm}
`), "routes.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	if !file.UsesEndpoints() {
		t.Error("the file uses no endpoints, want them used")
	}
	if _, err := routes.Registry(file, routes.Options{}); err == nil || !strings.Contains(err.Error(), "destination customers: endpoints: nobody looks them up") {
		t.Errorf("without a source: %v", err)
	}
	registry, err := routes.Registry(file, routes.Options{Endpoints: noEndpoints{}, Secret: noSecret})
	if err != nil {
		t.Fatal(err)
	}
	event := outbox.Event{AggregateID: "a"}
	for _, eventType := range []string{"order.placed", "order.paid"} {
		route := registry[eventType]
		if route.Prepare == nil || route.Part == nil || route.Part(event) != "a" || route.Destination != "hooks" || route.Timeout != 3*time.Second {
			t.Errorf("%s: %+v, want parts of the circuit hooks", eventType, route)
		}
	}
	if _, overridden := registry["order.paid"].Handler.(*handlers.Endpoints); overridden {
		t.Error("order.paid does not discard on 404")
	}
	if registry["order.shipped"].Part != nil {
		t.Error("a single webhook has parts")
	}
}

func TestRegistryTellsEachPlaceOfDiscardsThroughOneNotifier(t *testing.T) {
	t.Parallel()
	file, err := routes.Parse([]byte(`
version: 1
destinations:
  crm: {http: {url: "https://crm.test"}, on_discard: {eventbridge: shop}}
  erp: {http: {url: "https://erp.test"}}
routes:
  order.placed: {to: crm}
  order.paid: {to: crm, on_discard: {sqs: "https://sqs.eu-west-1.amazonaws.com/123456789012/paid"}}
  order.sent: {to: erp, on_discard: {eventbridge: shop}}
  order.lost: {to: erp}
`), "routes.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	if file.FirstOnAWS() != "crm" {
		t.Errorf("the first on AWS is %q, want crm", file.FirstOnAWS())
	}
	if _, err := routes.Registry(file, routes.Options{}); err == nil || !strings.Contains(err.Error(), `route "order.paid": on_discard: takes an AWS configuration`) {
		t.Errorf("without AWS: %v", err)
	}
	registry, err := routes.Registry(file, routes.Options{AWS: aws.Config{Region: "eu-west-1"}})
	if err != nil {
		t.Fatal(err)
	}
	placed, paid, sent, lost := registry["order.placed"], registry["order.paid"], registry["order.sent"], registry["order.lost"]
	if _, isBus := placed.OnDiscard.(*handlers.EventBridgeNotifier); !isBus || placed.OnDiscard != sent.OnDiscard {
		t.Errorf("order.placed tells %T, want the bus that order.sent tells", placed.OnDiscard)
	}
	if _, isQueue := paid.OnDiscard.(*handlers.SQSNotifier); !isQueue || lost.OnDiscard != nil {
		t.Errorf("order.paid tells %T and order.lost %T, want a queue and nobody", paid.OnDiscard, lost.OnDiscard)
	}
	if _, err := outbox.NewWorker(outbox.Config{Store: &outboxtest.Memory{}, Registry: registry}); err != nil {
		t.Errorf("no worker takes the registry: %v", err)
	}
}
