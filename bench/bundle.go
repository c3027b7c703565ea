package main

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

// bundle measures the zipped functions, built for Lambda as make build does.
func (b *bench) bundle(ctx context.Context) (err error) {
	folder, err := os.MkdirTemp("", "outbox-bench-")
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	builder := lambda.Builder{Root: b.root, Log: os.Stderr}
	for _, f := range []struct {
		name  string
		limit float64
	}{{"dispatch", 8}, {"migrate", 6}} {
		binary := filepath.Join(folder, "bootstrap")
		if err := builder.Compile(ctx, f.name, "linux", "arm64", binary); err != nil {
			return fmt.Errorf("build %s: %w", f.name, err)
		}
		size, err := zipped(binary)
		if err != nil {
			return fmt.Errorf("zip %s: %w", f.name, err)
		}
		b.goal(figure{Name: "bundle_" + f.name, Value: float64(size) / 1e6, Unit: "MB"}, atMost(f.limit))
	}
	return nil
}

// zipped returns the size of an archive that holds one file.
func zipped(path string) (int, error) {
	content, err := os.ReadFile(path) //nolint:gosec // our own
	if err != nil {
		return 0, err
	}
	var archive bytes.Buffer
	writer := zip.NewWriter(&archive)
	file, err := writer.Create(filepath.Base(path))
	if err != nil {
		return 0, err
	}
	if _, err := file.Write(content); err != nil {
		return 0, err
	}
	err = writer.Close()
	return archive.Len(), err
}
