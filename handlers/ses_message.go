package handlers

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	eventIDHeader = "X-Outbox-Event-Id"
	maxTagLength  = 255
)

func (h *SES) message(event outbox.Event, content mailContent) *sesv2.SendEmailInput {
	input := &sesv2.SendEmailInput{
		FromEmailAddress: &h.from.text,
		Destination: &types.Destination{
			ToAddresses: texts(content.to), CcAddresses: texts(content.cc), BccAddresses: texts(content.bcc),
		},
		ReplyToAddresses: h.replyTo,
		EmailTags:        tags(event),
		Content:          &types.EmailContent{},
	}
	if len(content.replyTo) > 0 {
		input.ReplyToAddresses = texts(content.replyTo)
	}
	if h.set != "" {
		input.ConfigurationSetName = &h.set
	}
	headers := []types.MessageHeader{{Name: aws.String(eventIDHeader), Value: aws.String(stableID(event.ID))}}
	if content.template != "" {
		data := content.data
		if data == "" {
			data = "{}"
		}
		input.Content.Template = &types.Template{TemplateName: &content.template, TemplateData: &data, Headers: headers}
		return input
	}
	input.Content.Simple = &types.Message{
		Subject: part(content.subject),
		Body:    &types.Body{Text: part(content.text), Html: part(content.html)},
		Headers: headers,
	}
	return input
}

// part returns nil for an empty text.
func part(text string) *types.Content {
	if text == "" {
		return nil
	}
	return &types.Content{Data: &text, Charset: aws.String("UTF-8")}
}

func texts(list []mailbox) []string {
	var all []string
	for _, box := range list {
		all = append(all, box.text)
	}
	return all
}

// tags label the mail in what SES publishes about it.
func tags(event outbox.Event) []types.MessageTag {
	var all []types.MessageTag
	for _, tag := range []struct{ name, value string }{{"outbox_event_id", event.ID}, {"event_type", event.Type}} {
		if value := tagValue(tag.value); value != "" {
			all = append(all, types.MessageTag{Name: aws.String(tag.name), Value: &value})
		}
	}
	return all
}

// tagValue puts an underscore in place of what SES takes in no tag, and cuts what is too long.
func tagValue(text string) string {
	value := make([]byte, 0, min(len(text), maxTagLength))
	for _, c := range text {
		if len(value) == maxTagLength {
			break
		}
		if char := string(c); isName(char, "-") {
			value = append(value, char...)
			continue
		}
		value = append(value, '_')
	}
	return string(value)
}
