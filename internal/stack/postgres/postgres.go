// Package postgres starts a private PostgreSQL server for tests, benchmarks and `make run`: on the loopback, in a
// temporary folder, gone when it is stopped or its parent dies.
//
// The server's programs are found on the machine, or else fetched (see [RepositoryVariable]). PostgreSQL refuses to
// run as root; started by root, it runs as an unprivileged user.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/guard"
	"github.com/openlup/outbox-dispatch/internal/stack/port"
)

const startLimit = 60 * time.Second

// Server is a running PostgreSQL.
type Server struct {
	// URL connects as the superuser postgres to the database postgres.
	URL string
	// From says where the server's programs came from.
	From string

	folder  string
	env     []string       // of the process, beside our own
	process *guard.Process // nil until the server, or its helper, was started
	output  *guard.Tail
}

// Config of a server; the zero value is right for tests.
type Config struct {
	// Durable makes commits wait for the disk, as in production. Tests don't care.
	Durable bool
	// Ahead is how far the server's clock is ahead, in whole seconds; behind if it is negative. Linux only, with a C compiler.
	Ahead time.Duration
	// Log receives what the server prints; nil drops it. Its last lines are in the error when it can't start.
	Log io.Writer
}

// Start starts a server and waits until it answers. The caller stops it.
func Start(ctx context.Context, config Config) (*Server, error) {
	who, err := unprivileged()
	if err != nil {
		return nil, fmt.Errorf("start postgresql: %w", err)
	}
	folder, err := os.MkdirTemp("", "outbox-postgres-")
	if err != nil {
		return nil, fmt.Errorf("start postgresql: %w", err)
	}
	if config.Log == nil {
		config.Log = io.Discard
	}
	s := &Server{folder: folder, output: new(guard.Tail)}
	if err := s.start(ctx, config, who); err != nil {
		return nil, errors.Join(fmt.Errorf("start postgresql: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, config Config, who *user) error {
	if err := who.own(s.folder); err != nil {
		return err
	}
	var err error
	if s.env, err = s.clock(ctx, config.Ahead, who); err != nil {
		return err
	}
	if bin := find(); bin != "" {
		s.From = bin
		err = s.startFound(ctx, bin, config, who)
	} else {
		s.From = "fetched " + string(fetchedVersion(os.Getenv(FetchVariable))) //nolint:forbidigo // as in find
		err = s.startFetched(ctx, config, who)
	}
	if err != nil {
		return err
	}
	return s.await(ctx)
}

// listen chooses the port, last of all before the server takes it: another one would be taken for this.
func (s *Server) listen(ctx context.Context) (number int, err error) {
	number, err = port.Free(ctx)
	s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", number)
	return number, err
}

// startFound initialises a data folder and starts the machine's own server on it.
func (s *Server) startFound(ctx context.Context, bin string, config Config, who *user) error {
	data := filepath.Join(s.folder, "data")
	//nolint:gosec // the machine's own server
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.Env = s.folder, who.environment(nil, s.folder)
	initdb.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: who.credential()} // Ctrl-C is ours to handle
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	number, err := s.listen(ctx)
	if err != nil {
		return err
	}
	args := []string{"-D", data, "-p", strconv.Itoa(number), "-c", "listen_addresses=127.0.0.1"}
	for name, value := range settings(config.Durable) {
		args = append(args, "-c", name+"="+value)
	}
	return s.launch(append([]string{filepath.Join(bin, "postgres")}, args...), nil, config, who)
}

// launch starts the process that is, or keeps, the server. It is no child of ctx: Stop ends it, or our own end does.
// QUIT is PostgreSQL's immediate shutdown.
func (s *Server) launch(args, env []string, config Config, who *user) (err error) {
	s.process, err = guard.Start(guard.Command{
		Args: args, Env: who.environment(append(env, s.env...), s.folder), User: who.credential(), Signal: "QUIT", Folder: s.folder,
		Output: io.MultiWriter(s.output, config.Log),
	})
	return err
}

// settings of every server. No socket: the path of one in a temporary folder is soon too long for the system.
func settings(durable bool) map[string]string {
	all := map[string]string{"max_connections": "300", "shared_buffers": "256MB", "unix_socket_directories": ""}
	if !durable {
		all["fsync"], all["synchronous_commit"], all["full_page_writes"] = "off", "off", "off"
	}
	return all
}

// await waits until the server accepts connections: its protocol answers, not just its port.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if ready(ctx, s.URL) {
			tick.Stop()
			return nil
		}
		select {
		case <-s.process.Done():
			return fmt.Errorf("the server ended before it was ready: %w\n%s", s.process.Err(), s.output)
		case <-ctx.Done():
			return fmt.Errorf("not ready at %s: %w\n%s", s.URL, ctx.Err(), s.output)
		case <-tick.C:
		}
	}
}

// Stop ends the server at once and removes its data. It may be called again.
func (s *Server) Stop() error {
	if s.process != nil {
		s.process.Stop()
	}
	return os.RemoveAll(s.folder)
}

// find returns the folder of the machine's newest PostgreSQL server, or "".
func find() string {
	if os.Getenv(FetchVariable) != "" { //nolint:forbidigo // a switch of this package, documented beside its name
		return ""
	}
	var folders []string
	if path, err := exec.LookPath("postgres"); err == nil {
		folders = append(folders, filepath.Dir(path))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin", "/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		found, _ := filepath.Glob(pattern) // the patterns are well-formed
		for _, folder := range slices.Backward(found) {
			folders = append(folders, folder)
		}
	}
	for _, folder := range folders {
		if executable(filepath.Join(folder, "postgres")) && executable(filepath.Join(folder, "initdb")) {
			return folder
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
