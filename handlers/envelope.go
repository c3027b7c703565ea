package handlers

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openlup/outbox-dispatch/outbox"
)

// Formats of an [Envelope].
const (
	// EnvelopeCloudEvents is one JSON object, with the payload under "data": CloudEvents 1.0 in structured mode. It is what
	// an empty format means.
	EnvelopeCloudEvents = "cloudevents"
	// EnvelopeBinary is the payload alone as body, and the rest in HTTP headers: CloudEvents 1.0 in binary mode.
	EnvelopeBinary = "cloudevents-binary"
	// EnvelopeRaw is the payload alone.
	EnvelopeRaw = "raw"
)

// DefaultSource is what an [Envelope] without one says.
const DefaultSource = "/outbox"

const (
	jsonType       = "application/json"
	structuredType = "application/cloudevents+json; charset=utf-8"

	maxURILength = 2048
	// typeMark stands for the event's type in [Envelope].DataSchema.
	typeMark = "{type}"
	// unnamed is the type of an event that has none, since CloudEvents takes no empty one.
	unnamed = "unknown"
)

// Envelope is what surrounds a payload on its way. The zero value is a CloudEvent in structured mode. What it makes of an
// event is the same in every attempt.
type Envelope struct {
	// Format is one of [EnvelopeCloudEvents], [EnvelopeBinary] (webhooks only) and [EnvelopeRaw]. Empty means
	// [EnvelopeCloudEvents].
	Format string
	// Source is the event's source, a URI reference; together with the event's id it is unique. Empty means [DefaultSource].
	Source string
	// DataSchema is the schema of the payloads, an absolute URI without fragment, in which {type} stands for the event's
	// type. A URI under "dataschema" in the row's metadata goes before it. Empty means none.
	DataSchema string
}

// Faults returns every fault of the envelope, with the fields envelope, source and dataschema.
func (e Envelope) Faults() []*FieldError {
	var faults []*FieldError
	report := func(field, problem string) { faults = append(faults, &FieldError{Field: field, Problem: problem}) }
	switch e.Format {
	case "", EnvelopeCloudEvents, EnvelopeBinary, EnvelopeRaw:
	default:
		report("envelope", "is none, takes "+EnvelopeCloudEvents+", "+EnvelopeBinary+" or "+EnvelopeRaw)
	}
	if e.Source != "" && !isURI(e.Source) {
		report("source", "is no URI reference, takes one like /shop or https://shop.example.com/outbox")
	}
	// The mark must not stand where a type's letters would end the URI, and they are not known yet.
	if e.DataSchema != "" && !isAbsoluteURI(strings.ReplaceAll(e.DataSchema, typeMark, "%20")) {
		report("dataschema", "is no absolute URI without fragment, takes one like https://schemas.example.com/{type}.json")
	}
	return faults
}

// structuredFaults is Faults for a destination without headers, which has no binary mode.
func (e Envelope) structuredFaults() []*FieldError {
	faults := e.Faults()
	if e.Format == EnvelopeBinary {
		faults = append(faults, &FieldError{
			Field: "envelope", Problem: "needs HTTP headers, takes " + EnvelopeCloudEvents + " or " + EnvelopeRaw,
		})
	}
	return faults
}

// encode returns what is sent of an event: the body, its media type, and the headers that HTTP carries beside them, by
// name in lower case: the producer's trace context (traceparent, tracestate) in every format, and in binary mode the
// attributes. The payload stands in the body byte for byte.
func (e Envelope) encode(event outbox.Event) (body []byte, contentType string, headers map[string]string) {
	context := readProducerContext(event.Metadata)
	headers = map[string]string{}
	for name, value := range map[string]string{"traceparent": context.traceparent, "tracestate": context.tracestate} {
		if value != "" {
			headers[name] = value
		}
	}
	switch e.Format {
	case EnvelopeRaw:
		return event.Payload, jsonType, headers
	case EnvelopeBinary:
		for _, a := range e.attributes(event, context) {
			headers["ce-"+a.name] = encodeCloudEventsHeader(a.value)
		}
		return event.Payload, jsonType, headers
	default:
		return structured(e.attributes(event, context), event.Payload), structuredType, headers
	}
}

// attribute is one of a CloudEvent's, by its name there.
type attribute struct{ name, value string }

// attributes returns what a CloudEvent says beside its data and their media type, in an order that never changes. What is
// empty is left out, since CloudEvents takes no empty values.
func (e Envelope) attributes(event outbox.Event, context producerContext) []attribute {
	all := []attribute{
		{"specversion", "1.0"},
		{"id", orText(cleanAttribute(event.ID), strconv.FormatInt(event.Position, 10))},
		{"source", orText(e.Source, DefaultSource)},
		{"type", orText(cleanAttribute(event.Type), unnamed)},
		{"subject", subject(event)},
		{"time", timestamp(event.CreatedAt)},
		{"dataschema", orText(context.dataschema, strings.ReplaceAll(e.DataSchema, typeMark, url.PathEscape(event.Type)))},
		{"traceparent", context.traceparent},
		{"tracestate", context.tracestate},
		{"partitionkey", cleanAttribute(event.AggregateID)},
		{"sequence", sequence(event.Position)},
		{"idempotencykey", cleanAttribute(event.IdempotencyKey)},
	}
	kept := all[:0]
	for _, a := range all {
		if a.value != "" {
			kept = append(kept, a)
		}
	}
	return kept
}

// structured writes the JSON by hand, since encoding/json would compact the payload and escape some of its characters.
func structured(attributes []attribute, payload []byte) []byte {
	const frame = 32 // of an attribute, and of what surrounds all
	size := len(payload) + 2*frame
	for _, a := range attributes {
		size += len(a.value) + frame
	}
	body := append(make([]byte, 0, size), '{')
	for _, a := range attributes {
		text, _ := json.Marshal(a.value) //nolint:errchkjson // a string always has JSON
		body = append(append(append(body, '"'), a.name...), `":`...)
		body = append(append(body, text...), ',')
	}
	body = append(body, `"datacontenttype":"`+jsonType+`"`...)
	if len(payload) > 0 {
		body = append(append(body, `,"data":`...), payload...)
	}
	return append(body, '}')
}

func subject(event outbox.Event) string {
	if event.AggregateType == "" && event.AggregateID == "" {
		return ""
	}
	return cleanAttribute(event.AggregateType + "/" + event.AggregateID)
}

// timestamp is "" for a time that RFC 3339 cannot write.
func timestamp(t time.Time) string {
	t = t.UTC()
	if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// sequence has as many digits as the largest position, since receivers compare it as text.
func sequence(position int64) string { return fmt.Sprintf("%019d", position) }

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// cleanAttribute replaces what a CloudEvents string must not hold (control characters, noncharacters, bytes that are no
// UTF-8) by U+FFFD. Any other text stays as it is.
func cleanAttribute(text string) string {
	return strings.ToValidUTF8(strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c <= 0x9f || c >= 0xfdd0 && c <= 0xfdef || c&0xfffe == 0xfffe {
			return utf8.RuneError
		}
		return c
	}, text), string(utf8.RuneError))
}

// encodeCloudEventsHeader percent-encodes what the HTTP binding says, as UTF-8: all but visible ASCII, the quotation
// mark and the percent sign.
func encodeCloudEventsHeader(value string) string {
	return strings.ReplaceAll(encodeHeader(value, ""), `"`, "%22")
}
