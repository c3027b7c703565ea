package routes_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/openlup/outbox-dispatch/internal/routes"
	"github.com/openlup/outbox-dispatch/outbox"
)

func TestMailDestinationsShareTheAccountsRate(t *testing.T) {
	t.Parallel()
	file, err := routes.Parse([]byte(`
version: 1
destinations:
  orders: {ses: {from: orders@a.test}}
  news:   {ses: {from: news@a.test, from_allowed: ["@b.test"]}, rate: 0.5, concurrency: 2}
  alerts: {ses: {from: alerts@a.test}, rate: 7, discard_on: [ses_throttled]}
  crm:    {http: {url: "https://crm.test"}, rate: 7}
routes:
  order.mailed: {to: orders}
  news.mailed: {to: news}
  alert.mailed: {to: alerts}
  order.placed: {to: crm}
`), "routes.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := routes.Registry(file, routes.Options{AWS: aws.Config{Region: "eu-west-1"}})
	if err != nil {
		t.Fatal(err)
	}
	limit := registry["order.mailed"].Limit
	if limit == nil || registry["news.mailed"].Limit != limit || registry["alert.mailed"].Limit != limit {
		t.Error("mail destinations have limits of their own, want one for all")
	}
	if got := limit.PerSecond(); got != 0.5 {
		t.Errorf("before the account's rate is known it is %v, want the lowest that a destination has", got)
	}
	if got := registry["order.placed"].Limit; got == limit || got.PerSecond() != 7 {
		t.Errorf("the webhook's limit is %v, want its own", got)
	}
	for _, name := range []string{"order.mailed", "alert.mailed"} {
		if _, batches := registry[name].Handler.(outbox.BatchHandler); !batches {
			t.Errorf("the handler of %s takes no batches", name)
		}
		if _, weighs := registry[name].Handler.(outbox.Weigher); !weighs {
			t.Errorf("the handler of %s doesn't count recipients", name)
		}
	}
}
