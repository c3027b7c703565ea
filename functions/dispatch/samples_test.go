package main

import (
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
