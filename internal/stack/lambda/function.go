// Package lambda runs the project's functions as AWS Lambda would: the built binary under the official runtime
// interface emulator, on free loopback ports of its own.
package lambda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/guard"
	"github.com/openlup/outbox-dispatch/internal/stack/port"
)

const startLimit = 20 * time.Second

// Config of a local function.
type Config struct {
	Emulator string        // path of the emulator
	Binary   string        // path of the function's bootstrap
	Env      []string      // NAME=value, added to this process's own environment
	Timeout  time.Duration // of an invocation, in whole seconds; zero means 30 s
	Log      io.Writer     // what function and emulator print; nil drops it
}

// Function is one sandbox: an emulator and, from the first invocation on, the function's process. The emulator takes
// one invocation at a time; Invoke waits its turn.
type Function struct {
	address  string
	emulator *guard.Process
	folder   string // of the emulator; holds the function's process id
	turn     sync.Mutex
	once     sync.Once
}

// Start starts a sandbox and waits until it takes invocations. The caller stops it.
func Start(ctx context.Context, config Config) (*Function, error) {
	timeout := config.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	if timeout < time.Second || timeout%time.Second != 0 {
		return nil, fmt.Errorf("start function: timeout %v, takes whole seconds from 1 on", timeout)
	}
	binary, err := filepath.Abs(config.Binary)
	if err != nil {
		return nil, fmt.Errorf("start function: %w", err)
	}
	address, runtimeAPI, err := port.FreeAddresses(ctx)
	if err != nil {
		return nil, fmt.Errorf("start function: %w", err)
	}
	folder, err := os.MkdirTemp("", "outbox-lambda-")
	if err != nil {
		return nil, fmt.Errorf("start function: %w", err)
	}
	command := guard.Command{Folder: folder, Dir: ".", Env: environment(config.Env, timeout), Output: config.Log}
	command.Args = append([]string{
		config.Emulator, "--log-level", "warn",
		"--runtime-interface-emulator-address", address, "--runtime-api-address", runtimeAPI,
	}, launcher(binary, folder)...)
	emulator, err := guard.Start(command)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start function: %w", err), os.RemoveAll(folder))
	}
	f := &Function{address: address, emulator: emulator, folder: folder}
	if err := errors.Join(f.await(ctx, runtimeAPI), f.await(ctx, address)); err != nil {
		f.Kill()
		return nil, fmt.Errorf("start function: %w", err)
	}
	return f, nil
}

// await waits until the emulator listens on the address.
func (f *Function) await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	dialer := net.Dialer{Timeout: time.Second}
	for {
		if conn, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			return conn.Close()
		}
		select {
		case <-f.emulator.Done():
			return fmt.Errorf("the emulator ended before it was ready: %w", f.emulator.Err())
		case <-ctx.Done():
			return fmt.Errorf("the emulator is not ready on %s: %w", address, ctx.Err())
		case <-tick.C:
		}
	}
}

// Invoke sends one event and returns the reply: the function's JSON, or the emulator's text when the function timed
// out or died. An error means that there is no reply, for example since the sandbox was killed.
func (f *Function) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	f.turn.Lock()
	defer f.turn.Unlock()
	url := "http://" + f.address + "/2015-03-31/functions/function/invocations"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(event))
	if err != nil {
		return nil, fmt.Errorf("invoke: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("invoke: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("invoke: %w", err)
	}
	return bytes.TrimSpace(reply), nil
}

// Kill ends the sandbox at once, emulator and function, as when a machine dies. It may be called again, and during an
// invocation.
func (f *Function) Kill() {
	f.once.Do(func() {
		// The emulator gives the function a process group of its own, so it has to be found.
		raw, noted := os.ReadFile(filepath.Join(f.folder, "pid"))
		f.emulator.Kill()
		pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		if noted == nil && err == nil && pid > 1 {
			_ = syscall.Kill(-pid, syscall.SIGKILL) // it may have ended with the emulator
		}
	})
	f.emulator.Stop()
}

// launcher is the command line that the emulator starts: a shell that notes its process id and becomes the function.
// Its last word is the handler, which a bootstrap has no use for.
func launcher(binary, folder string) []string {
	return []string{"/bin/sh", "-c", "echo $$ >" + quote(filepath.Join(folder, "pid")) + `; exec "$0"`, binary, "bootstrap"}
}

// environment is ours, the caller's, and what the emulator reads.
func environment(extra []string, timeout time.Duration) []string {
	all := append(os.Environ(), extra...) //nolint:forbidigo // handed on
	all = append(all, "AWS_LAMBDA_FUNCTION_TIMEOUT="+strconv.Itoa(int(timeout.Seconds())), "AWS_LAMBDA_LOG_FORMAT=JSON")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		// The emulator looks for these in files when they are not set; nothing here needs them.
		if os.Getenv(name) == "" { //nolint:forbidigo // handed on
			all = append(all, name+"=local")
		}
	}
	return all
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// Stop ends the sandbox. Nothing in it is worth a farewell: correctness never depends on one.
func (f *Function) Stop() { f.Kill() }

// Succeeded tells whether a reply is a JSON object that says ok, or what a custom resource's provider told
// CloudFormation, if that was success.
func Succeeded(reply []byte) bool {
	var answer struct {
		OK     bool   `json:"ok"`
		Status string `json:"Status"`
	}
	return json.Unmarshal(reply, &answer) == nil && (answer.OK || answer.Status == "SUCCESS")
}
