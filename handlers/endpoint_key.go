package handlers

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/openlup/outbox-dispatch/outbox"
)

// endpointKey is where an event names its tenant.
type endpointKey struct {
	from string   // aggregate_id, aggregate_type, payload or metadata
	path []string // of the last two: fields, from the outside in
}

// Bounds of a key.
const (
	maxKeyFields = 8
	maxKeyLength = 1000 // longer values are none
)

// CheckEndpointKey tells why text does not say where an event names its tenant: aggregate_id, aggregate_type, or a field of
// the payload or metadata, like payload.tenant_id or metadata.customer.id, that holds a text or a number. Nil means it does.
func CheckEndpointKey(text string) error {
	_, err := parseEndpointKey(text)
	return err
}

func parseEndpointKey(text string) (endpointKey, error) {
	from, path, nested := strings.Cut(text, ".")
	key := endpointKey{from: from}
	switch from {
	case "aggregate_id", "aggregate_type":
		if !nested {
			return key, nil
		}
	case "payload", "metadata":
		key.path = strings.Split(path, ".")
		if nested && len(key.path) <= maxKeyFields && !strings.Contains("."+path+".", "..") {
			return key, nil
		}
	}
	return endpointKey{}, errors.New("takes aggregate_id, aggregate_type, or a field like payload.tenant_id or metadata.customer.id")
}

// of returns an event's tenant; empty when it names none.
func (k endpointKey) of(event outbox.Event) string {
	var value json.RawMessage
	switch k.from {
	case "aggregate_id":
		return event.AggregateID
	case "aggregate_type":
		return event.AggregateType
	case "payload":
		value = event.Payload
	default:
		value = event.Metadata
	}
	for _, name := range k.path {
		var fields map[string]json.RawMessage // a struct's fields would also take other letter case
		if json.Unmarshal(value, &fields) != nil {
			return ""
		}
		value = fields[name]
	}
	text := scalar(value)
	if len(text) > maxKeyLength {
		return ""
	}
	return text
}

// scalar returns a JSON text, or a number by its own digits; empty for all else.
func scalar(value json.RawMessage) (text string) {
	switch {
	case len(value) == 0:
	case value[0] == '"':
		_ = json.Unmarshal(value, &text) // a part of what was parsed
	case value[0] == '-' || '0' <= value[0] && value[0] <= '9':
		text = string(value)
	}
	return text
}
