package handlers

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/openlup/outbox-dispatch/outbox"
)

const topicFields = "{event_type}, {aggregate_type}, {aggregate_id}, {payload.field} and {metadata.field}"

// topicTemplate is an ARN with fields: a literal, a field, a literal and so on, with a literal at both ends.
type topicTemplate struct {
	literals []string
	fields   []topicField
}

// topicField is a value of an event, by its path: [payload tenant id].
type topicField []string

// parseTopicTemplate never repeats the text in its errors.
func parseTopicTemplate(text string) (topicTemplate, error) {
	var template topicTemplate
	for {
		literal, rest, found := strings.Cut(text, "{")
		if strings.Contains(literal, "}") {
			return topicTemplate{}, errors.New("has a } without a {")
		}
		template.literals = append(template.literals, literal)
		if !found {
			return template, nil
		}
		name, rest, closed := strings.Cut(rest, "}")
		if !closed {
			return topicTemplate{}, errors.New("has a { that is never closed")
		}
		field := topicField(strings.Split(name, "."))
		if !field.isValid() {
			return topicTemplate{}, errors.New("has an unknown field, takes " + topicFields)
		}
		template.fields = append(template.fields, field)
		text = rest
	}
}

func (f topicField) isValid() bool {
	switch f[0] {
	case "event_type", "aggregate_type", "aggregate_id":
		return len(f) == 1
	case "payload", "metadata":
		return len(f) > 1 && !slices.Contains(f, "")
	}
	return false
}

func (t topicTemplate) isFixed() bool { return len(t.fields) == 0 }

// matches tells whether some event may lead to an ARN.
func (t topicTemplate) matches(arn string) bool {
	literals := make([]string, len(t.literals))
	for i, literal := range t.literals {
		literals[i] = regexp.QuoteMeta(literal)
	}
	matched, err := regexp.MatchString("^"+strings.Join(literals, ".+")+"$", arn)
	return err == nil && matched
}

// fill returns the ARN that an event leads to, or the first field that the event lacks.
func (t topicTemplate) fill(event outbox.Event) (arn, missing string) {
	var b strings.Builder
	b.WriteString(t.literals[0])
	for i, field := range t.fields {
		value := field.of(event)
		if value == "" {
			return "", "{" + strings.Join(field, ".") + "}"
		}
		b.WriteString(value)
		b.WriteString(t.literals[i+1])
	}
	return b.String(), ""
}

// of returns the field's value; "" when the event has none that is text or a number.
func (f topicField) of(event outbox.Event) string {
	switch f[0] {
	case "event_type":
		return event.Type
	case "aggregate_type":
		return event.AggregateType
	case "aggregate_id":
		return event.AggregateID
	case "payload":
		return textAt(event.Payload, f[1:])
	default:
		return textAt(event.Metadata, f[1:])
	}
}

// textAt returns the text at a path of objects, or the number there as it is written. Keys compare exactly.
func textAt(value json.RawMessage, path []string) string {
	for _, key := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return ""
		}
		value = object[key]
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var number json.Number
	if json.Unmarshal(value, &number) == nil {
		return number.String()
	}
	return ""
}
