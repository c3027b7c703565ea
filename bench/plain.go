package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	plainClaimSQL = `select id::text, metadata ->> 'claimToken', payload::text from outbox_claim_batch($1, '{}', $2)`
	plainAckSQL   = `select outbox_mark_processed($1::text::uuid, $2)`
)

type plainEvent struct{ id, token, payload string }

// drainPlain is the simplest worker that the contract's functions allow: claim a batch, then acknowledge its events
// one by one, until nothing is left or the time is up.
func drainPlain(ctx context.Context, db *database, batch int, limit time.Duration) (drained, error) {
	start := time.Now()
	events := 0
	for time.Since(start) < limit {
		rows, err := db.Query(ctx, plainClaimSQL, []string{eventType}, batch)
		if err != nil {
			return drained{}, fmt.Errorf("claim: %w", err)
		}
		claimed, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (plainEvent, error) {
			var e plainEvent
			err := row.Scan(&e.id, &e.token, &e.payload)
			return e, err
		})
		if err != nil {
			return drained{}, fmt.Errorf("claim: %w", err)
		}
		if len(claimed) == 0 {
			break
		}
		for _, e := range claimed {
			var done bool
			if err := db.QueryRow(ctx, plainAckSQL, e.id, e.token).Scan(&done); err != nil {
				return drained{}, fmt.Errorf("acknowledge: %w", err)
			}
			if !done {
				return drained{}, errors.New("acknowledge: lease lost")
			}
		}
		events += len(claimed)
	}
	return drained{events: events, took: time.Since(start)}, nil
}
