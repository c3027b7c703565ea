package webhook_test

import (
	"bytes"
	"net/http"
	"net/url"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/openlup/outbox-dispatch/handlers"
)

// The SDK is that of the CloudEvents project; receivers read with it and know nothing of this one.
func TestTheOfficialSDKReadsOurCloudEvents(t *testing.T) {
	t.Parallel()
	sent := event()
	for _, format := range []string{"", handlers.EnvelopeCloudEvents, handlers.EnvelopeBinary} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			header, body := posted(t, handlers.HTTPConfig{
				Envelope: handlers.Envelope{Format: format, Source: "https://shop.example.com/outbox", DataSchema: "https://schemas.example.com/{type}.json"},
			})
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header = header
			got, err := cloudevents.NewEventFromHTTPRequest(request)
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("the SDK says %v", err)
			}
			for name, pair := range map[string][2]string{
				"specversion":     {got.SpecVersion(), "1.0"},
				"id":              {got.ID(), sent.ID},
				"source":          {got.Source(), "https://shop.example.com/outbox"},
				"type":            {got.Type(), sent.Type},
				"subject":         {got.Subject(), "order/" + sent.AggregateID},
				"datacontenttype": {got.DataContentType(), "application/json"},
				"dataschema":      {got.DataSchema(), "https://schemas.example.com/order.placed.json"},
				"data":            {string(got.Data()), string(sent.Payload)},
				"partitionkey":    {extension(got, "partitionkey"), sent.AggregateID},
				"sequence":        {extension(got, "sequence"), "0000000000000000042"},
				"idempotencykey":  {extension(got, "idempotencykey"), sent.IdempotencyKey},
				"traceparent":     {extension(got, "traceparent"), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s: %q, want %q", name, pair[0], pair[1])
				}
			}
			if !got.Time().Equal(sent.CreatedAt) {
				t.Errorf("time %v, want %v", got.Time(), sent.CreatedAt)
			}
		})
	}
}

// extension decodes what the HTTP binding encodes in headers, which the SDK leaves to its users.
func extension(event *cloudevents.Event, name string) string {
	text, _ := event.Extensions()[name].(string)
	decoded, err := url.PathUnescape(text)
	if err != nil {
		return text
	}
	return decoded
}
