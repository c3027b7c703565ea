package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// bench is one run: where it measures, what was asked for, and what was found so far.
type bench struct {
	*workspace
	options
	*report
}

// benchmark measures the figures of one name in the list of targets.
type benchmark struct {
	name    string
	measure func(*bench, context.Context) error
	special bool // measured only when named
}

// benchmarks are in the order in which they run: the quick ones first, so that a mistake shows early.
func benchmarks() []benchmark {
	return []benchmark{
		{name: "bundle", measure: (*bench).bundle},
		{name: "cold_start", measure: (*bench).coldStart},
		{name: "enqueue", measure: (*bench).enqueue},
		{name: "latency_idle", measure: (*bench).latencyIdle},
		{name: "drain_noop", measure: (*bench).drainNoop},
		{name: "drain_20ms", measure: (*bench).drain20ms},
		{name: "drain_hot", measure: (*bench).drainHot},
		{name: "drain_mixed", measure: (*bench).drainMixed},
		{name: "held_xmin", measure: (*bench).heldXmin},
		{name: "memory", measure: (*bench).memory},
		{name: "month", measure: (*bench).month},
		{name: "cost", measure: (*bench).cost},
		{name: "claim", measure: (*bench).claims},
		{name: "storage", measure: (*bench).storage, special: true},
		{name: "autovacuum", measure: (*bench).autovacuums, special: true},
	}
}

func names(special bool) []string {
	var all []string
	for _, b := range benchmarks() {
		if b.special == special {
			all = append(all, b.name)
		}
	}
	return all
}

// ordinaryNames are the benchmarks of a plain run, specialNames those that have to be asked for.
func ordinaryNames() []string { return names(false) }
func specialNames() []string  { return names(true) }

// run measures everything that the arguments ask for. Figures found before an error are printed all the same.
func run(ctx context.Context, databaseURL string, args []string, stdout io.Writer) (err error) {
	o, err := parseOptions(args, os.Stderr)
	if err != nil {
		return err
	}
	if databaseURL == "" {
		return errors.New("OUTBOX_TEST_DATABASE_URL is not set: run `make bench`, which sets it, " +
			"or name a PostgreSQL server on which databases may be created")
	}
	ws, err := openWorkspace(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.close(ctx)) }()

	b := &bench{workspace: ws, options: o, report: &report{machine: describeMachine(ctx, ws)}}
	defer func() { err = errors.Join(err, b.write(stdout, o)) }()
	for _, one := range benchmarks() {
		if !slices.Contains(o.only, one.name) {
			continue
		}
		began := time.Now()
		if err := errors.Join(one.measure(b, ctx), ws.tidy(ctx)); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s measured in %.0f s\n", one.name, time.Since(began).Seconds())
	}
	return nil
}
