package postgres_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const anAggregate = "7b0e4a52-8f0c-4a53-9d0b-0d2b8e0a6f11"

func newEvent(key string) postgres.NewEvent {
	return postgres.NewEvent{
		AggregateType: "order", AggregateID: anAggregate, Type: "order.placed", IdempotencyKey: key,
		Payload: json.RawMessage(`{"n": 1}`),
	}
}

func enqueue(t *testing.T, pool *pgxpool.Pool, events ...postgres.NewEvent) (inserted int, err error) {
	t.Helper()
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		inserted, err = postgres.Enqueue(t.Context(), tx, events...)
		return err
	})
	return inserted, err
}

func TestEnqueueKeepsTheOrderOfTheCall(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	keys := strings.Split("zebra,apple,mango,kiwi,plum,fig,date,lime,pear,nut", ",")
	var events []postgres.NewEvent
	for _, key := range keys {
		events = append(events, newEvent(key))
	}
	if n, err := enqueue(t, pool, events...); n != len(keys) || err != nil {
		t.Fatalf("enqueued %d, error %v, want %d", n, err, len(keys))
	}
	got := scalar[string](t, pool, "select string_agg(idempotency_key, ',' order by position) from outbox_events")
	if want := strings.Join(keys, ","); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

func TestEnqueueLeavesAnEventOfTheSameKeyAsItIs(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	if n, err := enqueue(t, pool, newEvent("a")); n != 1 || err != nil {
		t.Fatalf("enqueued %d, error %v, want 1", n, err)
	}
	again := newEvent("a")
	again.Payload = json.RawMessage(`{"n": 2}`)
	if n, err := enqueue(t, pool, again, newEvent("b"), newEvent("b")); n != 1 || err != nil {
		t.Errorf("enqueued %d, error %v, want 1 new", n, err)
	}
	if got := scalar[string](t, pool, "select payload::text from outbox_events where idempotency_key = 'a'"); got != `{"n": 1}` {
		t.Errorf("payload %s, want the first one's", got)
	}
}

func TestEnqueueBelongsToTheProducersTransaction(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	undone := errors.New("undone")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := postgres.Enqueue(t.Context(), tx, newEvent("a")); err != nil {
			return err
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatalf("error %v, want the rollback's", err)
	}
	if n := scalar[int](t, pool, "select count(*) from outbox_events"); n != 0 {
		t.Errorf("%d rows after a rollback, want none", n)
	}
}

func TestEnqueueNamesEveryFaultAndNoPayload(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	_, err := enqueue(t, pool, newEvent("a"), postgres.NewEvent{AggregateType: " ", Payload: json.RawMessage(`{"card": 4111`)})
	if err == nil {
		t.Fatal("a bad event was accepted")
	}
	for _, want := range []string{"AggregateType", "AggregateID", "Type", "IdempotencyKey", "Payload is no JSON"} {
		if !strings.Contains(err.Error(), "event 1: "+want) {
			t.Errorf("error %q does not name %s of event 1", err, want)
		}
	}
	if strings.Contains(err.Error(), "4111") {
		t.Errorf("error %q holds the payload", err)
	}
	bad := newEvent("b")
	bad.AggregateID = "no uuid"
	if _, err := enqueue(t, pool, bad); err == nil {
		t.Error("an aggregate id that is no UUID was accepted")
	}
	if n := scalar[int](t, pool, "select count(*) from outbox_events"); n != 0 {
		t.Errorf("%d rows after refused calls, want none", n)
	}
}
