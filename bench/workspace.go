package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/sql"
)

// poolSize is how many connections each contender may use.
const poolSize = 10

// workspace is a server and the databases that this run made on it.
type workspace struct {
	url    string
	server *pgxpool.Pool
	prefix string
	made   []string
	serial int
	copy   string // how a database is copied: file by file, where the server lets one choose
}

// openWorkspace connects, and prepares a migrated database from which the others are copied.
func openWorkspace(ctx context.Context, url string) (*workspace, error) {
	server, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	ws := &workspace{url: url, server: server, prefix: "outbox_bench_" + strings.ToLower(rand.Text()[:10])}
	err = server.QueryRow(ctx, `select case when current_setting('server_version_num')::int >= 150000
		then ' strategy file_copy' else '' end`).Scan(&ws.copy)
	if err == nil {
		err = ws.migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare database: %w", err), ws.close(ctx))
	}
	return ws, nil
}

func (ws *workspace) migrate(ctx context.Context) error {
	db, err := ws.create(ctx, "outbox", "template1")
	if err != nil {
		return err
	}
	defer db.Close() // a copy waits for nobody then
	migrator := &postgres.Migrator{Pool: db.Pool, Files: sql.Files}
	if _, err = migrator.Up(ctx); err != nil {
		return err
	}
	// Nothing but the benchmark vacuums or analyzes.
	return db.exec(ctx, "alter table outbox_events set (autovacuum_enabled = false)")
}

// database is one contender's pool on a database of its own.
type database struct {
	*pgxpool.Pool
	name string
}

// outbox makes a database with an empty, migrated outbox.
func (ws *workspace) outbox(ctx context.Context, suffix string) (*database, error) {
	return ws.create(ctx, suffix, ws.prefix+"_outbox")
}

// original makes a database, lets fill put what it likes into it, and closes it, to be copied by [workspace.use].
func (ws *workspace) original(ctx context.Context, fill func(*database) error) (name string, err error) {
	db, err := ws.outbox(ctx, "original")
	if err != nil {
		return "", err
	}
	defer db.Close()
	return db.name, fill(db)
}

// use hands f a copy of a database, and drops it when f returns.
func (ws *workspace) use(ctx context.Context, original string, f func(*database) error) error {
	db, err := ws.create(ctx, "copy", original)
	if err != nil {
		return err
	}
	ws.settle(ctx)
	return errors.Join(f(db), ws.drop(ctx, db))
}

// settle flushes what filling a table left to write, so that no measurement pays for it. Without the right to do so
// the checkpoint comes whenever it comes.
func (ws *workspace) settle(ctx context.Context) { _, _ = ws.server.Exec(ctx, "checkpoint") }

func (ws *workspace) create(ctx context.Context, suffix, template string) (*database, error) {
	name := fmt.Sprintf("%s_%s", ws.prefix, suffix)
	if suffix != "outbox" {
		ws.serial++
		name = fmt.Sprintf("%s_%d", name, ws.serial)
	}
	create := "create database " + pgx.Identifier{name}.Sanitize() + " template " + pgx.Identifier{template}.Sanitize() + ws.copy
	if _, err := ws.server.Exec(ctx, create); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	ws.made = append(ws.made, name)
	return ws.connect(ctx, name, nil)
}

// connect opens a pool on a database of this run; change may alter its configuration, nil leaves it.
func (ws *workspace) connect(ctx context.Context, name string, change func(*pgxpool.Config)) (*database, error) {
	config := ws.server.Config()
	config.ConnConfig.Database = name
	config.MaxConns = poolSize
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	return &database{Pool: pool, name: name}, nil
}

// exec runs statements, each in a transaction of its own.
func (db *database) exec(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%.60q: %w", statement, err)
		}
	}
	return nil
}

// drop closes and drops a database, so that big ones don't pile up.
func (ws *workspace) drop(ctx context.Context, db *database) error {
	db.Close()
	return ws.dropNamed(ctx, db.name)
}

func (ws *workspace) dropNamed(ctx context.Context, name string) error {
	// An interrupted run cleans up too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	drop := "drop database if exists " + pgx.Identifier{name}.Sanitize() + " with (force)"
	if _, err := ws.server.Exec(ctx, drop); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// tidy drops what a benchmark left, all but the database that others are copied from.
func (ws *workspace) tidy(ctx context.Context) error {
	var faults []error
	for _, name := range ws.made[1:] {
		faults = append(faults, ws.dropNamed(ctx, name))
	}
	ws.made = ws.made[:1]
	return errors.Join(faults...)
}

// close drops whatever is left.
func (ws *workspace) close(ctx context.Context) error {
	var faults []error
	for _, name := range ws.made {
		faults = append(faults, ws.dropNamed(ctx, name))
	}
	ws.server.Close()
	return errors.Join(faults...)
}
