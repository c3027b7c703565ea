package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// The samples of events/, all of them: those of this function with what they ask for, the others by the function
// whose tests read them.
func TestEverySampleEventIsUnderstood(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"migrate-up.json": "up", "migrate-status.json": "status", "migrate-verify.json": "verify",
		"custom-resource-create.json": "Create", "custom-resource-update.json": "Update", "custom-resource-delete.json": "Delete",
	}
	entries, err := os.ReadDir("../../events")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == "env.json" || strings.HasPrefix(name, "dispatch") || strings.HasPrefix(name, "schedule") {
			continue
		}
		sample := json.RawMessage(fixture(t, name))
		event, found, err := parseResource(sample)
		got := string(event.RequestType)
		if err == nil && !found {
			got, err = parseEvent(sample)
		}
		if err != nil || got != want[name] {
			t.Errorf("%s asks for %q (%v), want %q", name, got, err, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not in events: %v", want)
	}
}

func TestTheSampleEnvironmentConfiguresTheFunction(t *testing.T) {
	t.Parallel()
	var functions map[string]map[string]string
	if err := json.Unmarshal([]byte(fixture(t, "env.json")), &functions); err != nil {
		t.Fatal(err)
	}
	if len(functions) != 2 || functions["Dispatch"] == nil || functions["Migrate"] == nil {
		t.Errorf("env.json has %v, want exactly Dispatch and Migrate", functions)
	}
	template, err := os.ReadFile("../../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for function, variables := range functions {
		for name := range variables {
			// sam local invoke passes no variable that the template does not declare.
			if !strings.Contains(string(template), "\n          "+name+": ") {
				t.Errorf("env.json sets %s of %s, which template.yaml does not declare", name, function)
			}
		}
	}
	read := map[string]bool{}
	_, err = loadConfig(func(name string) string {
		read[name] = true
		return functions["Migrate"][name]
	})
	if err != nil {
		t.Errorf("env.json of Migrate: %v", err)
	}
	for name := range functions["Migrate"] {
		if !read[name] {
			t.Errorf("env.json sets %s, which the function does not read", name)
		}
	}
}
