package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// timedStore times the claims of a pass.
type timedStore struct {
	*postgres.Store

	lock    sync.Mutex
	times   []time.Duration
	claimed int
}

// Claim implements [outbox.Store].
func (s *timedStore) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	began := time.Now()
	claim, err := s.Store.Claim(ctx, req)
	s.lock.Lock()
	defer s.lock.Unlock()
	s.times = append(s.times, time.Since(began))
	s.claimed += len(claim.Events)
	return claim, err
}

// wholePass measures the claims of one pass, which ends after the time for one. What it touches is per 100 events
// claimed and holds the acknowledgements too: PostgreSQL counts by table, not by statement.
func (b *bench) wholePass(ctx context.Context, p point) (claimCost, error) {
	before, err := b.touched(ctx, p.db)
	if err != nil {
		return claimCost{}, err
	}
	pool, err := b.connect(ctx, p.db.name, nil)
	if err != nil {
		return claimCost{}, err
	}
	store := &timedStore{Store: &postgres.Store{Pool: pool.Pool}}
	o := *b
	o.batch = claimSize
	_, err = o.pass(ctx, pool, drain{expected: p.size + p.healthy, limit: b.passTime, store: store})
	pool.Close()
	if err != nil {
		return claimCost{}, err
	}
	after, err := b.touched(ctx, p.db)
	if err != nil {
		return claimCost{}, err
	}
	slices.Sort(store.times)
	return claimCost{
		times: store.times, claimed: store.claimed,
		buffers:  (after.buffers - before.buffers) * claimSize / int64(store.claimed),
		rowsRead: (after.rowsRead - before.rowsRead) * claimSize / int64(store.claimed),
	}, nil
}

// tableTouched is what PostgreSQL counted for the table so far.
type tableTouched struct {
	buffers, rowsRead   int64
	updates, hotUpdates int64
}

const touchedSQL = `
select coalesce(io.heap_blks_hit + io.heap_blks_read + io.idx_blks_hit + io.idx_blks_read, 0),
       coalesce(t.seq_tup_read, 0) + coalesce(t.idx_tup_fetch, 0), coalesce(t.n_tup_upd, 0), coalesce(t.n_tup_hot_upd, 0)
from pg_statio_user_tables io
join pg_stat_user_tables t using (relid)
where relid = 'outbox_events'::regclass`

const sessionsSQL = `select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`

// touched closes the idle sessions of a database, whose counts are complete only then, and reads them.
func (b *bench) touched(ctx context.Context, db *database) (tableTouched, error) {
	db.Reset()
	one, err := b.connect(ctx, db.name, nil)
	if err != nil {
		return tableTouched{}, err
	}
	defer one.Close()
	conn, err := one.Acquire(ctx)
	if err != nil {
		return tableTouched{}, fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		var sessions int
		if err := conn.QueryRow(ctx, sessionsSQL).Scan(&sessions); err != nil {
			return tableTouched{}, fmt.Errorf("count sessions: %w", err)
		}
		if sessions == 0 {
			var t tableTouched
			err := conn.QueryRow(ctx, touchedSQL).Scan(&t.buffers, &t.rowsRead, &t.updates, &t.hotUpdates)
			return t, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return tableTouched{}, context.Cause(ctx)
		}
	}
	return tableTouched{}, errors.New("sessions stay open: what was touched is not known")
}
