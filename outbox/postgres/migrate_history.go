package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// historyRow is a migration that the database says was applied.
type historyRow struct {
	Version  int
	Name     string
	Checksum string
}

const historyExistsSQL = `select to_regclass('public.outbox_schema_migrations') is not null`

const historyCreateSQL = `
create table public.outbox_schema_migrations (
    version     integer     primary key,
    name        text        not null,
    checksum    text        not null, -- sha256 of the file with LF line ends, hexadecimal
    applied_at  timestamptz not null default now(),
    duration_ms bigint      not null
)`

// createHistory makes the table if it is missing. Only the holder of the migration lock may call it.
func createHistory(ctx context.Context, conn *pgx.Conn) error {
	var exists bool
	if err := conn.QueryRow(ctx, historyExistsSQL).Scan(&exists); err != nil {
		return fmt.Errorf("look for the migration history: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, historyCreateSQL); err != nil {
		return fmt.Errorf("create the migration history: %w", err)
	}
	return nil
}

const historyReadSQL = `select version, name, checksum from public.outbox_schema_migrations order by version`

// readHistory returns the rows in order of their versions; none if there is no table.
func readHistory(ctx context.Context, db querier) ([]historyRow, error) {
	var exists bool
	if err := db.QueryRow(ctx, historyExistsSQL).Scan(&exists); err != nil {
		return nil, fmt.Errorf("look for the migration history: %w", err)
	}
	if !exists {
		return nil, nil
	}
	rows, err := db.Query(ctx, historyReadSQL)
	if err != nil {
		return nil, fmt.Errorf("read the migration history: %w", err)
	}
	history, err := pgx.CollectRows(rows, pgx.RowToStructByPos[historyRow])
	if err != nil {
		return nil, fmt.Errorf("read the migration history: %w", err)
	}
	return history, nil
}

const historyInsertSQL = `
insert into public.outbox_schema_migrations (version, name, checksum, duration_ms)
values ($1, $2, $3, $4)`

// compareHistory reports how the database stands to the files. The error is a *DriftError or a *DatabaseAheadError;
// drift is the graver one, so it is returned when both hold.
func compareHistory(files []migration, history []historyRow) (Report, error) {
	report := Report{State: StateCurrent, Applied: []AppliedMigration{}, Pending: []PendingMigration{}}
	recorded := make(map[int]historyRow, len(history))
	for _, row := range history {
		recorded[row.Version] = row
		report.VersionBefore = row.Version // the last is the highest
		if row.Version < 1 {
			report.Faults = append(report.Faults, fmt.Sprintf("version %d (%s) is in the database, but there is no such file", row.Version, row.Name))
		}
	}
	report.VersionAfter = report.VersionBefore
	for _, file := range files {
		row, applied := recorded[file.version]
		switch {
		case !applied && file.version > report.VersionBefore:
			report.State = StatePending
			report.Pending = append(report.Pending, PendingMigration{file.version, file.name})
		case !applied:
			report.Faults = append(report.Faults, fmt.Sprintf("%s was never applied, but version %d was", file.name, report.VersionBefore))
		case row.Name != file.name:
			report.Faults = append(report.Faults, fmt.Sprintf("version %d was applied as %s, but the file is %s", file.version, row.Name, file.name))
		case row.Checksum != file.checksum:
			report.Faults = append(report.Faults, fmt.Sprintf("%s has changed since it was applied (checksum %.12s, now %.12s)", file.name, row.Checksum, file.checksum))
		}
	}
	if len(report.Faults) > 0 {
		report.State = StateDrift
		return report, &DriftError{Faults: report.Faults}
	}
	if latest := len(files); report.VersionBefore > latest {
		report.State = StateAhead
		return report, &DatabaseAheadError{Database: report.VersionBefore, Files: latest}
	}
	return report, nil
}
