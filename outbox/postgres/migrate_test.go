package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
	"github.com/openlup/outbox-dispatch/sql"
)

const (
	createOrders = "create table orders (id int primary key, note text);\n"
	indexOrders  = "-- outbox: no transaction\n-- why: looked up by note\ncreate index concurrently orders_note on public.orders (note);\n"
)

func TestUpAppliesEveryFileOnceInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, postgrestest.Empty(t), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			m := &postgres.Migrator{Pool: pool, Files: files(
				"0001_orders.sql", createOrders+"insert into orders values (1, 'a;b'), (2, $$;$$);",
				"0002_index.sql", indexOrders,
				"0003_more.sql", "alter table orders add column total int;",
			)}
			report := up(t, m)
			if got, want := names(report), "0001_orders.sql 0002_index.sql 0003_more.sql"; got != want {
				t.Errorf("first run applied %q, want %q", got, want)
			}
			if report.VersionBefore != 0 || report.VersionAfter != 3 || report.State != postgres.StateCurrent || len(report.Pending) != 0 {
				t.Errorf("first run reports %+v, want from 0 to 3, current, nothing pending", report)
			}
			again := up(t, m)
			want := postgres.Report{VersionBefore: 3, VersionAfter: 3, State: postgres.StateCurrent, Applied: []postgres.AppliedMigration{}, Pending: []postgres.PendingMigration{}}
			if !reflect.DeepEqual(again, want) {
				t.Errorf("second run reports %+v, want %+v", again, want)
			}
			if got := query[int](t, pool, "select count(*) from public.orders"); got != 2 {
				t.Errorf("rows inserted by the first file: %d, want 2", got)
			}
			if _, err := m.Verify(t.Context()); err != nil {
				t.Errorf("verify after up: %v", err)
			}
		})
	}
}

func TestUpAppliesTheShippedMigrations(t *testing.T) {
	t.Parallel()
	latest, err := postgres.Latest(sql.Files)
	if err != nil {
		t.Fatal(err)
	}
	m := &postgres.Migrator{Pool: openPool(t, postgrestest.Empty(t), nil), Files: sql.Files}
	if got := up(t, m).VersionAfter; got != latest {
		t.Errorf("version after up: %d, want %d", got, latest)
	}
	if _, err := m.Verify(t.Context()); err != nil {
		t.Errorf("verify: %v", err)
	}
}

func TestUpPutsUnqualifiedNamesIntoPublicWhateverTheSearchPath(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = "elsewhere"
		c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "off"
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "repeatable read"
	})
	execSQL(t, pool, "create schema elsewhere")
	up(t, &postgres.Migrator{Pool: pool, Files: files("0001_orders.sql", createOrders, "0002_index.sql", indexOrders)})
	if got := query[string](t, pool, "select relnamespace::regnamespace::text from pg_class where relname = 'orders'"); got != "public" {
		t.Errorf("orders is in schema %s, want public", got)
	}
}

// What stays on a session would meet whoever gets it next from a transaction pooler.
func TestUpLeavesNothingOnItsSessions(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), func(c *pgxpool.Config) { c.MaxConns = 2 })
	const settings = "select string_agg(name || '=' || setting, ' ' order by name) from pg_settings where name in ('lock_timeout', 'statement_timeout', 'search_path', 'idle_in_transaction_session_timeout', 'transaction_timeout')"
	before := query[string](t, pool, settings)
	up(t, &postgres.Migrator{Pool: pool, Files: files("0001_orders.sql", createOrders, "0002_index.sql", indexOrders)})
	if got := pool.Stat().NewConnsCount(); got != 2 {
		t.Errorf("connections made: %d, want 2 that are used again", got)
	}
	for _, conn := range pool.AcquireAllIdle(t.Context()) {
		var after string
		if err := conn.QueryRow(t.Context(), settings).Scan(&after); err != nil || after != before {
			t.Errorf("settings after the run: %s, %v; want %s", after, err, before)
		}
		conn.Release()
	}
	if got := query[int](t, pool, "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())"); got != 0 {
		t.Errorf("advisory locks after the run: %d, want none", got)
	}
}

func TestUpResumesAtTheFileThatFailed(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	broken := files("0001_orders.sql", createOrders, "0002_half.sql", "create table half (id int);\nselect 1/0;", "0003_last.sql", "create table last (id int);")
	report, err := (&postgres.Migrator{Pool: pool, Files: broken}).Up(t.Context())
	var failure *postgres.MigrationError
	if !errors.As(err, &failure) {
		t.Fatalf("error %v, want a MigrationError", err)
	}
	if failure.File != "0002_half.sql" || failure.Statement != 2 || failure.Line != 0 {
		t.Errorf("failure of %s, statement %d, line %d; want 0002_half.sql, statement 2, no line", failure.File, failure.Statement, failure.Line)
	}
	if names(report) != "0001_orders.sql" || report.VersionAfter != 1 || len(report.Pending) != 2 {
		t.Errorf("report %+v, want the first file applied and two pending", report)
	}
	if query[bool](t, pool, "select to_regclass('public.half') is not null") {
		t.Error("the failed file left its table behind")
	}
	broken["0002_half.sql"].Data = []byte("create table half (id int);")
	if got, want := names(up(t, &postgres.Migrator{Pool: pool, Files: broken})), "0002_half.sql 0003_last.sql"; got != want {
		t.Errorf("after the repair applied %q, want %q", got, want)
	}
}

func TestErrorNamesFilePlaceCodeAndHint(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sql          string
		line, column int
		want         string
	}{
		"syntax": {"-- ünïcödé\r\nselect 1;\r\n  selekt 2;", 3, 3, "line 3, column 3: ERROR: syntax error at or near \"selekt\" (SQLSTATE 42601)"},
		"hint":   {"select 1;\nselect upper(1, 2);", 2, 8, "SQLSTATE 42883); hint: No function matches"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := (&postgres.Migrator{Pool: openPool(t, postgrestest.Empty(t), nil), Files: files("0001_bad.sql", tc.sql)}).Up(t.Context())
			var failure *postgres.MigrationError
			if !errors.As(err, &failure) {
				t.Fatalf("error %v, want a MigrationError", err)
			}
			if failure.Line != tc.line || failure.Column != tc.column {
				t.Errorf("line %d, column %d; want %d, %d", failure.Line, failure.Column, tc.line, tc.column)
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "0001_bad.sql") {
				t.Errorf("error %q, want it to name 0001_bad.sql and contain %q", err, tc.want)
			}
		})
	}
}

func TestAFileThatEndsItsTransactionIsRefused(t *testing.T) {
	t.Parallel()
	m := &postgres.Migrator{Pool: openPool(t, postgrestest.Empty(t), nil), Files: files("0001_commit.sql", "create table a (id int); commit;")}
	if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "ended its own transaction") {
		t.Errorf("error %v, want one about the ended transaction", err)
	}
}

func TestConcurrentRunnersApplyOnce(t *testing.T) {
	t.Parallel()
	url := postgrestest.Empty(t)
	set := files("0001_orders.sql", createOrders+"select pg_sleep(0.3);", "0002_index.sql", indexOrders, "0003_last.sql", "create table last (id int);")
	shared := openPool(t, url, func(c *pgxpool.Config) { c.MaxConns = 2 })
	pools := []*pgxpool.Pool{shared, shared, openPool(t, url, nil), openPool(t, url, nil)}
	reports, errs := make([]postgres.Report, len(pools)), make([]error, len(pools))
	var group sync.WaitGroup
	for i, pool := range pools {
		group.Go(func() { reports[i], errs[i] = (&postgres.Migrator{Pool: pool, Files: set}).Up(t.Context()) })
	}
	group.Wait()
	applied := 0
	for i := range pools {
		if errs[i] != nil {
			t.Errorf("runner %d: %v", i, errs[i])
		}
		if n := len(reports[i].Applied); n != 0 && n != 3 {
			t.Errorf("runner %d applied %d files, want all or none", i, n)
		}
		applied += len(reports[i].Applied)
		if reports[i].VersionAfter != 3 {
			t.Errorf("runner %d ended at version %d, want 3", i, reports[i].VersionAfter)
		}
	}
	if applied != 3 {
		t.Errorf("files applied by all runners: %d, want 3", applied)
	}
}

func TestAWaitingRunnerGivesUpWithItsContextAndNamesTheHolder(t *testing.T) {
	t.Parallel()
	url := postgrestest.Empty(t)
	holder := openPool(t, url, nil)
	holding, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := (&postgres.Migrator{Pool: holder, Files: files("0001_slow.sql", "select pg_sleep(60);")}).Up(holding)
		done <- err
	}()
	waitFor(t, openPool(t, url, nil), "select exists (select from pg_locks where locktype = 'advisory' and granted and database = (select oid from pg_database where datname = current_database()))")

	cause := errors.New("the test's patience")
	ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, cause)
	defer stop()
	_, err := (&postgres.Migrator{Pool: openPool(t, url, nil), Files: files("0001_slow.sql", "select 1;")}).Up(ctx)
	var locked *postgres.MigrationLockError
	if !errors.As(err, &locked) || !errors.Is(err, cause) || locked.Holder == "" {
		t.Errorf("error %v, want a MigrationLockError with the context's cause and the holder", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled holder: error %v, want context.Canceled", err)
	}
}

func TestAnEndedContextStopsTheFileAndFreesTheLock(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	cause := errors.New("time is up")
	ctx, stop := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, cause)
	defer stop()
	set := files("0001_orders.sql", createOrders, "0002_slow.sql", "select pg_sleep(60);")
	report, err := (&postgres.Migrator{Pool: pool, Files: set}).Up(ctx)
	var failure *postgres.MigrationError
	if !errors.As(err, &failure) || failure.File != "0002_slow.sql" || !errors.Is(err, cause) {
		t.Errorf("error %v, want a MigrationError for 0002_slow.sql with the context's cause", err)
	}
	if report.VersionAfter != 1 {
		t.Errorf("version after: %d, want 1", report.VersionAfter)
	}
	set["0002_slow.sql"].Data = []byte("select 1;")
	if got := names(up(t, &postgres.Migrator{Pool: pool, Files: set})); got != "0002_slow.sql" {
		t.Errorf("the next run applied %q, want 0002_slow.sql", got)
	}
}

func TestDriftIsRefusedWithEveryFault(t *testing.T) {
	t.Parallel()
	original := []string{"0001_a.sql", "create table a (id int);\n", "0002_b.sql", "create table b (id int);", "0003_c.sql", "create table c (id int);"}
	for name, tc := range map[string]struct {
		files fstest.MapFS
		sql   string // done to the history first
		want  []string
	}{
		"checksum":     {files: files("0001_a.sql", "create table a (id bigint);", "0002_b.sql", original[3], "0003_c.sql", "--"), want: []string{"0001_a.sql has changed", "0003_c.sql has changed"}},
		"name":         {files: files("0001_a.sql", original[1], "0002_x.sql", original[3], "0003_c.sql", original[5]), want: []string{"version 2 was applied as 0002_b.sql, but the file is 0002_x.sql"}},
		"gap":          {files: files(original...), sql: "delete from outbox_schema_migrations where version = 2", want: []string{"0002_b.sql was never applied, but version 3 was"}},
		"unknown":      {files: files(original...), sql: "insert into outbox_schema_migrations values (0, 'zero', '', now(), 1)", want: []string{"version 0 (zero) is in the database, but there is no such file"}},
		"ahead, gappy": {files: files(original...), sql: "update outbox_schema_migrations set version = 4 where version = 3", want: []string{"0003_c.sql was never applied, but version 4 was"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, postgrestest.Empty(t), nil)
			up(t, &postgres.Migrator{Pool: pool, Files: files(original...)})
			if tc.sql != "" {
				execSQL(t, pool, tc.sql)
			}
			m := &postgres.Migrator{Pool: pool, Files: tc.files}
			_, upErr := m.Up(t.Context())
			_, verifyErr := m.Verify(t.Context())
			for _, err := range []error{upErr, verifyErr} {
				if _, ok := errors.AsType[*postgres.DriftError](err); !ok {
					t.Fatalf("error %v, want a DriftError", err)
				}
				for _, want := range tc.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q, want it to contain %q", err, want)
					}
				}
			}
			if status, err := m.Status(t.Context()); err != nil || status.State != postgres.StateDrift || len(status.Faults) != len(tc.want) {
				t.Errorf("status %+v, %v; want drift with %d faults", status, err, len(tc.want))
			}
		})
	}
}

func TestLineEndsAreNotDrift(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	up(t, &postgres.Migrator{Pool: pool, Files: files("0001_a.sql", "create table a\n(id int);\n", "0002_b.sql", "select 1;\n")})
	m := &postgres.Migrator{Pool: pool, Files: files("0001_a.sql", "create table a\r\n(id int);\r\n", "0002_b.sql", "select 1;\r\n")}
	if _, err := m.Verify(t.Context()); err != nil {
		t.Errorf("the same files with CRLF: %v, want no error", err)
	}
}

func TestADatabaseAheadIsRefused(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	up(t, &postgres.Migrator{Pool: pool, Files: files("0001_a.sql", "select 1;", "0002_b.sql", "select 2;")})
	m := &postgres.Migrator{Pool: pool, Files: files("0001_a.sql", "select 1;")}
	_, upErr := m.Up(t.Context())
	_, verifyErr := m.Verify(t.Context())
	for _, err := range []error{upErr, verifyErr} {
		var ahead *postgres.DatabaseAheadError
		if !errors.As(err, &ahead) || ahead.Database != 2 || ahead.Files != 1 {
			t.Errorf("error %v, want a DatabaseAheadError of 2 over 1", err)
		}
	}
	if status, err := m.Status(t.Context()); err != nil || status.State != postgres.StateAhead {
		t.Errorf("status %+v, %v; want ahead", status, err)
	}
}

func TestStatusAndVerifyChangeNothing(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	m := &postgres.Migrator{Pool: pool, Files: files("0001_a.sql", "create table a (id int);")}
	status, err := m.Status(t.Context())
	want := postgres.Report{State: postgres.StatePending, Applied: []postgres.AppliedMigration{}, Pending: []postgres.PendingMigration{{Version: 1, Name: "0001_a.sql"}}}
	if err != nil || !reflect.DeepEqual(status, want) {
		t.Errorf("status %+v, %v; want %+v", status, err, want)
	}
	var pending *postgres.PendingError
	if _, err := m.Verify(t.Context()); !errors.As(err, &pending) || pending.Files[0] != "0001_a.sql" {
		t.Errorf("verify: %v, want a PendingError naming 0001_a.sql", err)
	}
	if got := query[int](t, pool, "select count(*) from pg_class where relnamespace = 'public'::regnamespace"); got != 0 {
		t.Errorf("objects in public: %d, want none", got)
	}
}

// An application statement that queues behind the waiting migration must get through while the first lock is held.
func TestAWaitingMigrationStepsAsideForTheApplication(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	one := files("0001_orders.sql", createOrders)
	up(t, &postgres.Migrator{Pool: pool, Files: one})

	reader, err := pool.Begin(t.Context()) // stands for a long transaction that reads
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(t.Context(), "lock table orders in access share mode"); err != nil {
		t.Fatal(err)
	}
	two := files("0001_orders.sql", createOrders, "0002_alter.sql", "alter table orders add column total int;")
	done := make(chan error, 1)
	go func() {
		_, err := (&postgres.Migrator{Pool: pool, Files: two, LockTimeout: 300 * time.Millisecond}).Up(t.Context())
		done <- err
	}()
	waitFor(t, pool, "select exists (select from pg_locks where relation = 'orders'::regclass and mode = 'AccessExclusiveLock' and not granted)")
	// Queues behind the migration now; without its lock_timeout this insert would wait for ever.
	execSQL(t, pool, "insert into orders values (1, 'queued')")
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("migration after the reader left: %v, want a retry that succeeds", err)
	}
}

func TestALockThatIsNeverFreedFailsTheFileAfterSomeAttempts(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	execSQL(t, pool, createOrders)
	holder, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := holder.Exec(t.Context(), "lock table orders in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	m := &postgres.Migrator{Pool: pool, LockTimeout: 20 * time.Millisecond, Files: files("0001_alter.sql", "alter table orders add column total int;")}
	_, err = m.Up(t.Context())
	var failure *postgres.MigrationError
	var pg *pgconn.PgError
	if !errors.As(err, &failure) || !errors.As(err, &pg) || pg.Code != "55P03" || failure.Attempts != 5 {
		t.Errorf("error %v, want a MigrationError for 55P03 after 5 attempts", err)
	}
}

func TestConfigurationFaultsAreReportedTogether(t *testing.T) {
	t.Parallel()
	m := &postgres.Migrator{LockTimeout: -1, Files: files("1_short.sql", "", "0002_b.sql", "")}
	for name, call := range map[string]func(context.Context) (postgres.Report, error){"up": m.Up, "status": m.Status, "verify": m.Verify} {
		_, err := call(t.Context())
		for _, want := range []string{"pool: nil", "lock timeout: -1ns", "1_short.sql: takes a name like"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want it to contain %q", name, err, want)
			}
		}
	}
	small := openPool(t, postgrestest.Empty(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	if _, err := (&postgres.Migrator{Pool: small, Files: sql.Files}).Up(t.Context()); err == nil || !strings.Contains(err.Error(), "pool: at most 1") {
		t.Errorf("pool of one: error %v, want one about the pool", err)
	}
}

func TestLatestRefusesABadSet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		files fs.FS
		want  string
	}{
		"nil":           {nil, "files: nil"},
		"empty":         {fstest.MapFS{}, "no migrations found"},
		"gap":           {files("0001_a.sql", "", "0003_c.sql", ""), "0003_c.sql: number 3, takes 2"},
		"duplicate":     {files("0001_a.sql", "", "0001_b.sql", ""), "0001_b.sql: number 1, takes 2"},
		"no name":       {files("0001_.sql", ""), "0001_.sql: takes a name"},
		"not a number":  {files("+001_a.sql", ""), "+001_a.sql: takes a name"},
		"not an index":  {files("0001_a.sql", "-- outbox: no transaction\nvacuum;"), "takes one statement of the form"},
		"no schema":     {files("0001_a.sql", "-- outbox: no transaction\ncreate index concurrently i on t (id)"), "takes one statement of the form"},
		"if not exists": {files("0001_a.sql", "-- outbox: no transaction\ncreate index concurrently if not exists i on public.t (id)"), "takes one statement of the form"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := postgres.Latest(tc.files)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("latest %d, error %v; want an error with %q", got, err, tc.want)
			}
		})
	}
}

func ExampleLatest() {
	latest, err := postgres.Latest(fstest.MapFS{
		"0001_orders.sql": {Data: []byte("create table orders (id int primary key);")},
		"0002_notes.sql":  {Data: []byte("alter table orders add column note text;")},
	})
	fmt.Println(latest, err)
	// Output: 2 <nil>
}

func files(namesAndContents ...string) fstest.MapFS {
	set := fstest.MapFS{"README.md": {}}
	for i := 0; i < len(namesAndContents); i += 2 {
		set[namesAndContents[i]] = &fstest.MapFile{Data: []byte(namesAndContents[i+1])}
	}
	return set
}

func names(report postgres.Report) string {
	var list []string
	for _, a := range report.Applied {
		list = append(list, a.Name)
	}
	return strings.Join(list, " ")
}

func up(t *testing.T, m *postgres.Migrator) postgres.Report {
	t.Helper()
	report, err := m.Up(t.Context())
	if err != nil {
		t.Fatalf("up: %v", err)
	}
	return report
}

func openPool(t *testing.T, url string, adjust func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	if adjust != nil {
		adjust(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func execSQL(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](t *testing.T, pool *pgxpool.Pool, sql string) T {
	t.Helper()
	var value T
	if err := pool.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// waitFor polls until the query answers true.
func waitFor(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !query[bool](t, pool, sql); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never became true: %s", sql)
		}
	}
}
