package lambda

import (
	"context"
	"fmt"
	"io"
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

// Function builds functions/<name> for this machine, as `make build` does for arm64, and returns its path.
func (b Builder) Function(ctx context.Context, name string) (string, error) {
	path, err := b.path(filepath.Join(name, "bootstrap"))
	if err != nil {
		return "", fmt.Errorf("build function %s: %w", name, err)
	}
	err = b.into(path, func(folder string) (string, error) {
		out := filepath.Join(folder, "bootstrap")
		return out, b.Compile(ctx, name, runtime.GOOS, runtime.GOARCH, out)
	})
	if err != nil {
		return "", fmt.Errorf("build function %s: %w", name, err)
	}
	return path, nil
}

// Compile builds functions/<name> for a platform into the file out, stripped and reproducible.
func (b Builder) Compile(ctx context.Context, name, goos, goarch, out string) error {
	cmd := b.command(ctx, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags", "lambda.norpc",
		"-o", out, "./functions/"+name)
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	return cmd.Run()
}

func (b Builder) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.Root, b.Log, b.Log
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	return cmd
}

// path is absolute: the Go tool works in another folder.
func (b Builder) path(name string) (string, error) {
	return filepath.Abs(filepath.Join(b.Root, ".local", "bin", name))
}

// into lets make build a program in a folder of its own and moves it to path.
func (b Builder) into(path string, make func(folder string) (string, error)) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	built, err := make(folder)
	if err != nil {
		return err
	}
	return os.Rename(built, path)
}
