package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

const startLimit = 2 * time.Minute

// Config of up and down.
type Config struct {
	Root   string    // of the repository
	Folder string    // for the stack's own files; two stacks with different folders know nothing of each other
	Out    io.Writer // for a person
	// Program and its arguments run [Serve] for the same root and folder, in this process's working folder.
	Program []string
}

// Up starts the stack in the background, waits until it is ready and prints how to use it. If it runs already, Up says
// so. When ctx ends before the stack is ready, nothing is left running.
func Up(ctx context.Context, config Config) error {
	p := place{path: config.Folder}
	l, err := openLock(p.lock())
	if err != nil {
		return err
	}
	defer l.close()
	switch free, err := l.take(); {
	case err != nil:
		return err
	case !free:
		return already(config, p, l)
	}
	awaitGuards(ctx, p, false) // a stack may have died here
	if _, err := p.clean(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(config.Out, "building the functions and the runtime emulator (the first time this takes a minute)")
	if err := buildAll(ctx, config); err != nil {
		return err
	}
	folder, err := temporary(p)
	if err != nil {
		return err
	}
	l.close() // the stack takes it over
	if err := launch(ctx, config, p, folder); err != nil {
		_, cleaned := p.clean()
		return errors.Join(err, cleaned)
	}
	return told(config, p, "the stack is up")
}

func already(config Config, p place, l *lock) error {
	pid, err := l.holder()
	if err != nil {
		return err
	}
	state, err := p.readState()
	if err != nil {
		return err
	}
	if state == nil {
		return fmt.Errorf("the stack is being started by process %d; make down stops that", pid)
	}
	return told(config, p, "the stack is up already, nothing was started; make down ends it")
}

func told(config Config, p place, headline string) error {
	state, err := p.readState()
	if err != nil {
		return err
	}
	if state == nil {
		return errors.New("the stack ended just now")
	}
	_, err = io.WriteString(config.Out, guide(*state, p, headline))
	return err
}

// buildAll does what takes long, before anything runs.
func buildAll(ctx context.Context, config Config) error {
	builder := lambda.Builder{Root: config.Root, Log: os.Stderr}
	if _, err := builder.Emulator(ctx); err != nil {
		return err
	}
	for _, name := range []string{"migrate", "dispatch"} {
		if _, err := builder.Function(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// temporary makes the folder in which all temporary files of this run are, and notes its name for [place.clean]. Its
// mode is that of any folder for temporary files: PostgreSQL may run as another user.
func temporary(p place) (string, error) {
	if err := os.MkdirAll(p.dir(), 0o750); err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "outbox-up-")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(p.folder(), []byte(folder), 0o600); err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, os.Chmod(folder, os.ModeSticky|0o777)
}

// launch starts the stack's process, in a session of its own so that closing a terminal doesn't end it.
func launch(ctx context.Context, config Config, p place, folder string) error {
	log, err := os.Create(p.log())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(config.Program[0], config.Program[1:]...) //nolint:gosec,noctx // it outlives this process
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(cmd.Environ(), "TMPDIR="+folder)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var fault error
	ready := until(ctx, startLimit, func() bool {
		select {
		case err := <-ended:
			fault = fmt.Errorf("the stack ended before it was ready: %w\n%s", err, lastLines(p.log()))
			return true
		default:
			_, err := os.Stat(p.state())
			return err == nil
		}
	})
	if !ready {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		fault = errors.Join(errors.New("stopped before the stack was ready"), ctx.Err(), <-ended)
	}
	return fault
}

func lastLines(path string) string {
	const most = 20
	text, err := os.ReadFile(path) //nolint:gosec // our own log
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
