package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"time"
)

// Limits of an end. A stack that doesn't end by itself is killed; then its guards end what it started.
const (
	farewellLimit = 20 * time.Second
	guardLimit    = 15 * time.Second
)

// Down ends the stack and removes its files. It does the same after a crash, and says so when nothing runs.
func Down(ctx context.Context, config Config) error {
	p := place{path: config.Folder}
	l, err := openLock(p.lock())
	if err != nil {
		return err
	}
	defer l.close()
	pid, err := end(ctx, l)
	if err != nil {
		return err
	}
	awaitGuards(ctx, p, pid != 0)
	free, err := l.take()
	if err != nil {
		return err
	}
	if !free {
		return errors.New("the stack was started again meanwhile")
	}
	found, err := p.clean()
	if err != nil {
		return err
	}
	text := "nothing was running"
	switch {
	case pid != 0:
		text = fmt.Sprintf("the stack (process %d) has ended, and its files are gone", pid)
	case found:
		text = "nothing was running; the files of a stack that died are gone"
	}
	_, err = fmt.Fprintln(config.Out, text)
	return err
}

// awaitGuards waits until whatever the stack started is gone: each guard removes its process's folder when that has ended.
// After a crash of the machine folders stay that nobody will remove, which shows by a database that doesn't listen.
func awaitGuards(ctx context.Context, p place, ran bool) {
	state, err := p.readState()
	if err != nil || state == nil {
		return // whatever is wrong with the file, it goes
	}
	limit := guardLimit
	if !ran && !listening(ctx, state.Database) {
		limit = time.Second
	}
	until(ctx, limit, func() bool { return empty(state.Folder) })
}

// end ends the process that holds the lock, and returns its id; 0 when there is none.
func end(ctx context.Context, l *lock) (first int, err error) {
	for {
		pid, err := l.holder()
		if err != nil || pid == 0 {
			return first, err
		}
		if first == 0 {
			first = pid
		}
		gone := func() bool {
			now, err := l.holder()
			return err != nil || now != pid
		}
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			if err := syscall.Kill(pid, signal); err != nil && !gone() {
				return first, fmt.Errorf("end process %d: %w", pid, err)
			}
			if until(ctx, farewellLimit, gone) {
				break
			}
		}
		if !gone() {
			return first, fmt.Errorf("process %d does not end: %w", pid, context.Cause(ctx))
		}
	}
}

// listening tells whether somebody accepts connections where the URL points.
func listening(ctx context.Context, address string) bool {
	parsed, err := url.Parse(address)
	if err != nil {
		return false
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", parsed.Host)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func empty(folder string) bool {
	entries, err := os.ReadDir(folder)
	return err != nil || len(entries) == 0
}
