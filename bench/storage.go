package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// storage measures what the table's settings are chosen by: docs/adr/0005-storage.md. It has no targets.
func (b *bench) storage(ctx context.Context) error {
	for _, part := range []func(context.Context) (table, error){b.fillFactors, b.steadyState, b.writeAmplification} {
		found, err := part(ctx)
		if err != nil {
			return err
		}
		b.tables = append(b.tables, found)
	}
	return nil
}

// footprint is how much room the outbox takes, and how far the server's log has come.
type footprint struct{ heap, indexes, wal, deadRows int64 }

const footprintSQL = `
select pg_table_size('outbox_events'), pg_indexes_size('outbox_events'), pg_current_wal_insert_lsn() - '0/0',
       (select n_dead_tup from pg_stat_user_tables where relid = 'outbox_events'::regclass)`

func (db *database) footprint(ctx context.Context) (footprint, error) {
	var f footprint
	err := db.QueryRow(ctx, footprintSQL).Scan(&f.heap, &f.indexes, &f.wal, &f.deadRows)
	if err != nil {
		return footprint{}, fmt.Errorf("read sizes: %w", err)
	}
	return f, nil
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/1e6) }

// fillFactors drains the same backlog from tables that leave different room for new versions of a row.
func (b *bench) fillFactors(ctx context.Context) (table, error) {
	t := table{columns: []string{
		"fillfactor", "drain events/s", "heap-only updates", "WAL bytes/event", "table MB before", "after", "indexes MB before", "after",
	}}
	for _, factor := range []int{100, 90, 70, 50} {
		original, err := b.original(ctx, func(db *database) error {
			set := fmt.Sprintf("alter table outbox_events set (fillfactor = %d)", factor)
			return db.exec(ctx, set, fill(b.events, spread), "vacuum (analyze) outbox_events")
		})
		if err != nil {
			return table{}, err
		}
		var speeds []float64
		var row []string
		for range b.rounds {
			err := b.use(ctx, original, func(db *database) error {
				speed, cells, err := b.drainMeasured(ctx, db)
				speeds, row = append(speeds, speed), cells
				return err
			})
			if err != nil {
				return table{}, err
			}
		}
		t.rows = append(t.rows, append([]string{strconv.Itoa(factor), number(median(speeds))}, row...))
	}
	return t, nil
}

// drainMeasured drains, and returns what that did to the table.
func (b *bench) drainMeasured(ctx context.Context, db *database) (float64, []string, error) {
	before, err := db.footprint(ctx)
	if err != nil {
		return 0, nil, err
	}
	done, err := b.pass(ctx, db, drain{expected: b.events})
	if err != nil {
		return 0, nil, err
	}
	after, err := db.footprint(ctx)
	if err != nil {
		return 0, nil, err
	}
	touched, err := b.touched(ctx, db)
	if err != nil {
		return 0, nil, err
	}
	return done.perSecond(), []string{
		fmt.Sprintf("%.0f %%", 100*float64(touched.hotUpdates)/float64(touched.updates)),
		strconv.FormatInt((after.wal-before.wal)/int64(b.events), 10),
		megabytes(before.heap), megabytes(after.heap), megabytes(before.indexes), megabytes(after.indexes),
	}, nil
}

// steadyState lets producers and passes work at the same time, with and without something that vacuums. The server's
// own autovacuum looks at a table once a minute at most, so that a short run vacuums by itself.
func (b *bench) steadyState(ctx context.Context) (table, error) {
	t := table{columns: []string{
		"vacuum", "delivered events/s", "last quarter events/s", "table bytes/event", "index bytes/event", "dead rows left",
	}}
	for _, every := range []time.Duration{0, b.passTime / 3, b.passTime / 30} {
		db, err := b.outbox(ctx, "steady")
		if err != nil {
			return table{}, err
		}
		row, err := b.steady(ctx, db, every)
		if err := errors.Join(err, b.drop(ctx, db)); err != nil {
			return table{}, err
		}
		name := "never"
		if every > 0 {
			name = "every " + every.String()
		}
		t.rows = append(t.rows, append([]string{name}, row...))
	}
	return t, nil
}

func (b *bench) steady(ctx context.Context, db *database, vacuumEvery time.Duration) ([]string, error) {
	var lock sync.Mutex
	var deliveries []time.Duration
	start := time.Now()
	handler := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
		lock.Lock()
		defer lock.Unlock()
		deliveries = append(deliveries, time.Since(start))
		return nil, nil //nolint:nilnil // no receipt, no error: delivered
	})
	worker, err := outbox.NewWorker(b.lingering(&postgres.Store{Pool: db.Pool}, handler))
	if err != nil {
		return nil, err
	}
	const jobs = 2
	ended := make([]error, jobs)
	limited, stop := context.WithCancel(ctx) // a deadline would be a budget, whose last seconds start nothing
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { ended[0] = runUntil(limited, worker) })
	all.Go(func() { ended[1] = vacuums(limited, db, vacuumEvery) })
	producer := *b
	producer.peerTime = 2 * b.passTime
	_, err = producer.produce(ctx, db, "on")
	stop()
	all.Wait()
	if err := errors.Join(append(ended, err)...); err != nil {
		return nil, err
	}
	after, err := db.footprint(ctx)
	if err != nil {
		return nil, err
	}
	length, n, late := (2 * b.passTime).Seconds(), int64(len(deliveries)), 0
	for _, at := range deliveries {
		if at.Seconds() > length*3/4 {
			late++
		}
	}
	return []string{
		number(float64(n) / length), number(float64(late) / (length / 4)), strconv.FormatInt(after.heap/max(n, 1), 10),
		strconv.FormatInt(after.indexes/max(n, 1), 10), strconv.FormatInt(after.deadRows, 10),
	}, nil
}

// vacuums vacuums the outbox again and again until ctx ends; never when every is 0.
func vacuums(ctx context.Context, db *database, every time.Duration) error {
	if every == 0 {
		return nil
	}
	for wait(ctx, every) == nil {
		if err := db.exec(ctx, "vacuum outbox_events"); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

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
