package postgres

import (
	"cmp"
	"context"
	_ "embed" // the library's source
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

//go:embed clock.c.txt
var clockSource []byte

// clock returns the environment that puts a server's clock ahead: a small library, compiled here, which it loads before the C
// library's own.
func (s *Server) clock(ctx context.Context, ahead time.Duration, who *user) ([]string, error) {
	if ahead == 0 {
		return nil, nil
	}
	if runtime.GOOS != "linux" {
		return nil, errors.New("a clock that is off needs Linux")
	}
	source, library := filepath.Join(s.folder, "clock.c"), filepath.Join(s.folder, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	compiler := cmp.Or(os.Getenv("CC"), "cc") //nolint:forbidigo // whom the Go tool would call
	//nolint:gosec // the user's own compiler
	out, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("compile the clock: %w: %s", err, out)
	}
	return []string{"LD_PRELOAD=" + library, "OUTBOX_CLOCK_AHEAD=" + strconv.Itoa(int(ahead.Seconds()))}, who.own(library)
}
