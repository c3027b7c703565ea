package poolers_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// modes are the ways of sending statements that every store case must hold in, and what OUTBOX_DB_EXEC_MODE calls them.
var modes = map[string]pgx.QueryExecMode{
	"cache_statement": pgx.QueryExecModeCacheStatement,
	"cache_describe":  pgx.QueryExecModeCacheDescribe,
	"describe_exec":   pgx.QueryExecModeDescribeExec,
	"exec":            pgx.QueryExecModeExec,
	"simple_protocol": pgx.QueryExecModeSimpleProtocol,
}

// testStore runs the suite: the store takes the way that via makes of a database's URL, in the mode; the hands on its data
// are always direct. A few databases serve all cases, emptied after each: to make and drop one costs more than a case.
func testStore(t *testing.T, mode pgx.QueryExecMode, via func(url string) (string, error)) {
	t.Helper()
	free := make(chan string, runtime.GOMAXPROCS(0))
	for range cap(free) {
		free <- postgrestest.URL(t)
	}
	t.Run("suite", func(t *testing.T) {
		outboxtest.TestStore(t, func(t *testing.T) outboxtest.Harness {
			t.Helper()
			t.Parallel()
			url := <-free
			t.Cleanup(func() { free <- url })
			hands := connect(t, url, pgx.QueryExecModeExec)
			empty(t, hands)
			through, err := via(url)
			if err != nil {
				t.Fatal(err)
			}
			h := harness(t, hands)
			h.Store = &postgres.Store{Pool: connect(t, through, mode)}
			return h
		})
	})
}

// empty leaves the outbox as the migration made it.
func empty(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var tables string
	err := pool.QueryRow(t.Context(), `select string_agg(format('%I', tablename), ', ') from pg_tables
		where schemaname = 'public' and tablename <> 'outbox_schema_migrations'`).Scan(&tables)
	if err == nil {
		_, err = pool.Exec(t.Context(), "truncate "+tables+" restart identity")
	}
	if err != nil {
		t.Fatalf("empty the outbox: %v", err)
	}
}

func direct(url string) (string, error) { return url, nil }

func connect(t *testing.T, url string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode, config.MaxConns = mode, 4
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func harness(t *testing.T, pool *pgxpool.Pool) outboxtest.Harness {
	t.Helper()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	now := func() time.Time { return clock(t, pool) }
	return outboxtest.Harness{
		Insert: func(row outboxtest.Row) string {
			row = row.WithDefaults(now())
			exec(`insert into outbox_events (id, created_at, available_at, processed_at, aggregate_type, aggregate_id,
				event_type, idempotency_key, status, attempts, payload, error, metadata)
				values ($1::text::uuid, $2, $3, $4, $5, $6::text::uuid, $7, $8, $9, $10, $11::text::jsonb, nullif($12, ''), $13::text::jsonb)`,
				row.ID, row.CreatedAt, row.AvailableAt, orNull(row.ProcessedAt), row.AggregateType, row.AggregateID, row.Type,
				row.IdempotencyKey, row.Status, row.Attempts, string(row.Payload), row.Error, string(row.Metadata))
			return row.ID
		},
		Row: func(id string) outboxtest.Row {
			row, err := read(t.Context(), pool, id)
			if err != nil {
				t.Fatalf("read row %s: %v", id, err)
			}
			return row
		},
		Update: func(row outboxtest.Row) {
			exec(`update outbox_events set status = $2, attempts = $3, available_at = $4, processed_at = $5,
				error = nullif($6, ''), metadata = $7::text::jsonb where id = $1::text::uuid`, row.ID, row.Status, row.Attempts,
				row.AvailableAt, orNull(row.ProcessedAt), row.Error, string(row.Metadata))
		},
		DeclareDormant: func(eventType string) {
			exec(`insert into outbox_dormant_event_types (event_type, owner, reason) values ($1, 'suite', 'test')`, eventType)
		},
		AgeCircuits: func(d time.Duration) {
			exec(`update outbox_circuits set open_until = open_until - $1::interval, probe_until = probe_until - $1::interval`, d)
		},
		Exists: func(id string) bool {
			var found bool
			err := pool.QueryRow(t.Context(), `select exists (select from outbox_events where id = $1::text::uuid)`, id).Scan(&found)
			if err != nil {
				t.Fatalf("look for row %s: %v", id, err)
			}
			return found
		},
		Now: now,
	}
}

func read(ctx context.Context, pool *pgxpool.Pool, id string) (row outboxtest.Row, err error) {
	var processedAt *time.Time
	err = pool.QueryRow(ctx, `select id::text, position, created_at, available_at, processed_at, aggregate_type,
		aggregate_id::text, event_type, idempotency_key, status, attempts, convert_to(payload::text, 'UTF8'),
		coalesce(error, ''), convert_to(metadata::text, 'UTF8') from outbox_events where id = $1::text::uuid`, id).Scan(&row.ID,
		&row.Position, &row.CreatedAt, &row.AvailableAt, &processedAt, &row.AggregateType, &row.AggregateID, &row.Type,
		&row.IdempotencyKey, &row.Status, &row.Attempts, &row.Payload, &row.Error, &row.Metadata)
	if processedAt != nil {
		row.ProcessedAt = *processedAt
	}
	return row, err
}

func clock(t *testing.T, pool *pgxpool.Pool) time.Time {
	t.Helper()
	var at time.Time
	if err := pool.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&at); err != nil {
		t.Fatalf("read the clock: %v", err)
	}
	return at
}

func orNull(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func server(t *testing.T) string {
	t.Helper()
	url := os.Getenv("OUTBOX_TEST_DATABASE_URL")
	if url == "" {
		t.Fatal("OUTBOX_TEST_DATABASE_URL is not set: make test and make poolers set it")
	}
	return url
}
