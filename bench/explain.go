package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// readSQL counts the rows of the table that this session read and did not report yet.
const readSQL = `
select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
from pg_stat_xact_user_tables where relid = 'outbox_events'::regclass`

// explainClaim claims a few times to warm up, then counts what one claim touches.
func explainClaim(ctx context.Context, conn *pgx.Conn, s statement) (buffers, rowsRead int64, err error) {
	for range 3 {
		err := rolledBack(ctx, conn, func(tx pgx.Tx) error {
			var before, after int64
			if err := tx.QueryRow(ctx, readSQL).Scan(&before); err != nil {
				return err
			}
			var plan []byte
			explain := "explain (analyze, buffers, timing off, format json) " + s.sql
			if err := tx.QueryRow(ctx, explain, s.args...).Scan(&plan); err != nil {
				return err
			}
			if err := tx.QueryRow(ctx, readSQL).Scan(&after); err != nil {
				return err
			}
			rowsRead = after - before
			buffers, err = planBuffers(plan)
			return err
		})
		if err != nil {
			return 0, 0, fmt.Errorf("explain claim: %w", err)
		}
	}
	return buffers, rowsRead, nil
}

// planBuffers returns the pages that a plan touched, found in the cache or not.
func planBuffers(plan []byte) (int64, error) {
	var plans []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		} `json:"Plan"`
	}
	if err := json.Unmarshal(plan, &plans); err != nil {
		return 0, fmt.Errorf("read plan: %w", err)
	}
	if len(plans) != 1 {
		return 0, fmt.Errorf("read plan: %d plans, want 1", len(plans))
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read, nil
}
