package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"github.com/openlup/outbox-dispatch/outbox"
)

// SES sends one mail for each event. Build it with [NewSES]; it may be used concurrently.
type SES struct {
	client  *sesv2.Client
	from    mailbox
	senders []string
	set     string
	replyTo []string
	rate    *SESRate

	shares atomic.Bool  // the last mail was one that can share a call
	denied atomic.Int64 // until when sharing is not tried, in Unix nanoseconds
}

var (
	_ outbox.BatchHandler = (*SES)(nil)
	_ outbox.Weigher      = (*SES)(nil)
)

// NewSES builds the handler. Its error joins every fault of the configuration, each a *[FieldError].
func NewSES(config SESConfig) (*SES, error) {
	faults := config.Faults()
	if config.Client == nil {
		faults = append(faults, &FieldError{Field: "client", Problem: "missing, takes an SES client"})
	}
	if err := joinFaults(faults); err != nil {
		return nil, err
	}
	handler := &SES{
		client: config.Client, senders: slices.Clone(config.FromAllowed), set: config.ConfigurationSet, rate: config.Rate,
	}
	handler.from, _ = parseAddress(config.From)
	for _, text := range config.ReplyTo {
		address, _ := parseAddress(text)
		handler.replyTo = append(handler.replyTo, address.text)
	}
	return handler, nil
}

// letter is a mail with the event that it is for.
type letter struct {
	event outbox.Event
	mail  mailContent
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
	mail, err := parseMail(event.Payload, h.senders)
	if err != nil {
		return nil, outbox.Discard(err)
	}
	h.shares.Store(mail.mayShare())
	ctx, cancel := bound(ctx)
	defer cancel()
	h.rate.learn(ctx)
	return h.send(ctx, letter{event, mail})
}

// send sends one mail by a call of its own.
func (h *SES) send(ctx context.Context, l letter) (outbox.Receipt, error) {
	input, err := h.message(l.event, l.mail)
	if err != nil {
		return nil, outbox.Discard(err)
	}
	ctx, path := watchPath(ctx)
	output, err := h.client.SendEmail(ctx, input, fewTries)
	if err != nil {
		return nil, h.call(path, &l.mail).fault(ctx, err)
	}
	return sesReceipt(output.MessageId)
}

func fewTries(o *sesv2.Options) { o.Retryer = fewAttempts(o.Retryer) }

func (h *SES) call(path *path, mail *mailContent) awsCall {
	return awsCall{provider: providerSES, path: path, mail: mail, from: h.sender(*mail).address}
}

// sender returns who the mail is from.
func (h *SES) sender(mail mailContent) mailbox {
	if mail.from != nil {
		return *mail.from
	}
	return h.from
}

func sesReceipt(messageID *string) (outbox.Receipt, error) {
	if aws.ToString(messageID) == "" {
		return nil, errors.New("ses_answer_unreadable: " + unreadable)
	}
	return outbox.Receipt{"ses": map[string]any{"messageId": *messageID}}, nil
}

// Weight is the number of recipients, which SES counts its rate by.
func (h *SES) Weight(event outbox.Event) int {
	var lists struct{ To, Cc, Bcc []json.RawMessage }
	_ = json.Unmarshal(event.Payload, &lists)
	n := len(lists.To) + len(lists.Cc) + len(lists.Bcc)
	if n > maxRecipients { // it is discarded unsent, and must not hold up other mails for as long as it had taken
		return 1
	}
	return max(1, n)
}
