package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"github.com/openlup/outbox-dispatch/outbox"
)

const maxConfigurationSet = 64

// SESConfig configures an [SES] handler. From and Client are required.
type SESConfig struct {
	// From is the sender of every mail: an address, or a name and an address, "Orders <orders@example.com>". Its
	// address or domain must be verified in SES.
	From string
	// ConfigurationSet names the configuration set that mails are sent with; empty means the identity's default.
	ConfigurationSet string
	// ReplyTo is where answers go when the payload has no reply_to; none means the sender.
	ReplyTo []string
	// Client sends, in its own region. Of its retries at most one is used, since the outbox repeats by itself. One
	// client may serve any number of handlers.
	Client *sesv2.Client
}

// Faults returns every fault of the configuration but a missing client, so that a routes file can be checked before
// clients exist. None of them shows an address.
func (c SESConfig) Faults() []*FieldError {
	var faults []*FieldError
	report := func(field, format string, args ...any) {
		faults = append(faults, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if c.From == "" {
		report("from", "missing, takes an address like Orders <orders@example.com>")
	} else if _, problem := parseAddress(c.From); problem != "" {
		report("from", "%s", problem)
	}
	if len(c.ConfigurationSet) > maxConfigurationSet || !isName(c.ConfigurationSet, "-_") {
		report("configuration_set", "takes up to %d letters, digits, - and _", maxConfigurationSet)
	}
	for i, text := range c.ReplyTo {
		if _, problem := parseAddress(text); problem != "" {
			report(fmt.Sprintf("reply_to[%d]", i), "%s", problem)
		}
	}
	return faults
}

// SES sends one mail for each event. Build it with [NewSES]; it may be used concurrently.
type SES struct {
	client  *sesv2.Client
	from    mailbox
	set     string
	replyTo []string
}

var _ outbox.Handler = (*SES)(nil)

// NewSES builds the handler. Its error joins every fault of the configuration, each a *[FieldError].
func NewSES(config SESConfig) (*SES, error) {
	faults := config.Faults()
	if config.Client == nil {
		faults = append(faults, &FieldError{Field: "client", Problem: "missing, takes an SES client"})
	}
	if err := joinFaults(faults); err != nil {
		return nil, err
	}
	handler := &SES{client: config.Client, set: config.ConfigurationSet}
	handler.from, _ = parseAddress(config.From)
	for _, text := range config.ReplyTo {
		address, _ := parseAddress(text)
		handler.replyTo = append(handler.replyTo, address.text)
	}
	return handler, nil
}

// Handle sends the mail that the event's payload describes; docs/routes.md has its fields. A payload that doesn't
// describe a mail is discarded with all its faults, naming fields and never what they hold. A message id means
// accepted by SES; the receipt is then {"ses": {"messageId": "…"}}. All else is an error by the table in
// docs/faults.md; once ctx has ended the error wraps ctx.Err. Without a deadline in ctx it is
// [outbox.DefaultHandlerTimeout].
//
// SES knows no idempotency key: when an answer is lost, the repetition is a second mail. Both carry the event's id in
// the header X-Outbox-Event-Id and the tag outbox_event_id.
func (h *SES) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	mail, err := parseMail(event.Payload)
	if err != nil {
		return nil, outbox.Discard(err)
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	ctx, path := watchPath(ctx)
	output, err := h.client.SendEmail(ctx, h.message(event, mail), func(o *sesv2.Options) {
		o.Retryer = fewAttempts(o.Retryer)
	})
	if err != nil {
		return nil, awsCall{provider: providerSES, path: path, mail: &mail, from: h.from.address}.fault(ctx, err)
	}
	if aws.ToString(output.MessageId) == "" {
		return nil, errors.New("ses_answer_unreadable: " + unreadable)
	}
	return outbox.Receipt{"ses": map[string]any{"messageId": *output.MessageId}}, nil
}
