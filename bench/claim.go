package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// claimSize is the number of events asked for.
const claimSize = 100

// claimFunctions are the claims to measure, by the part of the figure's name they fill.
func claimFunctions() []struct{ name, call string } {
	return []struct{ name, call string }{
		{"batch", "outbox_claim_batch($1::text[], $2::text[], 100)"},
		{"events", "outbox_claim_events($1::text[], $2::text[], '{}', 100)"},
		// Every second claim of a pass looks for rows whose process died first.
		{"recovered", "outbox_claim_events($1::text[], $2::text[], '{}', 100, p_prefer_recovered => true)"},
	}
}

func measureClaims(ctx context.Context, ws *workspace, o options, r *report) error {
	for _, s := range shapes() {
		if !slices.Contains(o.shapes, s.name) {
			continue
		}
		for _, statistics := range o.statistics {
			for _, size := range o.sizes {
				if err := measureShape(ctx, ws, point{s, size, statistics, o}, r); err != nil {
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
	options    options
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

func measureShape(ctx context.Context, ws *workspace, p point, r *report) error {
	db, err := ws.outbox(ctx, p.name+"_"+sizeName(p.size)+"_"+p.statistics)
	if err != nil {
		return err
	}
	if err := p.fill(ctx, db, p.size, p.statistics); err != nil {
		return err
	}
	ws.settle(ctx)
	for _, f := range claimFunctions() {
		cost, err := measureClaim(ctx, db, f.call, p.options)
		if err != nil {
			return fmt.Errorf("claim %s: %w", f.name, err)
		}
		p.add(r, f.name, cost)
	}
	return ws.drop(ctx, db)
}

// add reports a cost, each figure beside the one of the smallest size.
func (p point) add(r *report, function string, cost claimCost) {
	var limit target
	if p.flat {
		limit = target{limit: 1.5, atMost: true}
	}
	add := func(what, unit string, value float64, t target) figure {
		found := figure{Name: p.figureName(function, p.size, what), Value: value, Unit: unit, inRow: true}
		return r.compare(found, p.figureName(function, p.options.sizes[0], what), t)
	}
	p50 := add("p50", "ms", milliseconds(percentile(cost.times, 50)), limit)
	p99 := add("p99", "ms", milliseconds(percentile(cost.times, 99)), target{})
	add("buffers", "pages", float64(cost.buffers), target{})
	add("rows_read", "rows", float64(cost.rowsRead), target{})
	add("claimed", "events", float64(cost.claimed), target{})
	row := []string{p.name, function, sizeName(p.size), p.statistics, number(p50.Value), number(p99.Value), "", "", "", "", ""}
	if p.size != p.options.sizes[0] {
		row[6], row[10] = fmt.Sprintf("%.2f", p50.Ratio), p50.verdict()
	}
	row[7], row[8], row[9] = fmt.Sprint(cost.buffers), fmt.Sprint(cost.rowsRead), fmt.Sprint(cost.claimed)
	r.claims = append(r.claims, row)
}

// claimCost is what a claim costs in one state of the table.
type claimCost struct {
	times    []time.Duration // ascending; the claim's round trip with its rows
	buffers  int64           // pages of PostgreSQL's cache touched, over everything that the function ran
	rowsRead int64           // rows of the table fetched, by index or by scan
	claimed  int             // events returned
}

// measureClaim claims again and again on one connection and rolls each claim back, so that the table stays as it is.
func measureClaim(ctx context.Context, db *database, call string, o options) (claimCost, error) {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return claimCost{}, fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	var cost claimCost
	if cost.buffers, cost.rowsRead, err = explainClaim(ctx, conn.Conn(), call); err != nil {
		return claimCost{}, err
	}
	start := time.Now()
	for len(cost.times) < minSamples || (len(cost.times) < o.samples && time.Since(start) < o.claimTime) {
		var took time.Duration
		err := rolledBack(ctx, conn.Conn(), func(tx pgx.Tx) error {
			began := time.Now()
			rows, err := tx.Query(ctx, "select * from "+call, []string{eventType}, knownTypes())
			if err != nil {
				return err
			}
			cost.claimed = 0
			for rows.Next() {
				cost.claimed++
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
