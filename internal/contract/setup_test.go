package contract

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/openlup/outbox-dispatch/sql"
)

// newDatabase creates a migrated database for one test and answers its URL.
func newDatabase(t testing.TB) string {
	t.Helper()
	server := os.Getenv("OUTBOX_TEST_DATABASE_URL")
	admin, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatalf("connect to OUTBOX_TEST_DATABASE_URL: %v", err)
	}
	name := "contract_" + rand.Text()
	exec := func(conn *pgx.Conn, statement string) {
		if _, err := conn.PgConn().Exec(context.WithoutCancel(t.Context()), statement).ReadAll(); err != nil {
			t.Fatalf("set up a database: %v", err)
		}
	}
	exec(admin, `create database "`+name+`" template template0`)
	t.Cleanup(func() {
		exec(admin, `drop database "`+name+`" with (force)`)
		_ = admin.Close(context.WithoutCancel(t.Context()))
	})
	address, err := url.Parse(server)
	if err != nil {
		t.Fatalf("parse OUTBOX_TEST_DATABASE_URL: %v", err)
	}
	address.Path = "/" + name
	conn, err := pgx.Connect(t.Context(), address.String())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	files, err := fs.Glob(sql.Files, "*.sql")
	if err != nil {
		t.Fatalf("list migrations: %v", err)
	}
	for _, file := range files {
		text, err := sql.Files.ReadFile(file)
		if err != nil {
			t.Fatalf("read migration: %v", err)
		}
		exec(conn, string(text))
	}
	return address.String()
}

func pgError(err error) *pgconn.PgError {
	pgErr, _ := errors.AsType[*pgconn.PgError](err)
	return pgErr
}
