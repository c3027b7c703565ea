package routes_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/internal/routes"
)

func TestDocumentedFileIsAccepted(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ := strings.Cut(string(content), "```yaml\n")
	file, _, found := strings.Cut(file, "```")
	if !found {
		t.Fatal("docs/routes.md holds no example")
	}
	if _, err := routes.Parse([]byte(file), "docs/routes.md", environment); err != nil {
		t.Error(err)
	}
	if err := validate(compileSchema(t), file); err != nil {
		t.Error(err)
	}
}

// What the parser takes in a kind, what the schema describes and what the table of fields explains is the same.
func TestEveryFieldOfEveryKindIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("../../docs/routes.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type object struct{ Properties map[string]json.RawMessage }
	var schema struct {
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	kinds := taken(t, withKind("hunter2: {}"))
	if got := slices.Sorted(maps.Keys(schema.Defs["destination"].Properties)); !slices.Equal(got, kinds) {
		t.Errorf("kinds: schema %v, parser %v", got, kinds)
	}
	for _, kind := range kinds {
		fields := taken(t, withKind(kind+": {hunter2: x}"))
		if got := slices.Sorted(maps.Keys(schema.Defs[kind].Properties)); !slices.Equal(got, fields) {
			t.Errorf("%s: schema %v, parser %v", kind, got, fields)
		}
		var rows []string
		for _, row := range regexp.MustCompile("(?m)^\\| `"+kind+"\\.([a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
			rows = append(rows, row[1])
		}
		if slices.Sort(rows); !slices.Equal(rows, fields) {
			t.Errorf("%s: docs/routes.md has rows for %v, the parser takes %v", kind, rows, fields)
		}
		if !strings.Contains(string(page), "| `destinations.*."+kind+"` |") {
			t.Errorf("docs/routes.md has no row for the kind %s", kind)
		}
	}
}

// taken are the keys that the fault of an unknown key lists, sorted.
func taken(t *testing.T, file string) []string {
	t.Helper()
	_, err := routes.Parse([]byte(file), "f", environment)
	if err == nil {
		t.Fatal("accepted an unknown key")
	}
	_, list, found := strings.Cut(err.Error(), `unknown key "hunter2", takes `)
	if !found {
		t.Fatalf("no fault of an unknown key: %v", err)
	}
	list, _, _ = strings.Cut(list, "\n")
	return slices.Sorted(strings.SplitSeq(list, ", "))
}
