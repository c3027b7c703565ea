package handlers_test

import (
	"context"
	"crypto/md5"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// exampleNotice is what a pass makes of a discarded event; its payload is no part of it.
func exampleNotice() outbox.Notice {
	return outbox.Notice{
		EventID: "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47", Type: "order.placed",
		Attempts: 8, Reason: "http_404: not found", DiscardReason: "max_attempts",
	}
}

func ExampleNewSQSNotifier() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // in place of SQS
		var call struct {
			Entries []struct{ MessageBody string }
		}
		var notice struct{ Type, Reason string }
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			fmt.Println(err)
		}
		if err := json.Unmarshal([]byte(call.Entries[0].MessageBody), &notice); err != nil {
			fmt.Println(err)
		}
		fmt.Println("queued:", notice.Type, notice.Reason)
		fmt.Fprintf(w, `{"Successful": [{"Id": "0", "MessageId": "m-1", "MD5OfMessageBody": "%x"}]}`, md5.Sum([]byte(call.Entries[0].MessageBody)))
	}))
	defer service.Close()

	client := sqs.New(sqs.Options{Region: "eu-west-1", BaseEndpoint: &service.URL, Credentials: exampleKeys()})
	notifier, err := handlers.NewSQSNotifier(client, "https://sqs.eu-west-1.amazonaws.com/123456789012/discards")
	if err != nil {
		fmt.Println(err)
		return
	}
	// As an outbox.Route's OnDiscard a pass calls it.
	fmt.Println(notifier.Notify(context.Background(), []outbox.Notice{exampleNotice()}))

	_, err = handlers.NewSQSNotifier(client, "discards")
	fmt.Println(err)
	// Output:
	// queued: order.placed http_404: not found
	// [<nil>]
	// is no queue, takes a URL like https://sqs.eu-west-1.amazonaws.com/123456789012/discards
}

func ExampleNewEventBridgeNotifier() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // in place of EventBridge
		var call struct {
			Entries []struct{ EventBusName, Source, DetailType string }
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			fmt.Println(err)
		}
		fmt.Println(call.Entries)
		fmt.Fprint(w, `{"FailedEntryCount": 0, "Entries": [{"EventId": "e-1"}]}`)
	}))
	defer service.Close()

	client := eventbridge.New(eventbridge.Options{Region: "eu-west-1", BaseEndpoint: &service.URL, Credentials: exampleKeys()})
	notifier, err := handlers.NewEventBridgeNotifier(client, "discards")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(notifier.Notify(context.Background(), []outbox.Notice{exampleNotice()}))
	// Output:
	// [{discards outbox-dispatch Outbox Event Discarded}]
	// [<nil>]
}
