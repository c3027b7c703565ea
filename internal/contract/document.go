package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Document is a JSON value in one canonical text: keys sorted, no space, numbers as they were written.
type Document string

// NewDocument brings JSON text into the canonical form.
func NewDocument(text string) (Document, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // 1e400 has no float64
	var value any
	if err := decoder.Decode(&value); err != nil {
		return "", fmt.Errorf("read JSON: %w", err)
	}
	return canonical(value), nil
}

func canonical(value any) Document {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return Document(strconv.Quote("unwritable: " + err.Error())) // equals no document PostgreSQL holds
	}
	return Document(bytes.TrimSpace(out.Bytes()))
}

// object is the document's members, or nil when it is no object.
func (d Document) object() map[string]Document {
	var raw map[string]json.RawMessage
	if !strings.HasPrefix(string(d), "{") || json.Unmarshal([]byte(d), &raw) != nil {
		return nil
	}
	members := make(map[string]Document, len(raw))
	for key, value := range raw {
		members[key] = Document(value)
	}
	return members
}

// text is the operator ->> for scalars: nil where it answers null.
func (d Document) text(key string) *string {
	member, there := d.object()[key]
	if !there || member == "null" {
		return nil
	}
	text := string(member)
	if strings.HasPrefix(text, `"`) {
		if json.Unmarshal([]byte(member), &text) != nil {
			return nil
		}
	}
	return &text
}

// with sets string members given as key, value, key, value; a value that is a json.Number stays a number.
// What is no object counts as the empty one.
func (d Document) with(pairs ...any) Document {
	for i := 0; i+1 < len(pairs); i += 2 {
		d = d.withRaw(fmt.Sprint(pairs[i]), canonical(pairs[i+1]))
	}
	return d
}

// withRaw sets one member to a whole document.
func (d Document) withRaw(key string, value Document) Document {
	members := map[string]json.RawMessage{}
	for name, member := range d.object() {
		members[name] = json.RawMessage(member)
	}
	members[key] = json.RawMessage(value)
	return canonical(members)
}

func number(value int64) json.Number { return json.Number(strconv.FormatInt(value, 10)) }

func keys(members map[string]Document) iter.Seq[string] { return maps.Keys(members) }

// nextCounts names the kind of a snoozeCount and lists what may follow it. One value, but for the numbers of
// which the contract does not say whether they are integers to it (past 32 bits, 1.0, signs and spaces in
// text): there the value plus one and a fresh 1 are both lawful, failing is not.
func nextCounts(member Document) (kind string, lawful []json.Number) {
	const fresh = json.Number("1")
	text := string(member)
	switch {
	case member == "" || member == "null":
		return "absent or null", []json.Number{fresh}
	case strings.HasPrefix(text, `"`):
		kind, text = "text", *Document(`{"k":` + text + `}`).text("k")
	case strings.ContainsAny(text[:1], "tf{["):
		return "of another kind", []json.Number{fresh}
	default:
		kind = "number"
	}
	loose := regexp.MustCompile(`^\s*([+-]?[0-9]+)(\.0*)?\s*$`).FindStringSubmatch(text)
	if loose == nil {
		return kind + " that is no integer", []json.Number{fresh}
	}
	value, _ := new(big.Int).SetString(loose[1], 10)
	next := json.Number(new(big.Int).Add(value, big.NewInt(1)).String())
	plain := regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`).MatchString(text)
	if plain && value.IsInt64() && value.Int64() >= math.MinInt32 && value.Int64() <= math.MaxInt32 {
		return kind, []json.Number{next}
	}
	return kind + " unclear", []json.Number{next, fresh}
}

// Observed is the table after the call, by id. The model asks it only for what chance decided, and takes an
// answer only if it is lawful; otherwise it keeps a value that the comparison then shows.
type Observed map[string]Row

func (o Observed) token(id string, issued map[string]bool) string {
	actual := o[id].Metadata.text("claimToken")
	v4 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if actual == nil || !v4.MatchString(*actual) || issued[*actual] {
		return "a fresh random v4 uuid"
	}
	return *actual
}

func (o Observed) due(id string, earliest, latest int64) int64 {
	actual := o[id].AvailableAt
	if actual < earliest || actual > latest {
		return earliest
	}
	return actual
}

func (o Observed) count(id string, lawful []json.Number) json.Number {
	actual := o[id].Metadata.object()["snoozeCount"]
	for _, value := range lawful {
		if string(actual) == value.String() {
			return value
		}
	}
	return lawful[0]
}
