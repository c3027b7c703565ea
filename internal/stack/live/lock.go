package live

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// lock is one that a process holds until it unlocks or ends, and whose holder the kernel names. It is a POSIX record
// lock: children don't inherit it.
type lock struct{ file *os.File }

func openLock(path string) (*lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // in the repository's own folder
	if err != nil {
		return nil, err
	}
	return &lock{file: file}, nil
}

func (l *lock) close() { _ = l.file.Close() }

// take takes the lock unless another process has it.
func (l *lock) take() (bool, error) {
	err := syscall.FcntlFlock(l.file.Fd(), syscall.F_SETLK, whole(syscall.F_WRLCK))
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", l.file.Name(), err)
	}
	return true, nil
}

// holder returns the id of the other process that has the lock; 0 for none.
func (l *lock) holder() (int, error) {
	asked := whole(syscall.F_WRLCK)
	if err := syscall.FcntlFlock(l.file.Fd(), syscall.F_GETLK, asked); err != nil {
		return 0, fmt.Errorf("ask for the holder of %s: %w", l.file.Name(), err)
	}
	if asked.Type == syscall.F_UNLCK {
		return 0, nil
	}
	return int(asked.Pid), nil
}

func whole(kind int16) *syscall.Flock_t {
	return &syscall.Flock_t{Type: kind, Whence: io.SeekStart}
}
