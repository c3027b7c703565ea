package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

const producers = 4

// bareSQL takes from the table what the rail added for speed: its indexes beside the primary and the unique key. The
// columns, generated ones included, and the checks stay.
const bareSQL = `
do $$
declare name text;
begin
  for name in
    select i.indexrelid::regclass from pg_index i
    where i.indrelid = 'outbox_events'::regclass and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
  loop
    execute 'drop index ' || name;
  end loop;
end
$$`

// plainSQL takes the generated columns too, so that the columns are those of the contract.
const plainSQL = `
do $$
declare name text;
begin
  for name in
    select quote_ident(attname) from pg_attribute
    where attrelid = 'outbox_events'::regclass and attgenerated <> '' and not attisdropped
  loop
    execute 'alter table outbox_events drop column ' || name || ' cascade';
  end loop;
end
$$`

// enqueue inserts one event per transaction from several producers, into the outbox and into the same table without
// the rail's indexes. When commits wait for the disk that may be most of the time, so it is done without waiting too.
func (b *bench) enqueue(ctx context.Context) error {
	tables := []struct {
		name    string
		changes []string
	}{
		{"enqueue", nil},
		{"peer_bare_table", []string{bareSQL}},
		{"peer_contract_columns", []string{bareSQL, plainSQL}},
	}
	modes := []struct{ suffix, commit string }{{"", "on"}, {"_commit_not_waited_for", "off"}}
	var contenders []contender
	for _, t := range tables {
		original, err := b.original(ctx, func(db *database) error { return db.exec(ctx, t.changes...) })
		if err != nil {
			return err
		}
		for _, m := range modes {
			contenders = append(contenders, contender{t.name + m.suffix, func(ctx context.Context) (speed float64, err error) {
				err = b.use(ctx, original, func(db *database) error {
					speed, err = b.produce(ctx, db, m.commit)
					return err
				})
				return speed, err
			}})
		}
	}
	found, err := medians(ctx, b.rounds, contenders)
	if err != nil {
		return err
	}
	for _, m := range modes {
		for _, t := range tables[1:] {
			b.add(figure{Name: t.name + m.suffix, Value: found[t.name+m.suffix], Unit: perSecond})
		}
		name := "enqueue" + m.suffix
		speed := found[name]
		b.compare(figure{Name: name, Value: speed, Unit: perSecond}, "peer_bare_table"+m.suffix, atLeast(0.7))
		b.compare(figure{Name: "enqueue_to_contract_columns" + m.suffix, Value: speed, Unit: perSecond},
			"peer_contract_columns"+m.suffix, target{})
	}
	return nil
}

// produce lets the producers insert until the time for a peer is over, and returns their speed.
func (b *bench) produce(ctx context.Context, db *database, commit string) (float64, error) {
	pool, err := b.connect(ctx, db.name, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["synchronous_commit"] = commit
	})
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	var made atomic.Int64
	faults := make([]error, producers)
	var all sync.WaitGroup
	start := time.Now()
	for i := range producers {
		all.Go(func() {
			for time.Since(start) < b.peerTime && faults[i] == nil {
				n := made.Add(1)
				faults[i] = pool.produce(ctx, newEvent(int(n)))
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	for _, fault := range faults {
		if fault != nil {
			return 0, fault
		}
	}
	return float64(made.Load()) / took.Seconds(), nil
}

// produce enqueues one event in a transaction of its own.
func (db *database) produce(ctx context.Context, event postgres.NewEvent) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := postgres.Enqueue(ctx, tx, event)
		return err
	})
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return nil
}

// newEvent is the n-th event of a producer, each aggregate's second one 1,000 later.
func newEvent(n int) postgres.NewEvent {
	return postgres.NewEvent{
		AggregateType: "order", AggregateID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n/2000*1000+n%1000),
		Type: eventType, IdempotencyKey: fmt.Sprintf("event-%d", n),
		Payload: json.RawMessage(`{"text": "` + strings.Repeat("x", payloadText) + `"}`),
	}
}
