package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// readSQL counts the rows of the table that this session read and did not report yet.
const readSQL = `
select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
from pg_stat_xact_user_tables where relid = 'outbox_events'::regclass`

// explainClaim claims once to warm up, then counts what one claim touches.
func explainClaim(ctx context.Context, conn *pgx.Conn, s statement) (buffers, rowsRead int64, err error) {
	for range 2 {
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

// measureClaims claims again and again, at each point in turn, and rolls each claim back, so that the tables stay as they
// are. A point whose time is over is left out of further turns.
func (b *bench) measureClaims(ctx context.Context, points []point, s statement) ([]claimCost, error) {
	costs := make([]claimCost, len(points))
	conns := make([]*pgx.Conn, len(points))
	spent := make([]time.Duration, len(points))
	for i, p := range points {
		conn, err := p.db.Acquire(ctx)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		defer conn.Release()
		conns[i] = conn.Conn()
		if costs[i].buffers, costs[i].rowsRead, err = explainClaim(ctx, conns[i], s); err != nil {
			return nil, err
		}
	}
	for busy := true; busy; {
		busy = false
		for i := range points {
			n := len(costs[i].times)
			if n >= minSamples && (n >= b.samples || spent[i] >= b.claimTime) {
				continue
			}
			busy = true
			took, claimed, err := timeClaim(ctx, conns[i], s)
			if err != nil {
				return nil, fmt.Errorf("claim: %w", err)
			}
			costs[i].times = append(costs[i].times, took)
			costs[i].claimed = claimed
			spent[i] += took
		}
	}
	for i := range costs {
		slices.Sort(costs[i].times)
	}
	return costs, nil
}

func timeClaim(ctx context.Context, conn *pgx.Conn, s statement) (took time.Duration, claimed int, err error) {
	err = rolledBack(ctx, conn, func(tx pgx.Tx) error {
		began := time.Now()
		rows, err := tx.Query(ctx, s.sql, s.args...)
		if err != nil {
			return err
		}
		for rows.Next() {
			if rows.RawValues()[0] != nil { // the row that tells where a claim came to has no id
				claimed++
			}
		}
		took = time.Since(began)
		return rows.Err()
	})
	return took, claimed, err
}

// rolledBack calls f in a transaction that leaves nothing behind.
func rolledBack(ctx context.Context, conn *pgx.Conn, f func(pgx.Tx) error) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback(context.WithoutCancel(ctx))
		return err
	}
	return tx.Rollback(ctx)
}

// percentile returns the smallest of the ascending times that p of 100 do not exceed.
func percentile(times []time.Duration, p int) time.Duration {
	return times[max((len(times)*p+99)/100-1, 0)]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
