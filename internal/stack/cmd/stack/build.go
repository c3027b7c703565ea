package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
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
		if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
			return err
		}
		if err := builder.Compile(ctx, name, "linux", "arm64", binary); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		archive := filepath.Join("dist", name+".zip")
		if err := zipBootstrap(binary, archive); err != nil {
			return fmt.Errorf("zip %s: %w", name, err)
		}
		info, err := os.Stat(archive)
		if err != nil {
			return err
		}
		fmt.Printf("%s  %.1f MB\n", archive, float64(info.Size())/1e6)
	}
	return nil
}

// zipBootstrap writes an archive that holds the binary at its root, with a fixed time and mode, so that the same
// binary always makes the same bytes.
func zipBootstrap(binary, archive string) (err error) {
	in, err := os.Open(binary)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	writer := zip.NewWriter(out)
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	header.SetMode(0o755)
	file, err := writer.CreateHeader(header)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, in); err != nil {
		return err
	}
	return writer.Close()
}
