package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
	"github.com/jackc/pgx/v5"
)

// Environment variables of a server that is fetched.
const (
	// FetchVariable, when set, fetches a server even if the machine has one: of the major version it names, 14 to 18,
	// else 17.
	FetchVariable = "OUTBOX_POSTGRES_FETCH"
	// RepositoryVariable is the address of a Maven repository to fetch from, instead of Maven Central.
	RepositoryVariable = "OUTBOX_POSTGRES_REPOSITORY"

	helperVariable  = "OUTBOX_POSTGRES_HELPER"
	portVariable    = "OUTBOX_POSTGRES_PORT"
	durableVariable = "OUTBOX_POSTGRES_DURABLE"
)

// startFetched runs this program again, as a helper that fetches a server and keeps it: the library that does so
// can't change the user, and the helper can be one that is not root.
func (s *Server) startFetched(ctx context.Context, config Config, who *user) error {
	helper, err := s.copyOfSelf(who)
	if err != nil {
		return err
	}
	number, err := s.listen(ctx)
	if err != nil {
		return err
	}
	env := []string{
		helperVariable + "=" + s.folder, portVariable + "=" + strconv.Itoa(number),
		durableVariable + "=" + strconv.FormatBool(config.Durable),
	}
	return s.launch([]string{helper}, env, config, who)
}

// copyOfSelf puts this program where the unprivileged user can reach it.
func (s *Server) copyOfSelf(who *user) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	in, err := os.Open(self) //nolint:gosec // this very program
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	path := filepath.Join(s.folder, "helper")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700) //nolint:gosec // in our own folder
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(out, in); err != nil {
		return "", errors.Join(err, out.Close())
	}
	return path, errors.Join(out.Close(), who.own(path))
}

// Helper must be the first call of every program that starts servers. In the helper's process it does the helper's
// work and ends the program; in any other it returns at once.
func Helper() {
	folder := os.Getenv(helperVariable) //nolint:forbidigo // how the parent speaks to its helper
	if folder == "" {
		return
	}
	if err := keep(folder, os.Getenv); err != nil { //nolint:forbidigo // as above
		fmt.Fprintln(os.Stderr, "fetch postgresql:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keep fetches a server, runs it, and stops it when told to.
func keep(folder string, getenv func(string) string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	port, err := strconv.ParseUint(getenv(portVariable), 10, 16)
	if err != nil {
		return err
	}
	config := embedded.DefaultConfig().Version(fetchedVersion(getenv(FetchVariable))).Port(uint32(port)).
		Username("postgres").Password("postgres").Database("postgres").
		CachePath(cacheFolder(folder)).RuntimePath(filepath.Join(folder, "runtime")).DataPath(filepath.Join(folder, "data")).
		StartParameters(settings(getenv(durableVariable) == "true")).
		StartTimeout(startLimit).Logger(os.Stderr)
	if address := getenv(RepositoryVariable); address != "" {
		config = config.BinaryRepositoryURL(address)
	}
	server := embedded.NewDatabase(config)
	if err := server.Start(); err != nil {
		return err
	}
	if err := trustEverybody(filepath.Join(folder, "data"), uint32(port)); err != nil {
		return errors.Join(err, server.Stop())
	}
	<-stop
	return server.Stop()
}

// trustEverybody makes the fetched server like a found one: it listens on the loopback only and asks for no password.
func trustEverybody(data string, port uint32) error {
	hba := "local all all trust\nhost all all 127.0.0.1/32 trust\n"
	//nolint:gosec // in our own folder
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres:postgres@127.0.0.1:%d/postgres?sslmode=disable", port))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "select pg_reload_conf()")
	return errors.Join(err, conn.Close(ctx))
}

// cacheFolder is where fetched servers are kept from one start to the next: in the user's home, or, for root's
// helper, which has none, beside the temporary files.
func cacheFolder(folder string) string {
	if cache, err := os.UserCacheDir(); err == nil && !strings.HasPrefix(cache, folder) {
		path := filepath.Join(cache, "outbox-dispatch", "postgresql")
		if os.MkdirAll(path, 0o750) == nil {
			return path
		}
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("outbox-dispatch-postgresql-%d", os.Getuid()))
	_ = os.Mkdir(path, 0o700) // the next line tells whether it is there
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return filepath.Join(folder, "cache")
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Getuid() {
		return filepath.Join(folder, "cache") // somebody else's: its programs are not ours to run
	}
	return path
}

func ready(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

// fetchedVersion is the newest release that the library knows of a major version.
func fetchedVersion(major string) embedded.PostgresVersion {
	switch major {
	case "14":
		return embedded.V14
	case "15":
		return embedded.V15
	case "16":
		return embedded.V16
	case "18":
		return embedded.V18
	default:
		return embedded.V17
	}
}
