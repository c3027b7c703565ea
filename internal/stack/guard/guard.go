// Package guard runs a process that cannot outlive the one that started it, however that one ends.
//
// Between the two stands a shell that waits on a pipe: when the starter closes the pipe, or dies and so lets the
// kernel close it, the shell ends the process and removes its folder. That works alike on Linux and macOS, and for
// any user, and needs no second program.
package guard

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// script: $1 is the signal that ends the process, $2 the folder to remove (empty for none), then its command line.
// The watcher reads a copy of the pipe, because a shell gives its background processes an empty standard input.
// The shell itself ignores PIPE: it reports a killed process, by then perhaps to nobody, and must still clean up.
const script = `
signal=$1 folder=$2; shift 2
trap '' PIPE
exec 3<&0
( trap - PIPE; exec "$@" </dev/null 3<&- ) &
pid=$!
( read -r _ <&3
  kill -"$signal" $pid
  tenths=0
  while [ $tenths -lt 100 ] && kill -0 $pid; do sleep 0.1; tenths=$((tenths + 1)); done
  kill -KILL $pid ) >/dev/null 2>&1 &
watcher=$!
wait $pid; code=$?
kill $watcher 2>/dev/null
[ -z "$folder" ] || rm -rf "$folder"
exit $code`

// Command says what to run. Only Args is required.
type Command struct {
	Args   []string            // program and arguments
	Env    []string            // nil: the starter's environment
	User   *syscall.Credential // nil: the starter's user
	Signal string              // what ends it: a name without SIG; empty: TERM
	Folder string              // removed at the end; empty: none
	Dir    string              // working folder; empty: Folder, or else the file system's root
	Output io.Writer           // standard output and error; nil: discarded. An *os.File is handed on as it is.
}

// Process is a running command. Its methods may be called by several goroutines, and more than once.
type Process struct {
	cmd    *exec.Cmd
	folder string
	pipe   io.Closer
	done   chan struct{}
	err    error // read once done is closed
}

// Start starts the command, in a process group of its own: an interrupt typed at the terminal reaches the starter
// only, which stops the command in its own time.
func Start(c Command) (*Process, error) {
	signal := c.Signal
	if signal == "" {
		signal = "TERM"
	}
	args := append([]string{"-c", script, "guard", signal, c.Folder}, c.Args...)
	cmd := exec.Command("/bin/sh", args...) //nolint:gosec,noctx // running what the caller names, until Stop, is the job
	cmd.Env, cmd.Stdout, cmd.Stderr = c.Env, c.Output, c.Output
	cmd.WaitDelay = 2 * time.Second // for a grandchild that holds the output open
	cmd.Dir = cmp.Or(c.Dir, c.Folder, "/")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.User}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("open the pipe to %s: %w", filepath.Base(c.Args[0]), err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(c.Args[0]), err)
	}
	p := &Process{cmd: cmd, folder: c.Folder, pipe: pipe, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed once the process has ended, for whatever reason, and its folder is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended; nil if well, or if it has not ended yet.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Stop sends the signal, ten seconds later SIGKILL, and waits until the process has ended and its folder is gone. How
// it ended is not an error here: it was told to.
func (p *Process) Stop() {
	_ = p.pipe.Close()
	<-p.done
	if p.folder != "" {
		_ = os.RemoveAll(p.folder) // done already, unless the guard was killed; what is left over is temporary
	}
}

// Kill ends the process at once, its descendants as far as they stayed in its process group, and the guard. It doesn't
// wait: Stop does, and cleans up.
func (p *Process) Kill() {
	select {
	case <-p.done: // its id may be somebody else's by now
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}
