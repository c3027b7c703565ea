package handlers

import "github.com/openlup/outbox-dispatch/outbox"

// sesFaults are about the account.
func sesFaults() []awsFault {
	return []awsFault{
		{
			provider: providerSES, codes: []string{"LimitExceeded*", "ACCOUNT_DAILY_QUOTA_EXCEEDED"},
			outcome: outbox.Snoozed, delay: quotaDelay, reason: "daily_quota",
			advice: "the account's quota for 24 hours is used up: ask AWS to raise it",
		},
		{
			provider: providerSES, codes: []string{"Throttling*"}, match: inText("daily"), when: "its message says daily",
			outcome: outbox.Snoozed, delay: quotaDelay, reason: "daily_quota",
			advice: "the account's quota for 24 hours is used up: ask AWS to raise it",
		},
		{
			provider: providerSES, codes: []string{
				"SendingPausedException", "ACCOUNT_SENDING_PAUSED", "CONFIGURATION_SET_SENDING_PAUSED",
			},
			outcome: outbox.Snoozed, reason: "sending_paused",
			advice: "sending is paused for the account or the configuration set: find out why and enable it",
		},
		{
			provider: providerSES, codes: []string{"AccountSuspendedException", "ACCOUNT_SUSPENDED"},
			outcome: outbox.Snoozed, delay: suspendedDelay, reason: "account_suspended",
			advice: "the account may not send any more: ask AWS Support",
		},
	}
}

// mailFaults are IAM's refusals of what a mail names. A refusal over what the row names must not hold back the
// destination; a grant that comes a little late must not discard the mail either.
func mailFaults() []awsFault {
	return []awsFault{
		{
			provider: providerSES, codes: deniedCodes(),
			match: isRowsTemplateDenied, when: "its message names a template, as the payload does", outcome: outbox.Retry, reason: "template_denied",
			advice: "the template that the payload names does not exist, or the function's role may not use it: correct its name, or grant its ARN",
		},
		{
			provider: providerSES, codes: deniedCodes(),
			match: isRecipientDenied, when: "its message names a recipient's identity, not the sender's", outcome: outbox.Retry, reason: "recipient_denied",
			advice: "the account is in the sandbox, where the function's role needs the recipient's identity too: grant its ARN",
		},
		{
			provider: providerSES, codes: deniedCodes(),
			match: isSenderDenied, when: "its message names the identity of a sender that the payload names", outcome: outbox.Retry, reason: "sender_denied",
			advice: "the function's role may not send as the sender that the payload names: grant the identity's ARN, or take it out of from_allowed",
		},
	}
}

// refusalFaults are SES's own refusals of a mail.
func refusalFaults() []awsFault {
	return []awsFault{
		{
			provider: providerSES, codes: []string{"MailFromDomainNotVerified*", "MAIL_FROM_DOMAIN_NOT_VERIFIED"},
			match: isRowsSender, when: "the payload names the sender", outcome: outbox.Retry, reason: "sender_unverified",
			advice: "the MAIL FROM domain of the sender that the payload names is not verified: mend its records, or correct from_allowed",
		},
		{
			provider: providerSES, codes: []string{"MailFromDomainNotVerified*", "MAIL_FROM_DOMAIN_NOT_VERIFIED"},
			outcome: outbox.Snoozed, reason: "sender_unverified",
			advice: "the sender's MAIL FROM domain is not verified: mend its records, or correct from",
		},
		{
			provider: providerSES, codes: []string{"MessageRejected", "MESSAGE_REJECTED"}, match: isUnverifiedRecipient, when: "its message says not verified and names a recipient, not the sender",
			outcome: outbox.Discarded, reason: "recipient_unverified",
			advice: "the account is in the sandbox, where every recipient must be verified",
		},
		{
			provider: providerSES, codes: []string{"MessageRejected", "MESSAGE_REJECTED"}, match: isRowsUnverified, when: "its message says not verified, and the payload names the sender",
			outcome: outbox.Retry, reason: "sender_unverified",
			advice: "the sender that the payload names is not verified in this region: verify its address or domain, or correct from_allowed",
		},
		{
			provider: providerSES, codes: []string{"MessageRejected", "MESSAGE_REJECTED"}, match: isUnverified, when: "its message says not verified",
			outcome: outbox.Snoozed, reason: "sender_unverified",
			advice: "the sender is not verified in this region: verify its address or domain, or correct from",
		},
		{
			provider: providerSES, codes: []string{"MessageRejected", "MESSAGE_REJECTED"},
			outcome: outbox.Discarded, reason: "message_rejected", advice: "SES will never take this mail",
		},
		{
			provider: providerSES, codes: []string{"NotFoundException", "TEMPLATE_NOT_FOUND", "TEMPLATE_DOES_NOT_EXIST"},
			match: isRowsTemplate, when: "it or its message names the template", outcome: outbox.Discarded, reason: "template_missing",
			advice: "the template that the payload names does not exist",
		},
		{
			provider: providerSES, codes: []string{
				"NotFoundException", "TEMPLATE_NOT_FOUND", "TEMPLATE_DOES_NOT_EXIST", "CONFIGURATION_SET_NOT_FOUND",
				"CONFIGURATION_SET_DOES_NOT_EXIST", "INVALID_SENDING_POOL_NAME",
			},
			outcome: outbox.Snoozed, reason: "configuration_missing",
			advice: "the configuration set, or what it names, does not exist: create it, or correct configuration_set",
		},
		{
			provider: providerSES, codes: []string{"BadRequestException", "INVALID_PARAMETER", "INVALID_PARAMETER_VALUE"},
			outcome: outbox.Discarded, reason: "message_invalid", advice: "SES will never take this mail",
		},
	}
}
