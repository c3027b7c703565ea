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
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

const startLimit = 60 * time.Second

// Server is a running PostgreSQL.
type Server struct {
	// URL connects as the superuser postgres to the database postgres.
	URL string
	// From says where the server's programs came from.
	From string

	folder string
	cmd    *exec.Cmd
	exited chan error
}

// Config of a server; the zero value is right for tests.
type Config struct {
	// Durable makes commits wait for the disk, as in production. Tests don't care.
	Durable bool
	// Log receives what the server prints; nil drops it.
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
	s := &Server{folder: folder, exited: make(chan error, 1)}
	if err := s.start(ctx, config, who); err != nil {
		return nil, errors.Join(fmt.Errorf("start postgresql: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, config Config, who *user) error {
	if err := who.own(s.folder); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	if bin := find(); bin != "" {
		s.From = bin
		err = s.startFound(ctx, bin, port, config, who)
	} else {
		s.From = "fetched " + string(fetchedVersion)
		err = s.startFetched(ctx, port, config, who)
	}
	if err != nil {
		return err
	}
	return s.await(ctx, port)
}

// startFound initialises a data folder and starts the machine's own server on it.
func (s *Server) startFound(ctx context.Context, bin string, port int, config Config, who *user) error {
	data := filepath.Join(s.folder, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync")
	who.run(initdb, s.folder)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	args := []string{"-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=" + s.folder}
	for name, value := range settings(config.Durable) {
		args = append(args, "-c", name+"="+value)
	}
	return s.launch(exec.Command(filepath.Join(bin, "postgres"), args...), config, who)
}

// launch starts the process that is, or keeps, the server. It is no child of ctx: Stop ends it.
func (s *Server) launch(cmd *exec.Cmd, config Config, who *user) error {
	who.run(cmd, s.folder)
	dieWithParent(cmd)
	cmd.Stdout, cmd.Stderr = config.Log, config.Log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	go func() { s.exited <- cmd.Wait() }()
	return nil
}

func settings(durable bool) map[string]string {
	all := map[string]string{"max_connections": "300", "shared_buffers": "256MB"}
	if !durable {
		all["fsync"], all["synchronous_commit"], all["full_page_writes"] = "off", "off", "off"
	}
	return all
}

// await waits until the server accepts connections: its protocol answers, not just its port.
func (s *Server) await(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if ready(ctx, s.URL) {
			tick.Stop()
			return nil
		}
		select {
		case err := <-s.exited:
			s.cmd = nil
			return fmt.Errorf("the server ended before it was ready: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("not ready on port %d: %w", port, ctx.Err())
		case <-tick.C:
		}
	}
}

// Stop ends the server at once and removes its data. It may be called again.
func (s *Server) Stop() error {
	if s.cmd != nil {
		interrupt(s.cmd)
		select {
		case <-s.exited:
		case <-time.After(10 * time.Second):
			_ = s.cmd.Process.Kill()
			<-s.exited
		}
		s.cmd = nil
	}
	return os.RemoveAll(s.folder)
}

// find returns the folder of the machine's newest PostgreSQL server, or "".
func find() string {
	if os.Getenv(FetchVariable) != "" {
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
		for i := len(found) - 1; i >= 0; i-- {
			folders = append(folders, found[i])
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

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
