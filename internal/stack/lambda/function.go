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
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
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
	address string
	cmd     *exec.Cmd
	folder  string // holds the launcher and the function's process id
	exited  chan struct{}
	turn    sync.Mutex
	once    sync.Once
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
	address, runtimeAPI, err := freeAddresses()
	if err != nil {
		return nil, fmt.Errorf("start function: %w", err)
	}
	folder, launcher, err := newLauncher(config.Binary)
	if err != nil {
		return nil, fmt.Errorf("start function: %w", err)
	}
	cmd := exec.Command(config.Emulator, "--log-level", "warn",
		"--runtime-interface-emulator-address", address, "--runtime-api-address", runtimeAPI, launcher, "bootstrap")
	cmd.Env = append(append(os.Environ(), config.Env...),
		"AWS_LAMBDA_FUNCTION_TIMEOUT="+strconv.Itoa(int(timeout.Seconds())), "AWS_LAMBDA_LOG_FORMAT=JSON",
		// The emulator looks for these in files when they are not set; nothing here needs them.
		"AWS_ACCESS_KEY_ID="+orDefault(os.Getenv("AWS_ACCESS_KEY_ID"), "local"),
		"AWS_SECRET_ACCESS_KEY="+orDefault(os.Getenv("AWS_SECRET_ACCESS_KEY"), "local"))
	cmd.Stdout, cmd.Stderr = config.Log, config.Log
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start function: %w", err), os.RemoveAll(folder))
	}
	f := &Function{address: address, cmd: cmd, folder: folder, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // a killed sandbox ends with an error: that is what Kill is for
		close(f.exited)
	}()
	if err := f.await(ctx); err != nil {
		f.Kill()
		return nil, fmt.Errorf("start function: %w", err)
	}
	return f, nil
}

func (f *Function) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.DialTimeout("tcp", f.address, time.Second); err == nil {
			return conn.Close()
		}
		select {
		case <-f.exited:
			return errors.New("the emulator ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("the emulator is not ready on %s: %w", f.address, ctx.Err())
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
	defer resp.Body.Close()
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
		_ = f.cmd.Process.Kill()
		// The emulator gives the function a process group of its own, so it has to be found.
		if raw, err := os.ReadFile(filepath.Join(f.folder, "pid")); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		_ = os.RemoveAll(f.folder)
	})
	<-f.exited
}

// newLauncher makes the program that the emulator starts: it notes its process id and becomes the function.
func newLauncher(binary string) (folder, launcher string, err error) {
	if binary, err = filepath.Abs(binary); err != nil {
		return "", "", err
	}
	if folder, err = os.MkdirTemp("", "outbox-lambda-"); err != nil {
		return "", "", err
	}
	launcher = filepath.Join(folder, "bootstrap")
	script := fmt.Sprintf("#!/bin/sh\necho $$ >%s\nexec %s \"$@\"\n", quote(filepath.Join(folder, "pid")), quote(binary))
	if err := os.WriteFile(launcher, []byte(script), 0o700); err != nil {
		return "", "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, launcher, nil
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// Stop ends the sandbox. Nothing in it is worth a farewell: correctness never depends on one.
func (f *Function) Stop() { f.Kill() }

// Succeeded tells whether a reply is a JSON object that says ok.
func Succeeded(reply []byte) bool {
	var answer struct {
		OK bool `json:"ok"`
	}
	return json.Unmarshal(reply, &answer) == nil && answer.OK
}

// freeAddresses returns two loopback addresses that were free a moment ago.
func freeAddresses() (string, string, error) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer first.Close()
	second, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer second.Close()
	return first.Addr().String(), second.Addr().String(), nil
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
