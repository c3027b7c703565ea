package routes_test

import (
	"encoding/json"
	"errors"
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

type object struct {
	Properties           map[string]json.RawMessage
	AdditionalProperties json.RawMessage
}

// What the parser takes, what the schema describes and what the table of fields explains is the same.
func TestEveryFieldIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Fields\n")
	table, _, _ = strings.Cut(table, "\n**")
	content, err := os.ReadFile("../../docs/routes.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	var section, route object
	if err := errors.Join(
		json.Unmarshal(content, &schema), json.Unmarshal(schema.Properties["routes"], &section),
		json.Unmarshal(section.AdditionalProperties, &route),
	); err != nil {
		t.Fatal(err)
	}
	check := func(place, rows string, fields []string, described object) {
		if got := slices.Sorted(maps.Keys(described.Properties)); !slices.Equal(got, fields) {
			t.Errorf("%s: schema %v, parser %v", place, got, fields)
		}
		var documented []string
		for _, row := range regexp.MustCompile("(?m)^\\| `"+rows+"([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
			documented = append(documented, row[1])
		}
		if slices.Sort(documented); !slices.Equal(documented, fields) {
			t.Errorf("%s: docs/routes.md has rows for %v, the parser takes %v", place, documented, fields)
		}
	}
	check("file", "", taken(t, "version: 1\nhunter2: x\n"), schema.object)
	check("route", `routes\.\*\.`, taken(t, withRoute("hunter2: x")), route)
	fields := taken(t, withKind("hunter2: {}"))
	check("destination", `destinations\.\*\.`, fields, schema.Defs["destination"])
	for _, kind := range fields {
		if described, isKind := schema.Defs[kind]; isKind && described.Properties != nil {
			check(kind, kind+`\.`, taken(t, withKind(kind+": {hunter2: x}")), described)
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
