package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// drainMixed drains healthy events behind rows that wait for the unfinished head of their aggregate. The heads failed
// and are due tomorrow; they come on top of the rows.
func (b *bench) drainMixed(ctx context.Context) error {
	n := max(b.events/2, 1)
	healthy := fill(n, "-1 - g % greatest(n / 2, 1), 'order.placed', 'pending', '0 s', 0")
	variants := []struct {
		name       string
		aggregates int
		goal       target
	}{
		{name: "drain_mixed_without"},
		{"drain_mixed_1k_aggregates", max(b.events/100, 1), atLeast(0.9)},
		{"drain_mixed_100k_aggregates", b.events, atLeast(0.75)},
	}
	var contenders []contender
	for _, v := range variants {
		rows := healthy
		if v.aggregates > 0 {
			rows = fill(v.aggregates, "g % n, 'order.placed', 'failed', '1 day', 3") +
				fill(b.events, "g % "+strconv.Itoa(v.aggregates)+", 'order.placed', 'pending', '0 s', 0") + healthy
		}
		original, err := b.rows(ctx, rows)
		if err != nil {
			return err
		}
		contenders = append(contenders, b.drainer(v.name, original, drain{expected: n, limit: 2 * b.passTime}))
	}
	found, err := medians(ctx, b.rounds, contenders)
	if err != nil {
		return err
	}
	for _, v := range variants {
		f := figure{Name: v.name, Value: found[v.name], Unit: perSecond}
		if v.aggregates == 0 {
			b.add(f)
		} else {
			b.compare(f, "drain_mixed_without", v.goal)
		}
	}
	return nil
}

// heldXmin drains while another session holds a snapshot, so that nothing dead can be removed.
func (b *bench) heldXmin(ctx context.Context) error {
	original, err := b.backlog(ctx, b.events)
	if err != nil {
		return err
	}
	free := b.drainer("held_xmin_without", original, drain{expected: b.events})
	held := contender{"held_xmin", func(ctx context.Context) (speed float64, err error) {
		err = b.use(ctx, original, func(db *database) error {
			return holding(ctx, db, func() error {
				done, err := b.pass(ctx, db, drain{expected: b.events})
				speed = done.perSecond()
				return err
			})
		})
		return speed, err
	}}
	found, err := medians(ctx, b.rounds, []contender{free, held})
	if err != nil {
		return err
	}
	b.add(figure{Name: "held_xmin_without", Value: found["held_xmin_without"], Unit: perSecond})
	b.compare(figure{Name: "held_xmin", Value: found["held_xmin"], Unit: perSecond}, "held_xmin_without", atLeast(0.8))
	return nil
}

// holding calls f while a transaction of this database, which has a snapshot and an id, stays open.
func holding(ctx context.Context, db *database, f func() error) (err error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
	var id int64
	if err := tx.QueryRow(ctx, "select pg_current_xact_id()::text::bigint").Scan(&id); err != nil {
		return err
	}
	return f()
}
