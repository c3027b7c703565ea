package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

// build makes both functions for Lambda on arm64, and reproducible zips of them.
func build(ctx context.Context) error {
	builder := lambda.Builder{Root: ".", Log: os.Stderr}
	for _, name := range []string{"dispatch", "migrate"} {
		binary, err := filepath.Abs(filepath.Join("dist", name, "bootstrap"))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(binary), 0o750); err != nil {
			return err
		}
		if err := builder.Compile(ctx, name, "linux", "arm64", binary); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		archive := filepath.Join("dist", name+".zip")
		if err := bundle(archive, binary, builder.Routes(name)); err != nil {
			return fmt.Errorf("zip %s: %w", name, err)
		}
		info, err := os.Stat(archive)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(os.Stdout, "%s  %.1f MB\n", archive, float64(info.Size())/1e6); err != nil {
			return err
		}
	}
	return nil
}

// bundle writes an archive that holds the binary at its root and, beside it, the routes if that file exists. Time and
// modes are fixed, so that the same content always makes the same bytes.
func bundle(archive, binary, routes string) (err error) {
	out, err := os.Create(archive) //nolint:gosec // in dist/
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	writer := zip.NewWriter(out)
	if err := add(writer, binary, 0o755); err != nil {
		return err
	}
	if err := add(writer, routes, 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writer.Close()
}

func add(writer *zip.Writer, path string, mode fs.FileMode) error {
	content, err := os.ReadFile(path) //nolint:gosec // one of ours
	if err != nil {
		return err
	}
	header := &zip.FileHeader{
		Name: filepath.Base(path), Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	header.SetMode(mode)
	file, err := writer.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return err
}
