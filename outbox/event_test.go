package outbox_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox"
)

func TestClaimTokenAndSnoozeCountAreReadFromTheObjectItself(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]struct {
		token   string
		snoozes int
	}{
		`{"claimToken": "a-1", "snoozeCount": 3}`:                         {"a-1", 3},
		`{"snoozeCount":"4","claimToken":"b"}`:                            {"b", 4},
		" {\n\t\"claimToken\" : \"c\" , \"x\" : 1 } ":                     {"c", 0},
		`{"claimToken": "q\"u\\o\u00e9\n"}`:                               {"q\"u\\oé\n", 0},
		`{"claimToken": "ä, ]} :"}`:                                       {"ä, ]} :", 0},
		`{"x": {"claimToken": "inner", "snoozeCount": 9}}`:                {"", 0},
		`{"x": ["claimToken", {"claimToken": "y"}], "claimToken": "out"}`: {"out", 0},
		`{"claimToken": "first", "x": "\"claimToken\": \"second\""}`:      {"first", 0},
		`{"x\\": "claimToken", "y": "claimToken"}`:                        {"", 0},
		`{"claimtoken": "a", "ClaimToken": "b"}`:                          {"", 0},
		`{"claimToken": 7, "snoozeCount": [1]}`:                           {"", 0},
		`{"claimToken": {"a": "b"}, "snoozeCount": {"snoozeCount": 5}}`:   {"", 0},
		`{"claimToken": null, "snoozeCount": null}`:                       {"", 0},
		`{"claimToken": "", "snoozeCount": 1.5}`:                          {"", 0},
		`[{"claimToken": "a"}]`:                                           {"", 0},
		`["claimToken", "a"]`:                                             {"", 0},
		`"claimToken"`:                                                    {"", 0},
		`null`:                                                            {"", 0},
		`{}`:                                                              {"", 0},
		``:                                                                {"", 0},
		`{"claimToken": "cut`:                                             {"", 0},
		`{"claimToken": "cut\`:                                            {"", 0},
		`{"claimToken"`:                                                   {"", 0},
		`}{"claimToken": "a"`:                                             {"", 0},
	} {
		event := outbox.Event{Metadata: json.RawMessage(metadata)}
		if got := event.ClaimToken(); got != want.token {
			t.Errorf("claim token of %s is %q, want %q", metadata, got, want.token)
		}
		if got := event.SnoozeCount(); got != want.snoozes {
			t.Errorf("snooze count of %s is %d, want %d", metadata, got, want.snoozes)
		}
	}
}

// Whatever stands beside the token, it is what a full reading of the JSON finds.
func TestClaimTokenIsWhatJSONSays(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		metadata, err := json.Marshal(randomValue(random, 0))
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		_ = json.Unmarshal(metadata, &object) // no object holds no token
		want, _ := object["claimToken"].(string)
		if got := (outbox.Event{Metadata: metadata}).ClaimToken(); got != want {
			t.Errorf("claim token of %s is %q, want %q", metadata, got, want)
		}
	}
}

// randomValue makes an object, mostly, of words that are easily taken for something else.
func randomValue(random *rand.Rand, depth int) any {
	words := []string{"claimToken", `"`, `\`, `\"`, "{", "}", "[", "]", ",", ":", `"claimToken":"x"`, "é", "\u2028", "<", "", "\n"}
	word := func() string { return words[random.IntN(len(words))] + words[random.IntN(len(words))] }
	switch kind := random.IntN(8); {
	case depth == 0 && kind > 0, depth < 4 && kind < 3:
		object := map[string]any{}
		for range random.IntN(5) {
			object[words[random.IntN(len(words))]] = randomValue(random, depth+1)
		}
		return object
	case depth < 4 && kind == 3:
		list := []any{}
		for range random.IntN(4) {
			list = append(list, randomValue(random, depth+1))
		}
		return list
	case kind == 4:
		return random.Float64()
	default:
		return word()
	}
}
