package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of a detail; a receipt past them is not stored.
const (
	maxDetailBytes = 64 << 10
	maxDetailDepth = 100
	// maxNumber is the longest number, in digits and in its exponent, that is kept as one: PostgreSQL's numeric
	// ends at 131,072 digits before the point and 16,383 behind it.
	maxNumber = 1000
)

// cleanText makes text storable: PostgreSQL refuses NUL and invalid UTF-8.
func cleanText(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// cleanDetail encodes a receipt as a JSON object that jsonb accepts. Nil for an empty receipt. A value that panics
// while it is encoded is an error: the event was delivered.
func cleanDetail(receipt Receipt) (detail json.RawMessage, err error) {
	if len(receipt) == 0 {
		return nil, nil
	}
	defer func() {
		if v := recover(); v != nil {
			detail, err = nil, fmt.Errorf("receipt cannot be encoded: panic of %T", v)
		}
	}()
	raw, err := json.Marshal(receipt)
	if err != nil {
		// The error's text may quote a value.
		return nil, fmt.Errorf("receipt cannot be encoded: %T", err)
	}
	if len(raw) > maxDetailBytes {
		return nil, fmt.Errorf("receipt has %d bytes, takes at most %d", len(raw), maxDetailBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("receipt cannot be encoded: %T", err)
	}
	cleaned, err := cleanValue(object, 0)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(cleaned); err != nil {
		return nil, fmt.Errorf("receipt cannot be encoded: %T", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

func cleanValue(value any, depth int) (any, error) {
	if depth > maxDetailDepth {
		return nil, fmt.Errorf("receipt is nested deeper than %d levels", maxDetailDepth)
	}
	switch v := value.(type) {
	case string:
		return cleanText(v), nil
	case json.Number:
		return cleanNumber(v), nil
	case []any:
		for i, item := range v {
			cleaned, err := cleanValue(item, depth+1)
			if err != nil {
				return nil, err
			}
			v[i] = cleaned
		}
		return v, nil
	case map[string]any:
		object := make(map[string]any, len(v))
		for key, item := range v {
			cleaned, err := cleanValue(item, depth+1)
			if err != nil {
				return nil, err
			}
			object[cleanText(key)] = cleaned
		}
		return object, nil
	default:
		return v, nil
	}
}

// cleanNumber turns a number out of numeric's range into a text.
func cleanNumber(number json.Number) any {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number.String()), "e")
	if exponent == "" {
		exponent = "0"
	}
	if e, err := strconv.Atoi(exponent); err != nil || max(e, -e, len(mantissa)) > maxNumber {
		return number.String()
	}
	return number
}
