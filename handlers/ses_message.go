package handlers

import (
	"encoding/base64"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	eventIDHeader = "X-Outbox-Event-Id"
	tagEventID    = "outbox_event_id"
	tagEventType  = "event_type"
	maxTagLength  = 255

	// maxMailSize is what SES takes of a mail whose files are in base64.
	maxMailSize = 40 << 20
)

// message is the request for one mail; an error says why there can be none.
func (h *SES) message(event outbox.Event, content mailContent) (*sesv2.SendEmailInput, error) {
	input := &sesv2.SendEmailInput{
		FromEmailAddress: aws.String(h.sender(content).text),
		Destination:      destination(content),
		ReplyToAddresses: h.answers(content),
		EmailTags:        tags(event, content),
		Content:          &types.EmailContent{},
	}
	if h.set != "" {
		input.ConfigurationSetName = &h.set
	}
	if size := content.size(); size > maxMailSize {
		return nil, tooLarge(size)
	}
	switch {
	case content.template != "":
		input.Content.Template = &types.Template{
			TemplateName: &content.template, TemplateData: aws.String(content.templateData()),
			Headers: headers(event, content), Attachments: files(content),
		}
	case content.isRaw():
		data, err := h.rawMail(event, content)
		if err != nil {
			return nil, fmt.Errorf("ses_payload_invalid: %w", err)
		}
		if len(data) > maxMailSize {
			return nil, tooLarge(len(data))
		}
		input.ReplyToAddresses = nil // it stands in the mail
		input.Content.Raw = &types.RawMessage{Data: data}
	default:
		input.Content.Simple = &types.Message{
			Subject:     part(content.subject),
			Body:        &types.Body{Text: part(content.text), Html: part(content.html)},
			Headers:     headers(event, content),
			Attachments: files(content),
		}
	}
	return input, nil
}

func tooLarge(size int) error {
	return fmt.Errorf("ses_payload_invalid: attachments: the mail has %d bytes with its files in base64, takes up to %d", size, maxMailSize)
}

func destination(content mailContent) *types.Destination {
	return &types.Destination{
		ToAddresses: texts(content.to), CcAddresses: texts(content.cc), BccAddresses: texts(content.bcc),
	}
}

// answers are where answers go.
func (h *SES) answers(content mailContent) []string {
	if len(content.replyTo) > 0 {
		return texts(content.replyTo)
	}
	return h.replyTo
}

func (m mailContent) templateData() string {
	if m.data == "" {
		return "{}"
	}
	return m.data
}

// size is about that of the mail that SES builds.
func (m mailContent) size() int {
	size := len(m.subject) + len(m.text) + len(m.html) + len(m.data)
	for _, file := range m.attachments {
		size += len(file.filename) + encodedSize(len(file.content))
	}
	return size
}

// encodedSize is that of so many bytes in base64, in lines.
func encodedSize(bytes int) int {
	n := base64.StdEncoding.EncodedLen(bytes)
	return n + 2*(n/base64Line+1)
}

// headers are the event's own and those of the payload.
func headers(event outbox.Event, content mailContent) []types.MessageHeader {
	all := []types.MessageHeader{{Name: aws.String(eventIDHeader), Value: aws.String(stableID(event.ID))}}
	for _, header := range content.headers {
		all = append(all, types.MessageHeader{Name: &header.name, Value: &header.value})
	}
	return all
}

func files(content mailContent) []types.Attachment {
	var all []types.Attachment
	for _, file := range content.attachments {
		one := types.Attachment{
			FileName: &file.filename, ContentType: &file.contentType, RawContent: file.content,
			ContentDisposition:      types.AttachmentContentDispositionAttachment,
			ContentTransferEncoding: types.AttachmentContentTransferEncodingBase64,
		}
		if file.contentID != "" {
			one.ContentDisposition, one.ContentId = types.AttachmentContentDispositionInline, &file.contentID
		}
		all = append(all, one)
	}
	return all
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
func tags(event outbox.Event, content mailContent) []types.MessageTag {
	var all []types.MessageTag
	for _, tag := range append([]mailHeader{{tagEventID, tagValue(event.ID)}, {tagEventType, tagValue(event.Type)}}, content.tags...) {
		if tag.value != "" {
			all = append(all, types.MessageTag{Name: &tag.name, Value: &tag.value})
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
