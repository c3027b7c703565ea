package postgres_test

import (
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

func TestStoreConformance(t *testing.T) {
	t.Parallel()
	outboxtest.TestStore(t, openHarness)
}

func openHarness(t *testing.T) outboxtest.Harness {
	t.Helper()
	t.Parallel()
	pool := postgrestest.New(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	now := func() time.Time {
		var at time.Time
		if err := pool.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&at); err != nil {
			t.Fatalf("read the clock: %v", err)
		}
		return at
	}
	orNull := func(at time.Time) *time.Time {
		if at.IsZero() {
			return nil
		}
		return &at
	}
	return outboxtest.Harness{
		Store: &postgres.Store{Pool: pool},
		Insert: func(row outboxtest.Row) string {
			row = row.WithDefaults(now())
			exec(`insert into outbox_events (id, created_at, available_at, processed_at, aggregate_type, aggregate_id,
				event_type, idempotency_key, status, attempts, payload, error, metadata)
				values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, nullif($12, ''), $13)`,
				row.ID, row.CreatedAt, row.AvailableAt, orNull(row.ProcessedAt), row.AggregateType, row.AggregateID, row.Type,
				row.IdempotencyKey, row.Status, row.Attempts, []byte(row.Payload), row.Error, []byte(row.Metadata))
			return row.ID
		},
		Row: func(id string) outboxtest.Row {
			var row outboxtest.Row
			var processedAt *time.Time
			if err := pool.QueryRow(t.Context(), `select id::text, position, created_at, available_at, processed_at,
				aggregate_type, aggregate_id::text, event_type, idempotency_key, status, attempts, convert_to(payload::text, 'UTF8'),
				coalesce(error, ''), convert_to(metadata::text, 'UTF8') from outbox_events where id = $1`, id).Scan(&row.ID, &row.Position,
				&row.CreatedAt, &row.AvailableAt, &processedAt, &row.AggregateType, &row.AggregateID, &row.Type,
				&row.IdempotencyKey, &row.Status, &row.Attempts, &row.Payload, &row.Error, &row.Metadata); err != nil {
				t.Fatalf("read row %s: %v", id, err)
			}
			if processedAt != nil {
				row.ProcessedAt = *processedAt
			}
			return row
		},
		Update: func(row outboxtest.Row) {
			exec(`update outbox_events set status = $2, attempts = $3, available_at = $4, processed_at = $5,
				error = nullif($6, ''), metadata = $7 where id = $1`, row.ID, row.Status, row.Attempts, row.AvailableAt,
				orNull(row.ProcessedAt), row.Error, []byte(row.Metadata))
		},
		DeclareDormant: func(eventType string) {
			exec(`insert into outbox_dormant_event_types (event_type, owner, reason) values ($1, 'suite', 'test')`, eventType)
		},
		AgeCircuits: func(d time.Duration) {
			exec(`update outbox_circuits set open_until = open_until - $1::interval, probe_until = probe_until - $1::interval`, d)
		},
		Exists: func(id string) bool {
			return scalar[bool](t, pool, `select exists (select from outbox_events where id = $1)`, id)
		},
		Now: now,
	}
}
