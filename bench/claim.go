package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
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
			if err := b.shape(ctx, s, statistics, statements); err != nil {
				return fmt.Errorf("shape %s: %w", s.name, err)
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
	db         *database
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

// shape measures a shape at all its sizes, which stand side by side and take turns.
func (b *bench) shape(ctx context.Context, s shape, statistics string, statements []statement) (err error) {
	var points []point
	defer func() {
		for _, p := range points {
			err = errors.Join(err, b.drop(ctx, p.db))
		}
	}()
	for _, size := range b.sizes {
		db, err := b.outbox(ctx, s.name)
		if err != nil {
			return err
		}
		points = append(points, point{s, size, statistics, db})
		if err := s.fill(ctx, db, size, statistics); err != nil {
			return err
		}
	}
	b.settle(ctx)
	for _, statement := range statements {
		costs, err := b.measureClaims(ctx, points, statement)
		if err != nil {
			return fmt.Errorf("claim %s: %w", statement.name, err)
		}
		for i, p := range points {
			b.addCost(p, statement.name, costs[i])
		}
	}
	if !s.whole {
		return nil
	}
	for _, p := range points {
		cost, err := b.wholePass(ctx, p)
		if err != nil {
			return fmt.Errorf("pass over %s: %w", sizeName(p.size), err)
		}
		b.addCost(p, "pass", cost)
	}
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
