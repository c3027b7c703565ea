package handlers

import (
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"
)

const maxConfigurationSet = 64

// SESConfig configures an [SES] handler. From and Client are required.
type SESConfig struct {
	// From is the sender of every mail whose payload names none: an address, or a name and an address,
	// "Orders <orders@example.com>". Its address or domain must be verified in SES.
	From string
	// FromAllowed lists the senders that a payload may name: addresses, and "@example.com" for all of a domain. None
	// means that it may name none.
	FromAllowed []string
	// ConfigurationSet names the configuration set that mails are sent with; empty means the identity's default.
	ConfigurationSet string
	// ReplyTo is where answers go when the payload has no reply_to; none means the sender.
	ReplyTo []string
	// Client sends, in its own region. Of its retries at most one is used, since the outbox repeats by itself. One
	// client may serve any number of handlers.
	Client *sesv2.Client
	// Rate learns how much the account may send. All handlers of an account and region share one, and so do the routes
	// its Limit. Nil means that nothing is learnt.
	Rate *SESRate
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
	for i, text := range c.FromAllowed {
		if problem := checkAllowedSender(text); problem != "" {
			report(fmt.Sprintf("from_allowed[%d]", i), "%s", problem)
		}
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
