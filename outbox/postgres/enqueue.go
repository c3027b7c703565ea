package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// NewEvent is an event to enqueue. All fields are required.
type NewEvent struct {
	AggregateType string
	AggregateID   string // a UUID
	Type          string
	// IdempotencyKey is unique together with Type, for as long as the row is kept: a second event of the same key is not inserted.
	IdempotencyKey string
	Payload        json.RawMessage // any JSON value
}

const enqueueSQL = `
insert into public.outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
select e.aggregate_type, e.aggregate_id::uuid, e.event_type, e.idempotency_key, e.payload::jsonb
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
  with ordinality as e (aggregate_type, aggregate_id, event_type, idempotency_key, payload, ordinal)
order by e.ordinal
on conflict on constraint outbox_events_event_type_idempotency_key_key do nothing`

// Enqueue inserts events in the producer's own transaction, in the order given, and returns how many were new: an
// event whose type and idempotency key are in the table already is left as it is. Events of one aggregate are
// delivered in the order in which they were enqueued, provided that transactions which write to one aggregate
// exclude each other, by a lock on the aggregate's own row for example. On an error nothing is inserted and the
// transaction is as PostgreSQL leaves it: aborted, unless the fault was found before anything was sent.
func Enqueue(ctx context.Context, tx pgx.Tx, events ...NewEvent) (int, error) {
	if err := validate(events); err != nil {
		return 0, fmt.Errorf("enqueue: %w", err)
	}
	n := len(events)
	kinds, ids, types := make([]string, n), make([]string, n), make([]string, n)
	keys, payloads := make([]string, n), make([]string, n)
	for i, e := range events {
		kinds[i], ids[i], types[i], keys[i], payloads[i] =
			e.AggregateType, e.AggregateID, e.Type, e.IdempotencyKey, string(e.Payload)
	}
	tag, err := tx.Exec(ctx, enqueueSQL, kinds, ids, types, keys, payloads)
	if err != nil {
		return 0, fmt.Errorf("enqueue %d events: %w", n, err)
	}
	return int(tag.RowsAffected()), nil
}

// validate reports every fault of every event, none with its payload.
func validate(events []NewEvent) error {
	var faults []error
	for i, e := range events {
		for _, field := range []struct{ name, value string }{
			{"AggregateType", e.AggregateType},
			{"AggregateID", e.AggregateID},
			{"Type", e.Type},
			{"IdempotencyKey", e.IdempotencyKey},
		} {
			if strings.Trim(field.value, " ") == "" {
				faults = append(faults, fmt.Errorf("event %d: %s is blank", i, field.name))
			}
		}
		if !json.Valid(e.Payload) {
			faults = append(faults, fmt.Errorf("event %d: Payload is no JSON (%d bytes)", i, len(e.Payload)))
		}
	}
	return errors.Join(faults...)
}
