package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockAttempts is how often a file is tried in all while it runs into locks of others.
const lockAttempts = 5

// migrationRun applies files on one connection while somebody holds the migration lock.
type migrationRun struct {
	conn        *pgx.Conn
	lockTimeout time.Duration
}

// apply runs one file and records it. It returns how long the successful try took.
func (r migrationRun) apply(ctx context.Context, file migration) (time.Duration, error) {
	for attempt := 1; ; attempt++ {
		start := time.Now()
		try := r.applyInTransaction
		if file.index != nil {
			try = r.buildIndex
		}
		err := try(ctx, file, start)
		if err == nil {
			return time.Since(start), nil
		}
		if attempt == lockAttempts || !isLockFailure(err) {
			return 0, newMigrationError(ctx, file, err, attempt)
		}
		// The statements that queued behind the migration get room first.
		pause := time.NewTimer(time.Duration(attempt) * r.lockTimeout / lockAttempts)
		select {
		case <-ctx.Done():
			pause.Stop()
			return 0, newMigrationError(ctx, file, err, attempt)
		case <-pause.C:
		}
	}
}

// isLockFailure tells lock_not_available and deadlock_detected: the file was rolled back and may be tried again.
func isLockFailure(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01")
}

// The role's defaults must not decide where objects go, or end a long migration half way.
const migrationSettingsSQL = `
select set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true),
    set_config('search_path', 'public', true)`

func (r migrationRun) applyInTransaction(ctx context.Context, file migration, start time.Time) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return pgx.BeginTxFunc(ctx, r.conn, options, func(tx pgx.Tx) error {
		milliseconds := strconv.FormatInt(r.lockTimeout.Milliseconds(), 10)
		if _, err := tx.Exec(ctx, migrationSettingsSQL, milliseconds); err != nil {
			return err
		}
		if err := execFile(ctx, r.conn.PgConn(), file.sql); err != nil {
			return err
		}
		if r.conn.PgConn().TxStatus() != txOpen {
			return errors.New("the file ended its own transaction (commit or rollback), so it took effect but is not recorded")
		}
		return r.record(ctx, file, start)
	})
}

// execFile sends the whole file as one simple query: PostgreSQL splits it, and error positions count from its start.
func execFile(ctx context.Context, conn *pgconn.PgConn, sql string) error {
	results := conn.Exec(ctx, sql)
	statement := 1
	for results.NextResult() {
		if _, err := results.ResultReader().Close(); err == nil {
			statement++
		}
	}
	if err := results.Close(); err != nil {
		return &statementError{statement: statement, err: err}
	}
	return nil
}

// record adds the row to the open transaction of conn, or by itself if there is none.
func (r migrationRun) record(ctx context.Context, file migration, start time.Time) error {
	_, err := r.conn.Exec(ctx, historyInsertSQL, file.version, file.name, file.checksum, time.Since(start).Milliseconds())
	if err != nil {
		return fmt.Errorf("record the migration: %w", err)
	}
	return nil
}
