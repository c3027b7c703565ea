package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// options says what to measure. Its zero value is of no use; parseOptions fills it.
type options struct {
	only        []string      // names of benchmarks
	root        string        // of the repository
	sizes       []int         // rows of a shape, ascending; the first is what the others are compared with
	shapes      []string      // names of shapes
	statistics  []string      // states of the planner's statistics
	samples     int           // claims per figure
	claimTime   time.Duration // ends a figure's samples early, but not before minSamples
	events      int           // of one drain; other backlogs are a fixed part or multiple of it
	rounds      int           // measurements of each contender, taken in turn; the median counts
	passTime    time.Duration // ends a pass of ours that would take too long
	peerTime    time.Duration // ends a slow peer, and a producer
	days        int           // of a month
	starts      int           // cold starts per function
	workers     []int         // River's worker counts; empty: no peers
	batch       int           // events per claim of a drain
	concurrency int           // handlers at once in a drain
	json        string        // file for the JSON lines; empty: standard output
	markdown    string        // file whose generated part the tables replace; empty: none
	profile     string        // file for a CPU profile of drain_noop; empty: none
}

// minSamples is how many claims a figure rests on at least.
const minSamples = 5

// quickly are the defaults that -quick changes.
func quickly() map[string]string {
	return map[string]string{
		"samples": "30", "events": "10k", "size": "1k,20k", "rounds": "1", "claim-time": "200ms", "pass-time": "4s",
		"peer-time": "1s", "starts": "3", "days": "16",
	}
}

// parseOptions reads the command line, and reports its faults together.
func parseOptions(args []string, output io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(output)
	quick := flags.Bool("quick", false, "everything at a smaller size: under three minutes")
	only := flags.String("only", strings.Join(ordinaryNames(), ","), "benchmarks; there is also "+strings.Join(specialNames(), ", "))
	sizes := flags.String("size", "1k,1M", "rows of each shape, ascending; k and M count as thousand and million")
	shapes := flags.String("shapes", strings.Join(shapeNames(), ","), "shapes to claim from; empty: none")
	statistics := flags.String("statistics", fresh, "states of the planner's statistics: fresh, stale, absent")
	events := flags.String("events", "100k", "events of drain_noop; the other backlogs scale with it")
	peers := flags.Bool("peers", true, "measure the peers of drain_noop and drain_20ms too")
	flags.StringVar(&o.root, "root", "..", "the repository")
	flags.IntVar(&o.samples, "samples", 100, "claims per figure")
	flags.DurationVar(&o.claimTime, "claim-time", 2*time.Second, "after this no more claims are made for a figure")
	flags.IntVar(&o.rounds, "rounds", 3, "measurements of each contender, in turn; the median counts")
	flags.DurationVar(&o.passTime, "pass-time", 10*time.Second, "ends a pass that a figure doesn't need to the end")
	flags.DurationVar(&o.peerTime, "peer-time", 2*time.Second, "ends a slow peer, and a producer")
	flags.IntVar(&o.days, "days", 30, "days of a month of steady load")
	flags.IntVar(&o.starts, "starts", 15, "cold starts of each function")
	flags.IntVar(&o.batch, "batch", 1000, "events per claim of a drain")
	flags.IntVar(&o.concurrency, "concurrency", 100, "handlers at once in a drain")
	flags.StringVar(&o.json, "json", "", "`file` for the JSON lines, instead of standard output")
	flags.StringVar(&o.markdown, "markdown", "", "`file` whose generated part is to hold the tables: ../docs/performance.md")
	flags.StringVar(&o.profile, "cpuprofile", "", "`file` for a CPU profile of drain_noop")
	if err := flags.Parse(args); err != nil {
		return options{}, fmt.Errorf("read flags: %w", err)
	}
	if *quick {
		if err := applyQuick(flags); err != nil {
			return options{}, err
		}
	}
	if *peers {
		o.workers = []int{100, 500, 1000}
	}
	var faults [6]error
	o.only, faults[0] = parseNames("only", *only, append(ordinaryNames(), specialNames()...))
	o.sizes, faults[1] = parseSizes(*sizes)
	o.shapes, faults[2] = parseNames("shapes", *shapes, shapeNames())
	o.statistics, faults[3] = parseNames("statistics", *statistics, []string{fresh, stale, absent})
	o.events, faults[4] = parseSize(*events)
	faults[5] = o.checkNumbers()
	return o, errors.Join(faults[:]...)
}

// applyQuick sets the flags that the command line did not.
func applyQuick(flags *flag.FlagSet) error {
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	for name, value := range quickly() {
		if set[name] {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("read flags: %w", err)
		}
	}
	return nil
}

func (o options) checkNumbers() error {
	var faults []error
	for _, n := range []struct {
		name         string
		value, least int
	}{
		{"samples", o.samples, minSamples},
		{"rounds", o.rounds, 1},
		{"days", o.days, 1},
		{"starts", o.starts, 1},
		{"batch", o.batch, 1},
		{"concurrency", o.concurrency, 1},
	} {
		if n.value < n.least {
			faults = append(faults, fmt.Errorf("%s: %d, takes at least %d", n.name, n.value, n.least))
		}
	}
	return errors.Join(faults...)
}
