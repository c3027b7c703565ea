package lambda

import (
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

func (f *Function) signal(signal syscall.Signal) error {
	raw, err := os.ReadFile(filepath.Join(f.folder, "pid"))
	if err != nil {
		return fmt.Errorf("find the function's process: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("find the function's process: noted is %q", raw)
	}
	return syscall.Kill(pid, signal)
}
