// Package postgrestest gives tests real PostgreSQL databases: one of its own for each test, with the outbox in it.
//
// The server is named by OUTBOX_TEST_DATABASE_URL, as a role that may create databases. A database is a copy of a
// template, outbox_template_<hash of the migrations>, which the first test to need it makes and which stays on the
// server for the next run, until eight newer ones exist. A copy takes a tenth of a second or two and is dropped
// with its test. Tests may run in parallel, in one process or many:
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		store := &postgres.Store{Pool: postgrestest.New(t)}
//		…
//	}
//
// Maturity: for tests; experimental.
package postgrestest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/sql"
)

const (
	variable       = "OUTBOX_TEST_DATABASE_URL"
	poolSize       = 4
	timeout        = time.Minute // for making or dropping one database on a busy machine
	templateLock   = 0x6f7574626f787470
	templatePrefix = "outbox_template_"
	templatesKept  = 8
)

// New returns a pool of at most four connections on a fresh, migrated database. Both end with the test.
func New(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pool, err := open(tb.Context(), URL(tb))
	if err != nil {
		tb.Fatalf("postgrestest: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// URL returns the connection string of a fresh, migrated database, which is dropped when the test ends, whoever is
// still connected.
func URL(tb testing.TB) string {
	tb.Helper()
	return fresh(tb, template)
}

// Empty is URL without the outbox: a database to migrate.
func Empty(tb testing.TB) string {
	tb.Helper()
	return fresh(tb, func(context.Context, *pgx.Conn) (string, error) { return "template0", nil })
}

// fresh copies the database that source names.
func fresh(tb testing.TB, source func(context.Context, *pgx.Conn) (string, error)) string {
	tb.Helper()
	server := os.Getenv(variable)
	if server == "" {
		tb.Fatalf("postgrestest: %s is not set: run the tests with `make test`, which sets it, or set it to a PostgreSQL server for tests, postgres://user@host:port/database", variable)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	name := "outbox_test_" + strings.ToLower(rand.Text()[:16])
	err := connected(ctx, server, func(conn *pgx.Conn) error {
		from, err := source(ctx, conn)
		if err != nil {
			return fmt.Errorf("make the template: %w", err)
		}
		return run(ctx, conn, "create database "+name+" template "+from)
	})
	if err != nil {
		tb.Fatalf("postgrestest: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		err := connected(ctx, server, func(conn *pgx.Conn) error {
			return run(ctx, conn, "drop database if exists "+name+" with (force)")
		})
		if err != nil {
			tb.Errorf("postgrestest: %v", err)
		}
	})
	return databaseURL(server, name)
}

// template returns the name of the migrated database, made if it is missing. Whoever finds it missing makes it
// under a lock; it gets its name only once it is complete, so an interrupted run leaves nothing half done.
func template(ctx context.Context, conn *pgx.Conn) (string, error) {
	hash, err := hashFiles()
	if err != nil {
		return "", err
	}
	name := templatePrefix + hash
	if found, err := exists(ctx, conn, name); found || err != nil {
		return name, err
	}
	return name, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(templateLock)); err != nil {
			return fmt.Errorf("lock the template: %w", err)
		}
		if found, err := exists(ctx, conn, name); found || err != nil {
			return err
		}
		server := os.Getenv(variable)
		return connected(ctx, server, func(conn *pgx.Conn) error { return makeTemplate(ctx, conn, server, name) })
	})
}

func makeTemplate(ctx context.Context, conn *pgx.Conn, server, name string) error {
	building := name + "_building"
	err := run(ctx, conn,
		"drop database if exists "+building+" with (force)",
		"create database "+building+" template template0")
	if err != nil {
		return err
	}
	pool, err := open(ctx, databaseURL(server, building))
	if err != nil {
		return err
	}
	migrator := &postgres.Migrator{Pool: pool, Files: sql.Files}
	_, err = migrator.Up(ctx)
	pool.Close()
	if err != nil {
		return err
	}
	// Without connections there is nobody whom a copy would have to wait for.
	err = run(ctx, conn,
		"alter database "+building+" with allow_connections false",
		"alter database "+building+" rename to "+name)
	if err != nil {
		return err
	}
	return dropOldTemplates(ctx, conn)
}

// dropOldTemplates keeps the newest few, for other checkouts that use the same server.
func dropOldTemplates(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, "select datname from pg_database where starts_with(datname, $1) order by oid desc offset $2", templatePrefix, templatesKept)
	if err != nil {
		return fmt.Errorf("list old templates: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list old templates: %w", err)
	}
	for _, name := range names {
		if err := run(ctx, conn, "drop database if exists "+pgx.Identifier{name}.Sanitize()); err != nil {
			return err
		}
	}
	return nil
}

// connected calls do with a connection to the server that lasts as long as the call.
func connected(ctx context.Context, server string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect to the server of %s: %w", variable, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}

// run executes statements that cannot run in a transaction.
func run(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func exists(ctx context.Context, conn *pgx.Conn, name string) (bool, error) {
	var found bool
	err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&found)
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", name, err)
	}
	return found, nil
}

func open(ctx context.Context, databaseURL string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", variable, err)
	}
	config.MaxConns = poolSize
	return pgxpool.NewWithConfig(ctx, config)
}

// databaseURL is server with another database, in either of the two forms of connection strings.
func databaseURL(server, name string) string {
	if u, err := url.Parse(server); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		u.Path = "/" + name
		query := u.Query()
		query.Del("dbname")
		query.Del("database")
		u.RawQuery = query.Encode()
		return u.String()
	}
	return server + " dbname=" + name // the last one counts
}

func hashFiles() (string, error) {
	names, err := fs.Glob(sql.Files, "*.sql")
	if err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	sum := sha256.New()
	for _, name := range names {
		content, err := fs.ReadFile(sql.Files, name)
		if err != nil {
			return "", fmt.Errorf("read migration: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(content), content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}
