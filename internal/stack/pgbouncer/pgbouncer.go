// Package pgbouncer starts private PgBouncers in transaction mode for tests: on the loopback, in a temporary folder, gone
// when stopped or when their parent dies.
package pgbouncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/openlup/outbox-dispatch/internal/stack/guard"
	"github.com/openlup/outbox-dispatch/internal/stack/port"
)

// Variable lists the paths of programs to use besides those that the machine has, separated as in PATH. What isn't there
// is left out.
const Variable = "OUTBOX_PGBOUNCER"

const startLimit = 20 * time.Second

// Program is one PgBouncer of the machine.
type Program struct {
	Path         string
	Major, Minor int
}

// String is its name and version.
func (p Program) String() string { return fmt.Sprintf("PgBouncer %d.%d", p.Major, p.Minor) }

// TracksStatements tells whether the program knows max_prepared_statements: from 1.21 on.
func (p Program) TracksStatements() bool { return p.Major > 1 || p.Minor >= 21 }

// stopSignal ends the program without waiting for clients: TERM, until 1.23 made TERM wait for them.
func (p Program) stopSignal() string {
	if p.Major > 1 || p.Minor >= 23 {
		return "QUIT"
	}
	return "TERM"
}

// Find returns every PgBouncer of the machine, each version once, oldest first. None is no error.
func Find(ctx context.Context) ([]Program, error) {
	paths := filepath.SplitList(os.Getenv(Variable)) //nolint:forbidigo // a switch of this package
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		paths = append(paths, path)
	}
	paths = append(paths, "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer")
	var found []Program
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil { //nolint:gosec // named by whoever runs the tests
			continue
		}
		program, err := ask(ctx, path)
		if err != nil {
			return nil, err
		}
		same := func(p Program) bool { return p.Major == program.Major && p.Minor == program.Minor }
		if !slices.ContainsFunc(found, same) {
			found = append(found, program)
		}
	}
	slices.SortFunc(found, func(a, b Program) int { return cmp.Or(a.Major-b.Major, a.Minor-b.Minor) })
	return found, nil
}

func ask(ctx context.Context, path string) (Program, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output() //nolint:gosec // the machine's own, or named by whoever runs the tests
	if err != nil {
		return Program{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	digits := regexp.MustCompile(`(?i)pgbouncer (?:version )?(\d+)\.(\d+)`).FindSubmatch(out)
	if digits == nil {
		return Program{}, fmt.Errorf("ask %s for its version: got %.100q", path, out)
	}
	major, err1 := strconv.Atoi(string(digits[1]))
	minor, err2 := strconv.Atoi(string(digits[2]))
	return Program{Path: path, Major: major, Minor: minor}, errors.Join(err1, err2)
}

// Config of a server.
type Config struct {
	Program Program
	// Upstream is the URL of a PostgreSQL server. The pooler admits the URL's user, without a password, and logs in as the
	// URL says.
	Upstream string
	// PoolSize is the number of connections to the server for each database; zero means 2, so that those of several
	// clients get mixed.
	PoolSize int
	// Prepared is max_prepared_statements, for programs that know it; zero switches it off.
	Prepared int
	// AuthType is how clients prove who they are; empty means trust.
	AuthType string
	// Log receives what the pooler prints; nil drops it.
	Log io.Writer
}

// Server is a running PgBouncer.
type Server struct {
	address, folder string
	process         *guard.Process
}

// Start starts a pooler and waits until it accepts connections. The caller stops it.
func Start(ctx context.Context, config Config) (*Server, error) {
	folder, err := os.MkdirTemp("", "outbox-pgbouncer-")
	if err != nil {
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	s := &Server{folder: folder}
	if err := s.start(ctx, config); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start %s: %w", config.Program, errors.Join(err, os.RemoveAll(folder)))
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, config Config) error {
	number, err := port.Free(ctx)
	if err != nil {
		return err
	}
	s.address = port.Address(number)
	upstream, err := pgconn.ParseConfig(config.Upstream)
	if err != nil {
		return fmt.Errorf("parse the upstream: %w", err)
	}
	users := fmt.Sprintf("%s %s\n", quote(upstream.User), quote(upstream.Password))
	for name, text := range map[string]string{"pgbouncer.ini": s.ini(config, upstream, number), "users": users} {
		//nolint:gosec // the pooler's own user must be able to read it, and its folder
		err = errors.Join(err, os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o644))
	}
	if err := errors.Join(err, os.Chmod(s.folder, 0o755)); err != nil { //nolint:gosec // as above
		return err
	}
	command := []string{config.Program.Path, filepath.Join(s.folder, "pgbouncer.ini")}
	if os.Getuid() == 0 {
		command = append(command, "-u", "nobody") // it refuses to run as root
	}
	output := new(guard.Tail)
	log := config.Log
	if log == nil {
		log = io.Discard
	}
	s.process, err = guard.Start(guard.Command{
		Args: command, Signal: config.Program.stopSignal(), Folder: s.folder, Output: io.MultiWriter(output, log),
	})
	if err != nil {
		return err
	}
	if err := s.await(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}

// ini names no startup parameter to be ignored: the pooler must take ours as they are.
func (s *Server) ini(config Config, upstream *pgconn.Config, number int) string {
	prepared := ""
	if config.Program.TracksStatements() {
		prepared = "max_prepared_statements = " + strconv.Itoa(config.Prepared)
	}
	return fmt.Sprintf(`[databases]
* = host=%s port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = %s
auth_file = %s
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
%s
`, upstream.Host, upstream.Port, number, cmp.Or(config.AuthType, "trust"), filepath.Join(s.folder, "users"),
		cmp.Or(config.PoolSize, 2), prepared)
}

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	dialer := net.Dialer{Timeout: time.Second}
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if conn, err := dialer.DialContext(ctx, "tcp", s.address); err == nil {
			tick.Stop()
			return conn.Close()
		}
		select {
		case <-s.process.Done():
			return fmt.Errorf("it ended before it was ready: %w", s.process.Err())
		case <-ctx.Done():
			return fmt.Errorf("not ready on %s: %w", s.address, ctx.Err())
		case <-tick.C:
		}
	}
}

// Via is the URL of a database, through the pooler. It takes URLs only, not keywords and values.
func (s *Server) Via(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return "", errors.New("the database is not named by a URL")
	}
	u.Host = s.address
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// Stop ends the pooler at once, with its connections. It may be called again.
func (s *Server) Stop() {
	if s.process != nil {
		s.process.Stop()
	}
}

func quote(text string) string { return `"` + strings.ReplaceAll(text, `"`, `""`) + `"` }
