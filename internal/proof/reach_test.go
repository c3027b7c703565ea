package proof_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// crowd is many parties at work on one database: producers, workers, and an operator.
type crowd struct {
	pool     *pgxpool.Pool
	store    *postgres.Store
	operator sync.Mutex // there is one: two would wait for each other's rows
}

// work is one thing that some party does.
func (c *crowd) work(ctx context.Context, d dice) error {
	switch at := d.IntN(10); {
	case at < 3:
		return c.produce(ctx, d)
	case at < 7:
		return c.consume(ctx, d)
	default:
		return c.operate(ctx, d)
	}
}

const produceSQL = `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, attempts, created_at, available_at)
select 'order', md5((h % $1::int)::text)::uuid, (array['a', 'a', 'b', 'c', 'd'])[1 + h / 7 % 5], gen_random_uuid()::text, '{}',
  (array['pending', 'pending', 'pending', 'pending', 'pending', 'failed', 'processing', 'processed', 'discarded'])[1 + h / 11 % 9],
  (array[0, 0, 0, 0, 0, 1, 3, 8, 20])[1 + h / 13 % 9],
  now() - (array[0, 0, 0, 60, -3600])[1 + h / 17 % 5] * interval '1 second',
  now() + (array[0, 0, 0, 0, -1, -60, 3600])[1 + h / 19 % 7] * interval '1 second'
from (select abs(hashint8extended(i, $2::bigint) % 1000000007) as h from generate_series(1, $3::int) i) numbers`

// produce inserts in two statements of one transaction, among which others commit.
func (c *crowd) produce(ctx context.Context, d dice) error {
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		for range 2 {
			if _, err := tx.Exec(ctx, produceSQL, pick(d, 5, 200, 2000), d.Int64N(1<<40), 1+d.IntN(60)); err != nil {
				return fmt.Errorf("produce: %w", err)
			}
		}
		return nil
	})
}

// consume reads on for a few claims, and settles a part of what it gets: the rest is a crash's.
func (c *crowd) consume(ctx context.Context, d dice) error {
	req := d.caller(shape{types: 4})
	for range 1 + d.IntN(4) {
		d.sizes(&req)
		claim, err := c.store.Claim(ctx, req)
		if err != nil {
			return err
		}
		req.Cursor = claim.Cursor
		var batch []outbox.Settlement
		for _, e := range claim.Events {
			s := outbox.Settlement{EventID: e.ID, ClaimToken: e.ClaimToken()}
			if d.outcome(&s); d.chance(80) {
				batch = append(batch, s)
			}
		}
		if _, err := c.store.Settle(ctx, batch, outbox.Backoff{}); err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) operate(ctx context.Context, d dice) error {
	c.operator.Lock()
	defer c.operator.Unlock()
	_, err := c.pool.Exec(ctx, pick(d,
		`update outbox_events set available_at = now() - interval '1 second' where status = 'processing' and random() < 0.3`,
		`update outbox_events set available_at = now() where status in ('failed', 'pending') and available_at > now() and random() < 0.2`,
		`update outbox_events set available_at = now() + interval '1 hour' where status in ('failed', 'pending') and random() < 0.02`,
		`update outbox_events set status = 'pending', attempts = 0, available_at = now() where status in ('discarded', 'failed') and random() < 0.3`,
		`update outbox_events set status = (array['pending', 'failed', 'processing', 'processed', 'discarded'])[1 + floor(random() * 5)] where random() < 0.02`,
		`update outbox_events set attempts = floor(random() * 22) where random() < 0.02`,
		`delete from outbox_events where status in ('processed', 'discarded') and random() < 0.5`))
	if err != nil {
		return fmt.Errorf("operate: %w", err)
	}
	return nil
}

// unreadableSQL counts rows that no claim would look at when it must: columns that a claim reads by contradict those that say
// what is due.
const unreadableSQL = `
select count(*) from outbox_events
where unfinished <> (status in ('pending', 'failed', 'processing'))
   or unfinished and wake_at is not null and wake_at <> available_at
   or unfinished and wake_at > now() and available_at <= now()
   or status = 'failed' and wake_at is null
   or unfinished and attempts >= 2 and coalesce(spent, 0) < least(attempts, 20)`

// freeSQL says of every unfinished row what keeps it from the caller: $1 its types, $2 the types that pass, $3 its ceiling.
const freeSQL = `
select e.id::text,
  case when e.event_type <> all ($1::text[]) then 'foreign'
       when e.available_at > now() + interval '2 minutes' and e.status = 'processing' then 'leased'
       when e.available_at > now() + interval '20 minutes' then 'not due'
       when e.available_at > now() then 'due soon'
       when e.attempts >= $3 then 'spent'
       when exists (select from outbox_events o
                    where o.aggregate_type = e.aggregate_type and o.aggregate_id = e.aggregate_id and o.position < e.position
                      and o.status in ('pending', 'failed', 'processing') and o.event_type <> all ($2::text[])) then 'blocked'
       else 'free' end
from outbox_events e where e.status in ('pending', 'failed', 'processing')`

// reachable reads the queue from its start to its end, recovers what was lost, and fails when a row is left out that nothing
// kept from the caller.
func (c *crowd) reachable(ctx context.Context, d dice) error {
	req := d.caller(shape{types: 4})
	d.sizes(&req)
	req.BatchSize, req.MaxAttempts = pick(d, 7, 25, 100, 1000), 8
	// More than a hundred spent rows take more than one claim to go.
	for range 30 {
		if _, err := c.store.Claim(ctx, outbox.ClaimRequest{
			EventTypes: req.EventTypes, KnownTypes: req.KnownTypes, HeldTypes: req.HeldTypes, MaxAttempts: req.MaxAttempts, Recover: true,
		}); err != nil {
			return err
		}
	}
	who, passing := callerOf(req), []string{}
	for _, name := range eventTypes() {
		if (&model{}).passes(who, name) {
			passing = append(passing, name)
		}
	}
	own := slices.DeleteFunc(eventTypes(), func(name string) bool { return !who.takes(name) })
	rows, err := c.pool.Query(ctx, freeSQL, own, passing, who.ceiling)
	if err != nil {
		return err
	}
	kept := map[string]string{}
	var id, by string
	if _, err := pgx.ForEachRow(rows, []any{&id, &by}, func() error { kept[id] = by; return nil }); err != nil {
		return err
	}
	claimed, err := c.readAll(ctx, req)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(kept)) {
		if kept[id] == "free" && !claimed[id] {
			return fmt.Errorf("row %s is free and was not claimed by %+v; %d rows were", id, req, len(claimed))
		}
		if claimed[id] && !slices.Contains([]string{"free", "blocked", "due soon"}, kept[id]) {
			return fmt.Errorf("row %s was claimed by %+v, though it is %s", id, req, kept[id])
		}
	}
	return nil
}

func (c *crowd) readAll(ctx context.Context, req outbox.ClaimRequest) (map[string]bool, error) {
	claimed := map[string]bool{}
	var lost []outbox.Aggregate
	for {
		claim, err := c.store.Claim(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, e := range claim.Events {
			claimed[e.ID] = true
		}
		lost, req.Cursor = append(lost, claim.Lost...), claim.Cursor
		if claim.End {
			break
		}
	}
	for len(lost) > 0 {
		req.Recover, req.Lanes, req.Cursor = true, lost, ""
		claim, err := c.store.Claim(ctx, req)
		if err != nil {
			return nil, err
		}
		if len(claim.Events) == 0 {
			break
		}
		e := claim.Events[0]
		claimed[e.ID] = true
		lost = slices.DeleteFunc(lost, func(of outbox.Aggregate) bool { return of == e.Aggregate() })
	}
	return claimed, nil
}

const parties = 6

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	config, err := pgxpool.ParseConfig(postgrestest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = parties
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &crowd{pool: pool, store: &postgres.Store{Pool: pool}}
}

// play lets all parties work at once, and looks at every row then; several times over, on the rows that the last round left.
func (c *crowd) play(ctx context.Context, seed uint64, rounds int) error {
	for round := range rounds {
		faults := make([]error, parties)
		var group sync.WaitGroup
		for party := range parties {
			d := dice{rand.New(rand.NewPCG(seed, uint64(round*parties+party)))}
			group.Go(func() {
				for range 25 {
					faults[party] = cmp.Or(faults[party], c.work(ctx, d))
				}
			})
		}
		group.Wait()
		if err := errors.Join(faults...); err != nil {
			return err
		}
		var unreadable int
		if err := c.pool.QueryRow(ctx, unreadableSQL).Scan(&unreadable); err != nil || unreadable > 0 {
			return fmt.Errorf("round %d: %d rows are where no claim reads them, %w", round, unreadable, err)
		}
		if err := c.reachable(ctx, dice{rand.New(rand.NewPCG(seed, uint64(round)<<32))}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// TestNoRowBecomesUnreachable lets a crowd work, and then looks at every row: what nothing keeps from a caller, a read from
// the start of the queue to its end must claim.
func TestNoRowBecomesUnreachable(t *testing.T) {
	t.Parallel()
	if err := newCrowd(t).play(t.Context(), firstSeed(t), 6**timesFlag); err != nil {
		t.Error(err)
	}
}

// TestUnreachableRowsAreFound proves that the look at every row sees what it is to see.
func TestUnreachableRowsAreFound(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"the end comes early", "rows left for want of room are passed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t)
			apply(t, c.pool, brokenSQL()[name])
			err := c.play(t.Context(), firstSeed(t), 40)
			if err == nil || !strings.Contains(err.Error(), "is free and was not claimed") {
				t.Errorf("40 rounds with broken SQL: %v, want a row that was left out", err)
			}
		})
	}
}
