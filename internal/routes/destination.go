package routes

import (
	"slices"
	"strings"

	"github.com/openlup/outbox-dispatch/handlers"
)

// kinds are the kinds of destination, in the order in which faults list them.
func kinds() []string { return []string{"http", "endpoints", "sns", "ses"} }

// options are the fields beside a kind, which mean the same for all of them.
func options() []string {
	return []string{
		"concurrency", "rate", "circuit", "max_age", "discard_on", "snooze_on", "on_discard", "envelope", "source", "dataschema",
	}
}

// Bounds of the options.
const (
	maxConcurrency = 256
	maxRate        = 1e6 // events per second
)

func (p *parser) destination(e entry, source string) Destination {
	fields, ok := p.fields(e.value, e.path, slices.Concat(kinds(), options())...)
	if !ok {
		return Destination{}
	}
	var found []string
	for _, kind := range kinds() {
		if _, has := fields[kind]; has {
			found = append(found, kind)
		}
	}
	var d Destination
	switch {
	case len(found) == 0 && 2*len(fields) == len(e.value.Content): // no key was refused
		p.report(e.line, e.path, "has no kind, takes one of %s", strings.Join(kinds(), ", "))
	case len(found) > 1:
		p.report(e.line, e.path, "has %d kinds, takes one", len(found))
		d = p.kind(found[0], fields[found[0]])
	case len(found) == 1:
		d = p.kind(found[0], fields[found[0]])
	}
	if field, has := fields["concurrency"]; has {
		d.Concurrency = p.positive(field.value, field.path)
		if d.Concurrency > maxConcurrency {
			p.report(field.value.Line, field.path, "is more than %d", maxConcurrency)
		}
	}
	if field, has := fields["rate"]; has {
		d.Rate = p.rate(field)
	}
	if field, has := fields["circuit"]; has {
		if t, sound := p.text(field.value, field.path); sound && !isName(t.value) {
			p.report(t.line, t.path, "is no name, takes one like a destination's")
		} else if sound {
			d.Circuit = t.value
		}
	}
	d.MaxAge = p.maxAge(fields, 0)
	d.Outcomes = p.outcomes(fields, handlers.Outcomes{}, d, e)
	d.OnDiscard = p.onDiscard(fields, OnDiscard{})
	d.Envelope = p.envelope(fields, d, source)
	return d
}

func (p *parser) kind(name string, kind entry) Destination {
	switch name {
	case "http":
		return p.http(kind)
	case "endpoints":
		return p.endpoints(kind)
	case "sns":
		return p.sns(kind)
	default:
		return p.ses(kind)
	}
}

// reasons are those of the failures that the destination's handler answers; nil before its kind is known.
func (d Destination) reasons() []string {
	switch {
	case d.HTTP != nil:
		return handlers.HTTPReasons()
	case d.Endpoints != nil:
		return handlers.EndpointsReasons()
	case d.SNS != nil:
		return handlers.SNSReasons()
	case d.SES != nil:
		return handlers.SESReasons()
	}
	return nil
}

// envelope reads what surrounds the payload; mail has nothing of that kind.
func (p *parser) envelope(fields map[string]entry, d Destination, source string) handlers.Envelope {
	var envelope handlers.Envelope
	seen := places{}
	for _, field := range []struct {
		name  string
		value *string
	}{{"envelope", &envelope.Format}, {"source", &envelope.Source}, {"dataschema", &envelope.DataSchema}} {
		e, found := fields[field.name]
		if !found {
			continue
		}
		switch t, sound := p.text(e.value, e.path); {
		case !sound:
		case d.SES != nil:
			p.report(e.line, e.path, "is for webhooks and sns; a mail has no envelope")
		case t.value == "":
			p.report(t.line, t.path, "is empty; leave it out for the default")
		default:
			*field.value, seen[field.name] = t.value, t
		}
	}
	if d.SES != nil {
		return handlers.Envelope{}
	}
	p.reportFields(envelope.Faults(), seen)
	if envelope.Format == handlers.EnvelopeBinary && d.SNS != nil {
		p.report(seen["envelope"].line, seen["envelope"].path, "needs HTTP headers, takes %s or %s", handlers.EnvelopeCloudEvents, handlers.EnvelopeRaw)
	}
	if envelope.Source == "" {
		envelope.Source = source
	}
	return envelope
}

// source reads the file's own source, which destinations without one have.
func (p *parser) source(field entry, found bool) string {
	if !found {
		return ""
	}
	t, sound := p.text(field.value, field.path)
	if sound && t.value == "" {
		p.report(t.line, t.path, "is empty; leave it out for the default")
	}
	p.reportFields(handlers.Envelope{Source: t.value}.Faults(), places{"source": t})
	return t.value
}
