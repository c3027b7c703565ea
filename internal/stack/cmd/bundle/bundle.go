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

// Modes in the bundle. In Lambda the code runs as another user than the one who owns the files.
const (
	modeProgram fs.FileMode = 0o755
	modeText    fs.FileMode = 0o644
)

// all makes dist/<name>/ and a reproducible dist/<name>.zip of each function.
func all(ctx context.Context, builder lambda.Builder) error {
	for _, name := range []string{"dispatch", "migrate"} {
		files, err := place(ctx, builder, name, filepath.Join("dist", name))
		if err != nil {
			return err
		}
		archive := filepath.Join("dist", name+".zip")
		if err := pack(archive, files); err != nil {
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

// place puts the files of a function's bundle into a folder and returns their paths: the binary and, if the function
// ships some, the routes.
func place(ctx context.Context, builder lambda.Builder, name, folder string) ([]string, error) {
	folder, err := filepath.Abs(folder) // the Go tool works in another one
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", name, err)
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return nil, fmt.Errorf("build %s: %w", name, err)
	}
	binary, routes := filepath.Join(folder, "bootstrap"), filepath.Join(folder, "routes.yaml")
	if err := builder.Compile(ctx, name, "linux", "arm64", binary); err != nil {
		return nil, fmt.Errorf("build %s: %w", name, err)
	}
	if err := os.Chmod(binary, modeProgram); err != nil { // whatever the umask
		return nil, fmt.Errorf("build %s: %w", name, err)
	}
	text, err := os.ReadFile(builder.Routes(name))
	if errors.Is(err, fs.ErrNotExist) {
		return []string{binary}, nil
	}
	if err == nil {
		err = errors.Join(os.WriteFile(routes, text, modeText), os.Chmod(routes, modeText)) //nolint:gosec // the folder is the caller's choice
	}
	if err != nil {
		return nil, fmt.Errorf("routes of %s: %w", name, err)
	}
	return []string{binary, routes}, nil
}

// pack writes an archive of the files, all at its root. Order, time and modes are fixed, so that the same content always
// makes the same bytes.
func pack(archive string, files []string) (err error) {
	out, err := os.Create(archive) //nolint:gosec // in dist/
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	writer := zip.NewWriter(out)
	for _, path := range files {
		if err := add(writer, path); err != nil {
			return err
		}
	}
	return writer.Close()
}

func add(writer *zip.Writer, path string) error {
	content, err := os.ReadFile(path) //nolint:gosec // one of ours
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	header := &zip.FileHeader{
		Name: filepath.Base(path), Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	header.SetMode(info.Mode())
	file, err := writer.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return err
}
