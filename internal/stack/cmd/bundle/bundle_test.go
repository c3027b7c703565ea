package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheSameFilesMakeTheSameArchive(t *testing.T) {
	t.Parallel()
	first, second := archiveOf(t, time.Unix(1e9, 0)), archiveOf(t, time.Unix(2e9, 0))
	if !bytes.Equal(first, second) {
		t.Error("two archives of the same content at different times differ")
	}
}

func TestTheArchiveHoldsTheFilesAtItsRootWithTheirModes(t *testing.T) {
	t.Parallel()
	content := archiveOf(t, time.Unix(1e9, 0))
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range archive.File {
		got = append(got, fmt.Sprintf("%s %v", file.Name, file.Mode()))
	}
	if want := "bootstrap -rwxr-xr-x, routes.yaml -rw-r--r--"; strings.Join(got, ", ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestMistakesInTheCommandLineAreTold(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"-function other -into x": `-function is "other", takes dispatch or migrate`,
		"-function dispatch":      "-into is missing",
		"-into x":                 `-function is ""`,
		"dispatch":                `unexpected "dispatch"`,
	} {
		err := run(t.Context(), strings.Fields(line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
}

// archiveOf packs two files that were last changed at a time.
func archiveOf(t *testing.T, changed time.Time) []byte {
	t.Helper()
	folder := t.TempDir()
	var files []string
	for _, file := range []struct {
		name string
		mode os.FileMode
	}{{"bootstrap", modeProgram}, {"routes.yaml", modeText}} {
		path := filepath.Join(folder, file.name)
		if err := os.WriteFile(path, []byte("content of "+file.name), file.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, file.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, changed, changed); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	archive := filepath.Join(folder, "it.zip")
	if err := pack(archive, files); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
