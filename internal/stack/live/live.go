// Package live keeps the whole rail running for exploration: `make up` starts it in the background, `make down` ends it.
//
// One process keeps all of it, and holds a lock in .local as long as it lives. The kernel knows who holds the lock, so
// whether the stack runs, and which process it is, is never a matter of a stale file.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// State is what the running stack tells about itself, in a file that exists once it is ready.
type State struct {
	Process  int
	Since    time.Time
	Database string            // URL
	Cloud    string            // endpoint of SNS, SQS and SES
	Hook     string            // URL of the webhook receiver
	Queues   map[string]string // URLs, by name
	Folder   string            // of this run's temporary files
}

// place is the folder of the stack's files, .local in the repository's root.
type place struct{ path string }

func (p place) lock() string     { return filepath.Join(p.path, "up.lock") }
func (p place) dir() string      { return filepath.Join(p.path, "up") }
func (p place) state() string    { return filepath.Join(p.dir(), "state.json") }
func (p place) folder() string   { return filepath.Join(p.dir(), "folder") } // holds the name of the temporary folder
func (p place) log() string      { return filepath.Join(p.dir(), "log") }
func (p place) received() string { return filepath.Join(p.dir(), "received") }

// readState returns nil as long as the stack is not ready.
func (p place) readState() (*State, error) {
	text, err := os.ReadFile(p.state())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, err
	}
	var s State
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", p.state(), err)
	}
	return &s, nil
}

// writeState makes the file appear whole.
func (p place) writeState(s State) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	draft := p.state() + ".new"
	if err := os.WriteFile(draft, text, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, p.state())
}

// clean removes the files of a stack that has ended, however it did, and tells whether there were any.
func (p place) clean() (bool, error) {
	folder, err := os.ReadFile(p.folder())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if len(folder) > 0 {
		if err := os.RemoveAll(string(folder)); err != nil { //nolint:gosec // a name that [temporary] wrote
			return false, err
		}
	}
	_, err = os.Stat(p.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, errors.Join(err, os.RemoveAll(p.dir()))
}

// until calls done every so often until it says yes; false means that the limit or ctx came first.
func until(ctx context.Context, limit time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
