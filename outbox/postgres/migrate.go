package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultLockTimeout is how long a migration waits for one table lock before it steps aside.
const DefaultLockTimeout = 5 * time.Second

// A Migrator brings a database to the newest version of a set of migration files, forwards only.
//
// Files are named NNNN_name.sql and numbered 1, 2, 3 … without a gap. Each runs in a transaction of its own, together
// with the row that records it in public.outbox_schema_migrations, and with search_path set to public. A file whose
// first line is exactly
//
//	-- outbox: no transaction
//
// runs outside of one and holds exactly one statement: create [unique] index concurrently name on public.table … .
// Such an index counts as done once the catalog says it is valid: an invalid one that an interrupted build left is
// dropped and built again; a valid one of that name, table and uniqueness is taken as it is.
//
// A Migrator is safe for concurrent use, in one process or many: one runs, the others wait. It changes no session
// setting, so it works through a transaction pooler. Files must keep to that too (set local, never set).
type Migrator struct {
	// Pool must allow at least two connections: one holds the lock while the other runs the files. Any
	// QueryExecMode will do. It stays the caller's. A statement_timeout of its sessions does not apply to files
	// that run in a transaction; only ctx limits those.
	Pool *pgxpool.Pool
	// Files has the migrations in its root; other files than *.sql are ignored.
	Files fs.FS
	// LockTimeout is the longest wait for one table lock, which is the longest time the application's statements
	// queue behind the migration's. A file that runs into it is rolled back and tried again, up to five times in
	// all with a growing pause. Zero means DefaultLockTimeout. Whole milliseconds count. It does not apply to
	// create index concurrently, which makes no reader or writer wait.
	LockTimeout time.Duration
}

// Up applies what is pending, in order, and stops at the first failure; the next call goes on with the file that
// failed. A waiting call waits until ctx ends. On failure the Report tells how far it came, beside one of
// [*MigrationError], [*MigrationLockError], [*DriftError], [*DatabaseAheadError] (nothing is applied after the last
// three), or the error of a connection.
func (m *Migrator) Up(ctx context.Context) (Report, error) {
	files, err := m.load()
	if err != nil {
		return Report{}, err
	}
	lock, err := acquireMigrationLock(ctx, m.Pool)
	if err != nil {
		return Report{}, err
	}
	defer lock.release(ctx)
	conn, err := m.Pool.Acquire(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("connect to migrate: %w", withCause(ctx, err))
	}
	defer conn.Release()

	run := migrationRun{conn: conn.Conn(), lockTimeout: m.LockTimeout}
	if run.lockTimeout == 0 {
		run.lockTimeout = DefaultLockTimeout
	}
	if err := createHistory(ctx, run.conn); err != nil {
		return Report{}, withCause(ctx, err)
	}
	history, err := readHistory(ctx, run.conn)
	if err != nil {
		return Report{}, withCause(ctx, err)
	}
	report, err := compareHistory(files, history)
	if err != nil {
		return report, err
	}
	for len(report.Pending) > 0 {
		file := files[report.Pending[0].Version-1]
		if err := lock.check(ctx); err != nil {
			return report, err
		}
		took, err := run.apply(ctx, file)
		if err != nil {
			return report, err
		}
		report.Pending = report.Pending[1:]
		report.VersionAfter = file.version
		report.Applied = append(report.Applied, AppliedMigration{file.version, file.name, took.Milliseconds()})
	}
	report.State = StateCurrent
	return report, nil
}

// Status compares without changing or locking anything. Drift and a database ahead of the files are states, not
// errors.
func (m *Migrator) Status(ctx context.Context) (Report, error) {
	report, err := m.compare(ctx)
	var drift *DriftError
	var ahead *DatabaseAheadError
	if errors.As(err, &drift) || errors.As(err, &ahead) {
		return report, nil
	}
	return report, err
}

// Verify succeeds if the database is exactly what the files make: state current, and every concurrently built index
// still valid. Otherwise it returns a [*DriftError], [*DatabaseAheadError] or [*PendingError] beside the report.
func (m *Migrator) Verify(ctx context.Context) (Report, error) {
	report, err := m.compare(ctx)
	if err != nil {
		return report, err
	}
	if len(report.Pending) > 0 {
		pending := &PendingError{}
		for _, p := range report.Pending {
			pending.Files = append(pending.Files, p.Name)
		}
		return report, pending
	}
	files, err := m.load()
	if err != nil {
		return report, err
	}
	for _, file := range files {
		if file.index == nil {
			continue
		}
		found, err := findIndex(ctx, m.Pool, file.index)
		if err != nil {
			return report, fmt.Errorf("verify %s: %w", file.name, withCause(ctx, err))
		}
		if found != indexValid {
			report.Faults = append(report.Faults, fmt.Sprintf("%s: index %s is %s", file.name, file.index.name, found))
		}
	}
	if len(report.Faults) > 0 {
		report.State = StateDrift
		return report, &DriftError{Faults: report.Faults}
	}
	return report, nil
}

func (m *Migrator) compare(ctx context.Context) (Report, error) {
	files, err := m.load()
	if err != nil {
		return Report{}, err
	}
	history, err := readHistory(ctx, m.Pool)
	if err != nil {
		return Report{}, withCause(ctx, err)
	}
	return compareHistory(files, history)
}

// load checks the Migrator and reads its files.
func (m *Migrator) load() ([]migration, error) {
	var faults []error
	if m.Pool == nil {
		faults = append(faults, errors.New("pool: nil, takes a pool"))
	} else if limit := m.Pool.Config().MaxConns; limit < 2 {
		faults = append(faults, fmt.Errorf("pool: at most %d connection, takes 2 or more", limit))
	}
	if m.LockTimeout < 0 || m.LockTimeout > 0 && m.LockTimeout < time.Millisecond {
		faults = append(faults, fmt.Errorf("lock timeout: %v, takes 1ms or more, or zero for the default", m.LockTimeout))
	}
	files, err := loadMigrations(m.Files)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, fmt.Errorf("configure migrator: %w", err)
	}
	return files, nil
}
