package lambda

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// The runtime interface emulator, pinned.
const (
	emulatorPackage = "github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie"
	emulatorVersion = "v0.0.0-20261030222936-bef5c4ba774d"
)

// Builder builds what a local function needs into <Root>/.local/bin. Several may build at the same time: each
// program appears whole, by a rename.
type Builder struct {
	Root string    // of the repository
	Log  io.Writer // what the Go tool prints
}

// Emulator returns the path of the emulator, installing it once.
func (b Builder) Emulator(ctx context.Context) (string, error) {
	path, err := b.path("aws-lambda-rie-" + emulatorVersion)
	if err != nil {
		return "", fmt.Errorf("install the runtime emulator: %w", err)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	err = b.into(path, func(folder string) (string, error) {
		cmd := b.command(ctx, "install", emulatorPackage+"@"+emulatorVersion)
		cmd.Env = append(cmd.Env, "GOBIN="+folder)
		return filepath.Join(folder, "aws-lambda-rie"), cmd.Run()
	})
	if err != nil {
		return "", fmt.Errorf("install the runtime emulator: %w", err)
	}
	return path, nil
}

// Function builds functions/<name> for this machine, as `make build` does for arm64, and returns the path of its
// bootstrap. As in the bundle, the function's routes.yaml, if it has one, stands beside it.
func (b Builder) Function(ctx context.Context, name string) (string, error) {
	path, err := b.Built(name)
	if err != nil {
		return "", fmt.Errorf("build function %s: %w", name, err)
	}
	err = b.into(path, func(folder string) (string, error) {
		out := filepath.Join(folder, "bootstrap")
		return out, b.Compile(ctx, name, runtime.GOOS, runtime.GOARCH, out)
	})
	if err == nil {
		err = b.copyRoutes(name, filepath.Dir(path))
	}
	if err != nil {
		return "", fmt.Errorf("build function %s: %w", name, err)
	}
	return path, nil
}

// Built returns the path at which [Builder.Function] leaves the bootstrap of functions/<name>.
func (b Builder) Built(name string) (string, error) { return b.path(filepath.Join(name, "bootstrap")) }

// Compile builds functions/<name> for a platform into the file out, stripped and reproducible.
func (b Builder) Compile(ctx context.Context, name, goos, goarch, out string) error {
	cmd := b.command(ctx, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags", "lambda.norpc",
		"-o", out, "./functions/"+name)
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	return cmd.Run()
}

// Routes returns the path of the routes that ship with functions/<name>, whether or not it has any.
func (b Builder) Routes(name string) string {
	return filepath.Join(b.Root, "functions", name, "routes.yaml")
}

func (b Builder) copyRoutes(name, folder string) error {
	routes, err := os.ReadFile(b.Routes(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return b.into(filepath.Join(folder, "routes.yaml"), func(folder string) (string, error) {
		out := filepath.Join(folder, "routes.yaml")
		return out, os.WriteFile(out, routes, 0o600) //nolint:gosec // in our own folder
	})
}

func (b Builder) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // arguments from this file and our own callers
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.Root, b.Log, b.Log
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	return cmd
}

// path is absolute: the Go tool works in another folder.
func (b Builder) path(name string) (string, error) {
	return filepath.Abs(filepath.Join(b.Root, ".local", "bin", name))
}

// into lets build make a program in a folder of its own and moves it to path.
func (b Builder) into(path string, build func(folder string) (string, error)) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), "build-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	built, err := build(folder)
	if err != nil {
		return err
	}
	return os.Rename(built, path)
}
