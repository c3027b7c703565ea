package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// buildIndex needs no lock_timeout, and would be cut short by one: its lock lets readers and writers pass, and its
// waiting for old transactions counts as waiting for a lock.
func (r migrationRun) buildIndex(ctx context.Context, file migration, start time.Time) error {
	found, err := findIndex(ctx, r.conn, file.index)
	if err != nil {
		return err
	}
	if found == indexInvalid {
		name := pgx.Identifier{"public", file.index.name}.Sanitize()
		if err := execOne(ctx, r.conn.PgConn(), "drop index concurrently "+name); err != nil {
			return fmt.Errorf("drop the invalid index: %w", err)
		}
		found = indexMissing
	}
	if found == indexMissing {
		if err := execOne(ctx, r.conn.PgConn(), file.sql); err != nil {
			return &statementError{statement: 1, err: err}
		}
		if found, err = findIndex(ctx, r.conn, file.index); err != nil {
			return err
		}
	}
	if found != indexValid {
		return fmt.Errorf("index %s on public.%s is %s", file.index.name, file.index.table, found)
	}
	return r.record(ctx, file, start)
}

// execOne sends sql by the extended protocol, which refuses a second statement before it runs the first.
func execOne(ctx context.Context, conn *pgconn.PgConn, sql string) error {
	return conn.ExecParams(ctx, sql, nil, nil, nil, nil).Read().Err
}

// indexState is what the catalog says about an index.
type indexState string

const (
	indexMissing indexState = "missing"
	indexInvalid indexState = "invalid"
	indexValid   indexState = "valid"
	indexOther   indexState = "another one: same name, other table or uniqueness"
)

const indexFindSQL = `
select case
    when t.relname <> $2 or t.relnamespace <> 'public'::regnamespace or i.indisunique <> $3 then 'other'
    when i.indisvalid and i.indisready and i.indislive then 'valid'
    else 'invalid' end
from pg_index i
join pg_class c on c.oid = i.indexrelid
join pg_class t on t.oid = i.indrelid
where c.relnamespace = 'public'::regnamespace and c.relname = $1`

func findIndex(ctx context.Context, db querier, index *concurrentIndex) (indexState, error) {
	var state indexState
	err := db.QueryRow(ctx, indexFindSQL, index.name, index.table, index.unique).Scan(&state)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return indexMissing, nil
	case err != nil:
		return "", fmt.Errorf("look up index %s: %w", index.name, err)
	case state == "other":
		return indexOther, nil
	}
	return state, nil
}
