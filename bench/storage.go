package main

import (
	"context"
	"fmt"
	"strconv"
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
	factors := []string{"100", "90", "70", "50"}
	rows := map[string][]string{}
	var contenders []contender
	for _, factor := range factors {
		original, err := b.original(ctx, func(db *database) error {
			set := "alter table outbox_events set (fillfactor = " + factor + ")"
			return db.exec(ctx, set, fill(b.events, spread), "vacuum (analyze) outbox_events") // indexes grow with the rows here
		})
		if err != nil {
			return table{}, err
		}
		contenders = append(contenders, contender{factor, func(ctx context.Context) (speed float64, err error) {
			err = b.use(ctx, original, func(db *database) (err error) {
				speed, rows[factor], err = b.drainMeasured(ctx, db)
				return err
			})
			return speed, err
		}})
	}
	found, err := medians(ctx, b.rounds, contenders)
	for _, factor := range factors {
		t.rows = append(t.rows, append([]string{factor, number(found[factor])}, rows[factor]...))
	}
	return t, err
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
