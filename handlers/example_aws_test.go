package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// exampleKeys stand for what config.LoadDefaultConfig finds.
func exampleKeys() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}, nil
	})
}

func ExampleNewSNS() {
	topic := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // in place of SNS
		fmt.Println(r.FormValue("MessageGroupId"), r.FormValue("Message"))
		io.WriteString(w, "<PublishResponse><PublishResult><MessageId>m-1</MessageId></PublishResult></PublishResponse>")
	}))
	defer topic.Close()

	handler, err := handlers.NewSNS(handlers.SNSConfig{
		TopicARN: "arn:aws:sns:eu-west-1:123456789012:orders.fifo",
		Envelope: handlers.Envelope{Format: handlers.EnvelopeRaw}, // else the message is a CloudEvent
		Client:   sns.New(sns.Options{BaseEndpoint: &topic.URL, Credentials: exampleKeys()}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := outbox.Registry{"order.placed": {Handler: handler, Timeout: 5 * time.Second, Destination: "orders"}}

	receipt, err := registry["order.placed"].Handler.Handle(context.Background(), outbox.Event{
		ID: "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47", Type: "order.placed",
		AggregateType: "order", AggregateID: "0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10",
		Payload: json.RawMessage(`{"total": 12.50}`),
	})
	fmt.Println(receipt, err)
	// Output:
	// order:0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10 {"total": 12.50}
	// map[sns:map[messageId:m-1]] <nil>
}

func ExampleNewSES() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // in place of SES
		var mail sesv2.SendEmailInput
		if err := json.NewDecoder(r.Body).Decode(&mail); err != nil {
			fmt.Println(err)
		}
		fmt.Println(*mail.FromEmailAddress, mail.Destination.ToAddresses, *mail.Content.Simple.Subject.Data)
		io.WriteString(w, `{"MessageId": "m-1"}`)
	}))
	defer service.Close()

	handler, err := handlers.NewSES(handlers.SESConfig{
		From: "orders@shop.example",
		Client: sesv2.New(sesv2.Options{
			Region: "eu-west-1", BaseEndpoint: &service.URL, Credentials: exampleKeys(),
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := outbox.Registry{"order.placed.mail": {Handler: handler, Destination: "mail"}}

	receipt, err := registry["order.placed.mail"].Handler.Handle(context.Background(), outbox.Event{
		ID: "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47", Type: "order.placed.mail",
		Payload: json.RawMessage(`{"to": ["ann@customer.example"], "subject": "Your order", "text": "Thank you."}`),
	})
	fmt.Println(receipt, err)

	_, err = registry["order.placed.mail"].Handler.Handle(context.Background(), outbox.Event{
		Payload: json.RawMessage(`{"to": ["nobody"], "text": "Thank you."}`),
	})
	fmt.Println(err)
	// Output:
	// orders@shop.example [ann@customer.example] Your order
	// map[ses:map[messageId:m-1]] <nil>
	// ses_payload_invalid: to[0]: not an address like ann@example.com or Ann <ann@example.com>; subject: missing; takes a text, or name a template instead
}
