package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// The samples of events/ that are this function's; package migrate's test refuses names that belong to neither.
func TestEverySampleEventIsUnderstood(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"dispatch*.json", "schedule*.json"} {
		found, err := filepath.Glob("../../events/" + pattern)
		if err != nil || found == nil {
			t.Fatalf("samples %s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		sample, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseEvent(sample, []string{"order.placed"}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestTheSampleEnvironmentConfiguresTheFunction(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../events/env.json")
	if err != nil {
		t.Fatal(err)
	}
	var functions struct{ Dispatch map[string]string }
	if err := json.Unmarshal(text, &functions); err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	c, err := loadConfig(t.Context(), func(name string) string {
		read[name] = true
		return functions.Dispatch[name]
	}, noAWS)
	if err != nil || c.worker.Registry["order.placed"].Handler == nil {
		t.Errorf("env.json of Dispatch: %v, want a configuration with a route for order.placed, as the samples use", err)
	}
	for name := range functions.Dispatch {
		if !read[name] {
			t.Errorf("env.json sets %s, which the function does not read", name)
		}
	}
}
