package cloud_test

import (
	"bytes"
	"fmt"
	"io"
	"net/mail"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

// The handler's mails in every form, through an emulator that knows nothing of the handler.
func TestTheHandlersMailsArriveInEveryForm(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	template := unique("greeting")
	if err := c.CreateTemplate(t.Context(), template, "Hello {{name}}", "Welcome, {{name}}."); err != nil {
		t.Fatal(err)
	}
	client := sesv2.NewFromConfig(config(c))
	rate := handlers.NewSESRate(client, 1000)
	handler, err := handlers.NewSES(handlers.SESConfig{From: "shop@example.com", Client: client, Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	to := unique("forms@example.com")
	event := func(i int, rest string) outbox.Event {
		return outbox.Event{ID: fmt.Sprint("event-", i), Type: "mail", Payload: fmt.Appendf(nil, `{"to": [%q], %s}`, to, rest)}
	}
	const file = `"attachments": [{"filename": "é.txt", "content": "aGVsbG8="}]`
	events := []outbox.Event{
		event(0, `"subject": "Simple", "text": "text", "html": "<p>", "headers": {"X-A": "b"}, "list_unsubscribe": {"url": "https://example.com/u"}`),
		event(1, `"bcc": ["secret@example.com"], "subject": "Raw é", "text": "text", `+file),
		event(2, `"template": "`+template+`", "data": {"name": "Ana"}`),
		event(3, `"template": "`+template+`", "data": {"name": "Bob"}`),
		event(4, `"template": "nowhere", "data": {"name": "Eve"}`),
		event(5, `"template": "nowhere", "data": {"name": "Eve"}`),
	}
	for i, delivery := range handler.HandleBatch(t.Context(), events) {
		switch sent := delivery.Err == nil; {
		case sent != (i < 4):
			t.Errorf("event %d: %v, want a template that is missing to be the only fault", i, delivery.Err)
		case sent && delivery.Receipt["ses"].(map[string]any)["messageId"] == "":
			t.Errorf("event %d has no message id", i)
		case !sent && !strings.HasPrefix(delivery.Err.Error(), "ses_template_missing: "):
			t.Errorf("event %d: %v, want its template missing", i, delivery.Err)
		}
	}
	if got := rate.Limit().PerSecond(); got != 1000 {
		t.Errorf("a rate of %v, want its own: the emulator has none", got)
	}
	mails, err := c.Mails(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]cloud.Mail{}
	for _, m := range mails {
		if len(m.Destination.To) == 1 && m.Destination.To[0] == to {
			if m.Raw != nil {
				m.Subject = "raw"
			}
			found[m.Subject] = m
		}
	}
	if len(found) != 4 || found["Simple"].HTML != "<p>" || found["Hello Ana"].Text != "Welcome, Ana." || found["Hello Bob"].Text != "Welcome, Bob." {
		t.Errorf("mails %+v, want the simple one, the raw one and two from the template", found)
	}
	message, err := mail.ReadMessage(bytes.NewReader(found["raw"].Raw))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(message.Body)
	if err != nil || !bytes.Contains(body, []byte("aGVsbG8=")) || message.Header.Get("X-Outbox-Event-Id") != "event-1" || bytes.Contains(found["raw"].Raw, []byte("secret")) {
		t.Errorf("the raw mail is %s (%v), want its file, its event's id and no hidden recipient", found["raw"].Raw, err)
	}
	labels := map[string]bool{}
	for _, call := range c.Calls() {
		labels[call.Tags["outbox_event_id"]] = true
	}
	for _, event := range events {
		if !labels[event.ID] {
			t.Errorf("%s is in no call's tags", event.ID)
		}
	}
}
