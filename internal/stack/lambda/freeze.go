package lambda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Freeze stops the function's process as Lambda does between invocations; the emulator goes on. There is a process from
// the first invocation on.
func (f *Function) Freeze() error { return f.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (f *Function) Thaw() error { return f.signal(syscall.SIGCONT) }

// Peak is the most resident memory that the function's process had so far, in bytes. Linux only. There is a process from the
// first invocation on, and another one after a crash.
func (f *Function) Peak() (int64, error) {
	pid, err := f.pid()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("read the function's memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10, nil
		}
	}
	return 0, errors.New("read the function's memory: no VmHWM")
}

func (f *Function) signal(signal syscall.Signal) error {
	pid, err := f.pid()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, signal)
}

func (f *Function) pid() (int, error) {
	raw, err := os.ReadFile(filepath.Join(f.folder, "pid"))
	if err != nil {
		return 0, fmt.Errorf("find the function's process: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("find the function's process: noted is %q", raw)
	}
	return pid, nil
}
