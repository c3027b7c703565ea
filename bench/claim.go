package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// claimSize is the number of events asked for.
const claimSize = 100

// flat is how much more a claim may cost at a later size than at the first.
const flat = 1.5

// claims measures what a claim costs in each shape of the table.
func (b *bench) claims(ctx context.Context) error {
	statements, err := b.claimStatements(ctx)
	if err != nil {
		return err
	}
	for _, s := range shapes() {
		if !slices.Contains(b.shapes, s.name) {
			continue
		}
		for _, statistics := range b.statistics {
			for _, size := range b.sizes {
				if err := b.shape(ctx, point{s, size, statistics}, statements); err != nil {
					return fmt.Errorf("shape %s of %s: %w", s.name, sizeName(size), err)
				}
			}
		}
	}
	return nil
}

// point is one state of the table.
type point struct {
	shape
	size       int
	statistics string
}

// figureName is claim_<shape>_<function>_<size>_<what>, with the state of the statistics behind the size unless it is
// fresh.
func (p point) figureName(function string, size int, what string) string {
	name := "claim_" + p.name + "_" + function + "_" + sizeName(size)
	if p.statistics != fresh {
		name += "_" + p.statistics
	}
	return name + "_" + what
}

func (b *bench) shape(ctx context.Context, p point, statements []statement) (err error) {
	db, err := b.outbox(ctx, p.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.drop(ctx, db)) }()
	if err := p.fill(ctx, db, p.size, p.statistics); err != nil {
		return err
	}
	b.settle(ctx)
	for _, s := range statements {
		cost, err := measureClaim(ctx, db, s, b.options)
		if err != nil {
			return fmt.Errorf("claim %s: %w", s.name, err)
		}
		b.addCost(p, s.name, cost)
	}
	if !p.whole {
		return nil
	}
	cost, err := b.wholePass(ctx, db, p)
	if err != nil {
		return fmt.Errorf("pass: %w", err)
	}
	b.addCost(p, "pass", cost)
	return nil
}

// claimCost is what a claim costs in one state of the table.
type claimCost struct {
	times    []time.Duration // ascending; the claim's round trip with its rows
	buffers  int64           // pages of PostgreSQL's cache touched, over everything that the function ran
	rowsRead int64           // rows of the table fetched, by index or by scan
	claimed  int             // events returned
}

// addCost reports a cost, each figure beside the one of the smallest size. The worker's claim is what has a target;
// where a whole pass is judged, that.
func (b *bench) addCost(p point, function string, cost claimCost) {
	var goal target
	if function == "pass" || !p.whole {
		goal = atMost(flat)
	}
	first := b.sizes[0]
	add := func(what, unit string, value float64, t target) figure {
		found := figure{Name: p.figureName(function, p.size, what), Value: value, Unit: unit, inRow: true}
		if p.size == first {
			b.add(found)
			return found
		}
		return b.compare(found, p.figureName(function, first, what), t)
	}
	p50 := add("p50", "ms", milliseconds(percentile(cost.times, 50)), goal)
	p99 := add("p99", "ms", milliseconds(percentile(cost.times, 99)), target{})
	pages := add("buffers", "pages", float64(cost.buffers), goal)
	add("rows_read", "rows", float64(cost.rowsRead), target{})
	add("claimed", "events", float64(cost.claimed), target{})
	row := []string{
		p.name, function, sizeName(p.size), p.statistics, number(p50.Value), number(p99.Value), "", "",
		fmt.Sprint(cost.buffers), "", "", fmt.Sprint(cost.rowsRead), fmt.Sprint(cost.claimed),
	}
	if p.size != first {
		row[6], row[7] = number(p50.ratio()), p50.verdict()
		row[9], row[10] = number(pages.ratio()), pages.verdict()
	}
	b.claimRows = append(b.claimRows, row)
}

// measureClaim claims again and again on one connection and rolls each claim back, so that the table stays as it is.
func measureClaim(ctx context.Context, db *database, s statement, o options) (claimCost, error) {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return claimCost{}, fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	var cost claimCost
	if cost.buffers, cost.rowsRead, err = explainClaim(ctx, conn.Conn(), s); err != nil {
		return claimCost{}, err
	}
	start := time.Now()
	for len(cost.times) < minSamples || (len(cost.times) < o.samples && time.Since(start) < o.claimTime) {
		var took time.Duration
		err := rolledBack(ctx, conn.Conn(), func(tx pgx.Tx) error {
			began := time.Now()
			rows, err := tx.Query(ctx, s.sql, s.args...)
			if err != nil {
				return err
			}
			cost.claimed = 0
			for rows.Next() {
				if rows.RawValues()[0] != nil { // the row that tells where a claim came to has no id
					cost.claimed++
				}
			}
			took = time.Since(began)
			return rows.Err()
		})
		if err != nil {
			return claimCost{}, fmt.Errorf("claim: %w", err)
		}
		cost.times = append(cost.times, took)
	}
	slices.Sort(cost.times)
	return cost, nil
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
