package handlers

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"
)

// sendBulk sends mails by one call, and answers each; false means that none was sent and each is to be tried alone.
func (h *SES) sendBulk(ctx context.Context, letters []addressed) bool {
	ctx, path := watchPath(ctx)
	output, err := h.client.SendBulkEmail(ctx, h.bulk(letters), fewTries)
	if err != nil {
		if ctx.Err() == nil && h.isOverOne(letters, err) {
			return false
		}
		for _, l := range letters {
			l.answer.Err = h.call(path, &l.mail).fault(ctx, err)
		}
		return true
	}
	for i, l := range letters {
		var result types.BulkEmailEntryResult
		if i < len(output.BulkEmailEntryResults) {
			result = output.BulkEmailEntryResults[i]
		}
		switch result.Status {
		case types.BulkEmailStatusSuccess, "": // without a status it must have an id, too
			l.answer.Receipt, l.answer.Err = sesReceipt(result.MessageId)
		default:
			l.answer.Err = h.call(path, &l.mail).outcome(awsAnswer{
				code: string(result.Status), message: aws.ToString(result.Error),
			})
		}
	}
	return true
}

// isOverOne tells whether SES refused a call for what may be one mail's fault, or IAM refused it. The grant for a call of
// its own is another one, so that a mail alone may well pass: then calls are not shared for a while.
func (h *SES) isOverOne(letters []addressed, err error) bool {
	if isDenied(err) {
		h.denied.Store(time.Now().Add(rateAge).UnixNano())
		return true
	}
	fault := awsCall{provider: providerSES, path: new(path), from: h.sender(letters[0].mail).address}.judge(newAnswer(err))
	return fault.reason == "message_invalid" || fault.reason == "message_rejected"
}

// bulk is the request for mails that have template, sender and addresses for answers in common.
func (h *SES) bulk(letters []addressed) *sesv2.SendBulkEmailInput {
	first := letters[0].mail
	input := &sesv2.SendBulkEmailInput{
		FromEmailAddress: aws.String(h.sender(first).text),
		ReplyToAddresses: h.answers(first),
		DefaultContent: &types.BulkEmailContent{Template: &types.Template{
			TemplateName: &first.template, TemplateData: aws.String("{}"),
		}},
	}
	if h.set != "" {
		input.ConfigurationSetName = &h.set
	}
	for _, l := range letters {
		input.BulkEmailEntries = append(input.BulkEmailEntries, types.BulkEmailEntry{
			Destination: destination(l.mail),
			ReplacementEmailContent: &types.ReplacementEmailContent{ReplacementTemplate: &types.ReplacementTemplate{
				ReplacementTemplateData: aws.String(l.mail.templateData()),
			}},
			ReplacementHeaders: headers(l.event, l.mail),
			ReplacementTags:    tags(l.event, l.mail),
		})
	}
	return input
}
