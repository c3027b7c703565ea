package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// MigrationError is the failure of one file. Nothing of the file remains, except that a failed concurrent build
// leaves an invalid index, which the next run replaces.
type MigrationError struct {
	File string
	// Line and Column say where in the file, counting from 1 and in characters; 0 if PostgreSQL named no place.
	Line, Column int
	// Statement says it then: the number of the statement in the file, counting from 1. 0 if Line is known, or if
	// it was no statement of the file that failed.
	Statement int
	Attempts  int    // more than 1 after waiting for locks
	Hint      string // PostgreSQL's, may be empty
	Err       error  // wraps a *pgconn.PgError if PostgreSQL refused, and the cause of ctx if that ended
}

func (e *MigrationError) Error() string {
	var b strings.Builder
	b.WriteString("apply " + e.File)
	switch {
	case e.Line > 0:
		fmt.Fprintf(&b, ", line %d, column %d", e.Line, e.Column)
	case e.Statement > 0:
		fmt.Fprintf(&b, ", statement %d", e.Statement)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Hint != "" {
		fmt.Fprintf(&b, "; hint: %s", e.Hint)
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, "; gave up after %d attempts", e.Attempts)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *MigrationError) Unwrap() error { return e.Err }

// MigrationLockError means that another runner held the lock until ctx ended.
type MigrationLockError struct {
	Waited time.Duration
	Holder string // id of the holder's server process
	Err    error  // the cause of ctx
}

func (e *MigrationLockError) Error() string {
	return fmt.Sprintf("another migration run (server process %s) held the migration lock for the %v that this one waited: %v",
		e.Holder, e.Waited.Round(time.Millisecond), e.Err)
}

// Unwrap returns Err.
func (e *MigrationLockError) Unwrap() error { return e.Err }

// DriftError means that the database's history and the files contradict each other: no run can repair that.
type DriftError struct {
	Faults []string
}

func (e *DriftError) Error() string {
	return "migrations have drifted: " + strings.Join(e.Faults, "; ")
}

// DatabaseAheadError means that the database was migrated by something newer.
type DatabaseAheadError struct {
	Database, Files int // the newest version of each
}

func (e *DatabaseAheadError) Error() string {
	return fmt.Sprintf("the database is at version %d, ahead of the newest migration file, %d", e.Database, e.Files)
}

// PendingError means that files are still to be applied.
type PendingError struct {
	Files []string
}

func (e *PendingError) Error() string {
	return "migrations are pending: " + strings.Join(e.Files, ", ")
}

// statementError carries which statement of a file failed.
type statementError struct {
	statement int
	err       error
}

func (e *statementError) Error() string { return e.err.Error() }
func (e *statementError) Unwrap() error { return e.err }

// newMigrationError leaves out PostgreSQL's detail and context, which may quote rows.
func newMigrationError(ctx context.Context, file migration, err error, attempts int) *MigrationError {
	failure := &MigrationError{File: file.name, Attempts: attempts, Err: withCause(ctx, err)}
	var statement *statementError
	if !errors.As(err, &statement) {
		return failure
	}
	failure.Statement = statement.statement
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		failure.Hint = pg.Hint
		if failure.Line, failure.Column = position(file.sql, int(pg.Position)); failure.Line > 0 {
			failure.Statement = 0
		}
	}
	return failure
}

// position turns PostgreSQL's position, which counts characters from 1, into line and column; 0 stays 0.
func position(sql string, character int) (line, column int) {
	if character < 1 {
		return 0, 0
	}
	line, column = 1, 1
	for _, r := range sql {
		if character--; character == 0 {
			break
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	return line, column
}

// withCause adds why ctx ended, if it has.
func withCause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}
