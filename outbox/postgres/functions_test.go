package postgres_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

func TestSettleRefusesArraysThatDontRunInParallel(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	full := []string{"array[gen_random_uuid()]", "array['t']", "array['retry']", "array['r']", "array[null]::jsonb[]", "array[null]::int[]"}
	for i, argument := range full {
		for _, other := range []string{"null", "'{}'", "array_cat(" + argument + ", " + argument + ")"} {
			call := "select * from outbox_settle("
			for j, usual := range full {
				if j > 0 {
					call += ", "
				}
				if j == i {
					usual = other
				}
				call += usual
			}
			_, err := pool.Exec(t.Context(), call+")")
			var refusal *pgconn.PgError
			if !errors.As(err, &refusal) || refusal.Message != "outbox_settle_invalid_input" || refusal.Code != "22023" {
				t.Errorf("%s): error %v, want outbox_settle_invalid_input", call, err)
			}
		}
	}
}

func TestQueueStats(t *testing.T) {
	t.Parallel()
	type figures struct {
		Unfinished       int  `json:"unfinished"`
		Capped           bool `json:"capped"`
		OldestDueSeconds int  `json:"oldestDueSeconds"`
		ByEventType      map[string]struct {
			Unfinished       int `json:"unfinished"`
			OldestDueSeconds int `json:"oldestDueSeconds"`
		} `json:"byEventType"`
	}
	pool := postgrestest.New(t)
	store := &postgres.Store{Pool: pool}
	read := func() (f figures) {
		t.Helper()
		raw, err := store.QueueStats(t.Context())
		if err != nil {
			t.Fatalf("statistics: %v", err)
		}
		if err := json.Unmarshal(raw, &f); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return f
	}
	if got := read(); got.Unfinished != 0 || got.Capped || got.OldestDueSeconds != 0 || got.ByEventType == nil {
		t.Errorf("an empty queue has %+v", got)
	}
	if _, err := pool.Exec(t.Context(), `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, created_at, available_at)
select 'x', gen_random_uuid(), type, key, '{}', status, now() + created, case when due = 'bot' then '-infinity' else now() + due::interval end
from (values
  ('fresh', 'a', 'pending', interval '-100 s', '-100 s'), ('fresh', 'b', 'pending', '-50 s', '-50 s'),
  ('delayed', 'c', 'failed', '-500 s', '-30 s'), ('delayed', 'd', 'failed', '-500 s', '1 h'),
  ('future', 'e', 'pending', '0', '1 h'), ('leased', 'f', 'processing', '-500 s', '200 s'),
  ('done', 'g', 'processed', '-500 s', '-500 s'), ('done', 'h', 'discarded', '-500 s', '-500 s'),
  ('endless', 'i', 'pending', '0', 'bot')
) as v (type, key, status, created, due)`); err != nil {
		t.Fatal(err)
	}
	got := read()
	if got.Unfinished != 7 || got.Capped {
		t.Errorf("%d unfinished, capped %t, want 7 and not capped", got.Unfinished, got.Capped)
	}
	for name, want := range map[string][2]int{"fresh": {2, 100}, "delayed": {2, 30}, "future": {1, 0}, "leased": {1, 0}, "endless": {1, 0}} {
		of := got.ByEventType[name]
		if of.Unfinished != want[0] || of.OldestDueSeconds < want[1] || of.OldestDueSeconds > want[1]+60 {
			t.Errorf("%s has %+v, want %d unfinished, the oldest due for %d s or little more", name, of, want[0], want[1])
		}
	}
	insertEvents(t, pool, 10_001, 10)
	if got := read(); !got.Capped || got.ByEventType["order.placed"].Unfinished != 10_000 {
		t.Errorf("10,001 events: %+v, want capped at 10,000", got)
	}
}

func TestRepeatableReadClaimSaysSo(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	insertEvents(t, pool, 1, 1)
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "select count(*) from outbox_events"); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	const claim = "select count(*) from outbox_claim_batch(array['order.placed'])"
	if n := scalar[int](t, pool, claim); n != 1 {
		t.Fatalf("claimed %d, want 1", n)
	}
	var refusal *pgconn.PgError
	if _, err := tx.Exec(t.Context(), claim); !errors.As(err, &refusal) || refusal.Code != "40001" {
		t.Errorf("error %v, want SQLSTATE 40001", err)
	}
}
