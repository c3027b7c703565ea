package routes

import (
	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"github.com/openlup/outbox-dispatch/handlers"
)

// mail is what all destinations of the kind ses have in common, since they send through one account.
type mail struct {
	client *sesv2.Client
	rate   *handlers.SESRate
	most   float64 // recipients per second; 0 means no limit beside the account's
}

// mailRate is the lowest rate that a destination of the kind ses has; zero when none has one.
func (f File) mailRate() (lowest float64) {
	for _, d := range f.Destinations {
		if d.SES != nil && d.Rate > 0 && (lowest == 0 || d.Rate < lowest) {
			lowest = d.Rate
		}
	}
	return lowest
}

func (c *clients) forSES(config handlers.SESConfig) (*handlers.SES, error) {
	if c.options.AWS.Region == "" {
		return nil, errNoRegion
	}
	if c.client == nil {
		c.client = sesv2.NewFromConfig(c.options.AWS)
		c.rate = handlers.NewSESRate(c.client, c.most)
	}
	config.Client, config.Rate = c.client, c.rate
	return handlers.NewSES(config)
}

// ses reads the kind ses.
func (p *parser) ses(kind entry) Destination {
	fields, ok := p.fields(kind.value, kind.path, "from", "from_allowed", "configuration_set", "reply_to", "timeout")
	if !ok {
		return Destination{}
	}
	seen := places{}
	config := handlers.SESConfig{From: p.required(kind, fields, "from", seen)}
	if set, found := fields["configuration_set"]; found {
		if t, sound := p.text(set.value, set.path); sound {
			config.ConfigurationSet, seen["configuration_set"] = t.value, t
			if t.value == "" {
				p.report(t.line, t.path, "is empty, takes a name; leave it out for the identity's own")
			}
		}
	}
	if allowed, found := fields["from_allowed"]; found {
		config.FromAllowed = p.list(allowed, "from_allowed", seen)
	}
	if answers, found := fields["reply_to"]; found {
		config.ReplyTo = p.list(answers, "reply_to", seen)
	}
	p.reportFields(config.Faults(), seen)
	return Destination{SES: &config, Timeout: p.timeout(fields["timeout"])}
}
