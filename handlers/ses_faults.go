package handlers

import (
	"slices"
	"strings"
)

// isUnverifiedRecipient is true when an identity that SES names as not verified is a recipient's and the sender is not
// among them: an account in the sandbox.
func isUnverifiedRecipient(call awsCall, answer awsAnswer) bool {
	if call.mail == nil || !isUnverified(call, answer) || mentions(answer.message, call.from) {
		return false
	}
	return slices.ContainsFunc(call.mail.recipients(), func(box mailbox) bool {
		return mentions(answer.message, box.address)
	})
}

func isUnverified(_ awsCall, answer awsAnswer) bool {
	return strings.Contains(strings.ToLower(answer.message), "not verified")
}

// isRowsSender is true of a mail whose payload names its sender.
func isRowsSender(call awsCall, _ awsAnswer) bool { return call.mail != nil && call.mail.from != nil }

func isRowsUnverified(call awsCall, answer awsAnswer) bool {
	return isRowsSender(call, answer) && isUnverified(call, answer)
}

// isRowsTemplate is true when what is missing is the template, which the row names; the configuration set is ours.
func isRowsTemplate(call awsCall, answer awsAnswer) bool {
	text := strings.ToLower(answer.message)
	named := strings.Contains(text, "template") && !strings.Contains(text, "configuration set")
	return call.mail != nil && call.mail.template != "" && (named || strings.HasPrefix(answer.code, "TEMPLATE_"))
}

// isRowsTemplateDenied is true when IAM refuses the template, which the row names. It does so before SES looks whether
// there is one, so that a typing error in a row looks like a grant that is missing.
func isRowsTemplateDenied(call awsCall, answer awsAnswer) bool {
	return call.mail != nil && call.mail.template != "" && strings.Contains(strings.ToLower(answer.message), ":template/")
}

// isSenderDenied is true when IAM refuses the identity of a sender that the row names.
func isSenderDenied(call awsCall, answer awsAnswer) bool {
	return isRowsSender(call, answer) && covers(deniedIdentity(answer), call.from)
}

// isRecipientDenied is true when IAM refuses an identity that a recipient belongs to and the sender does not: in the
// sandbox it asks for the recipient's, too.
func isRecipientDenied(call awsCall, answer awsAnswer) bool {
	identity := deniedIdentity(answer)
	if call.mail == nil || identity == "" {
		return false
	}
	return !covers(identity, call.from) && slices.ContainsFunc(call.mail.recipients(), func(box mailbox) bool {
		return covers(identity, box.address)
	})
}

// deniedIdentity is the identity that IAM names in its refusal, empty when it names none.
func deniedIdentity(answer awsAnswer) string {
	_, identity, _ := strings.Cut(answer.message, ":identity/")
	if end := strings.IndexAny(identity, "'`\" \t\r\n,;"); end >= 0 {
		identity = identity[:end]
	}
	return strings.TrimRight(identity, ".")
}

// covers tells whether an identity is an address itself, its domain, or a domain above that.
func covers(identity, address string) bool {
	identity, address = strings.ToLower(identity), strings.ToLower(address)
	domain := address[strings.LastIndexByte(address, '@')+1:]
	return identity != "" && (identity == address || identity == domain || strings.HasSuffix(domain, "."+identity))
}

// mentions tells whether a text holds an address, and not just as a part of a longer one.
func mentions(text, address string) bool {
	text, address = strings.ToLower(text), strings.ToLower(address)
	isPart := func(c byte) bool { return isAlphanumeric(c) || strings.IndexByte("!#$%&'*+-/=?^_`{|}~.@\"", c) >= 0 }
	for from := 0; address != ""; from++ {
		i := strings.Index(text[from:], address)
		if i < 0 {
			return false
		}
		from += i
		end := from + len(address)
		// A dot that ends the sentence is no part of the address.
		after := strings.TrimLeft(text[end:], ".")
		if (from == 0 || !isPart(text[from-1])) && (after == "" || !isPart(after[0])) {
			return true
		}
	}
	return false
}
