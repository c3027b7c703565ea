package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// writeAmplification measures the log that each step of an event's life writes. No checkpoint comes between, so that
// no page is logged as a whole.
func (b *bench) writeAmplification(ctx context.Context) (table, error) {
	n := max(b.events/10, 1)
	t := table{columns: []string{"step", "WAL bytes/event", "full pages"}}
	step := func(name string, db *database, f func() error) error {
		before, beforePages, err := db.wal(ctx)
		if err != nil {
			return err
		}
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		after, afterPages, err := db.wal(ctx)
		t.rows = append(t.rows, []string{name, strconv.FormatInt((after-before)/int64(n), 10), strconv.FormatInt(afterPages-beforePages, 10)})
		return err
	}
	enqueue := func(db *database) func() error {
		return func() error {
			for i := range n {
				if err := db.produce(ctx, newEvent(i)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, variant := range []struct {
		name    string
		changes []string
	}{{"enqueue, bare table", []string{bareSQL}}, {"enqueue", nil}} {
		original, err := b.original(ctx, func(db *database) error { return db.exec(ctx, variant.changes...) })
		if err != nil {
			return table{}, err
		}
		err = b.use(ctx, original, func(db *database) error {
			if err := step(variant.name, db, enqueue(db)); err != nil || variant.changes != nil {
				return err
			}
			var claimed []outbox.Event
			store := &postgres.Store{Pool: db.Pool}
			if err := step("claim", db, func() (err error) { claimed, err = claimAll(ctx, store); return err }); err != nil {
				return err
			}
			return step("settle as processed", db, func() error { return settleAll(ctx, store, claimed) })
		})
		if err != nil {
			return table{}, err
		}
	}
	return t, nil
}

func (db *database) wal(ctx context.Context) (position, fullPages int64, err error) {
	err = db.QueryRow(ctx, "select pg_current_wal_insert_lsn() - '0/0', (select wal_fpi from pg_stat_wal)").Scan(&position, &fullPages)
	if err != nil {
		return 0, 0, fmt.Errorf("read the log's position: %w", err)
	}
	return position, fullPages, nil
}

func claimAll(ctx context.Context, store *postgres.Store) ([]outbox.Event, error) {
	var all []outbox.Event
	for {
		claim, err := store.Claim(ctx, outbox.ClaimRequest{EventTypes: []string{eventType}, BatchSize: claimSize})
		if err != nil || len(claim.Events) == 0 {
			return all, err
		}
		all = append(all, claim.Events...)
	}
}

func settleAll(ctx context.Context, store *postgres.Store, events []outbox.Event) error {
	for len(events) > 0 {
		part := events[:min(claimSize, len(events))]
		events = events[len(part):]
		batch := make([]outbox.Settlement, len(part))
		for i, e := range part {
			batch[i] = outbox.Settlement{EventID: e.ID, ClaimToken: e.ClaimToken(), Outcome: outbox.Processed}
		}
		if _, err := store.Settle(ctx, batch, outbox.Backoff{}); err != nil {
			return err
		}
	}
	return nil
}
