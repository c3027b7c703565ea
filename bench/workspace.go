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
	server *pgxpool.Pool
	prefix string
	made   []string
}

// openWorkspace connects, and prepares a migrated database from which the others are copied.
func openWorkspace(ctx context.Context, url string) (*workspace, error) {
	server, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	ws := &workspace{server: server, prefix: "outbox_bench_" + strings.ToLower(rand.Text()[:10])}
	db, err := ws.database(ctx, "outbox", "template1")
	if err == nil {
		migrator := &postgres.Migrator{Pool: db.Pool, Files: sql.Files}
		_, err = migrator.Up(ctx)
		db.Close() // a copy waits for nobody then
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare database: %w", err), ws.close(ctx))
	}
	return ws, nil
}

// database is one contender's pool on a database of its own.
type database struct {
	*pgxpool.Pool
	name string
}

// outbox makes a database with an empty, migrated outbox. Nothing but the benchmark vacuums or analyzes it.
func (ws *workspace) outbox(ctx context.Context, suffix string) (*database, error) {
	db, err := ws.database(ctx, suffix, ws.prefix+"_outbox")
	if err != nil {
		return nil, err
	}
	return db, db.exec(ctx, "alter table outbox_events set (autovacuum_enabled = false)")
}

func (ws *workspace) database(ctx context.Context, suffix, template string) (*database, error) {
	name := ws.prefix + "_" + suffix
	create := "create database " + pgx.Identifier{name}.Sanitize() + " template " + pgx.Identifier{template}.Sanitize()
	if _, err := ws.server.Exec(ctx, create); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	ws.made = append(ws.made, name)
	config := ws.server.Config()
	config.ConnConfig.Database = name
	config.MaxConns = poolSize
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

// close drops whatever is left.
func (ws *workspace) close(ctx context.Context) error {
	var faults []error
	for _, name := range ws.made {
		faults = append(faults, ws.dropNamed(ctx, name))
	}
	ws.server.Close()
	return errors.Join(faults...)
}
