package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options says what to measure. Its zero value is of no use; parseOptions fills it.
type options struct {
	sizes      []int         // rows of a shape, ascending; the first is what the others are compared with
	shapes     []string      // names of shapes
	statistics []string      // states of the planner's statistics
	samples    int           // claims per figure
	claimTime  time.Duration // ends a figure's samples early, but not before minSamples
	events     int           // of one drain; 0: no drains
	peerTime   time.Duration // ends a slow peer early
	workers    []int         // River's worker counts; empty: no River
	json       string        // file for the JSON lines; empty: standard output
	profile    string        // file for a CPU profile of the drain; empty: none
}

// minSamples is how many claims a figure rests on at least.
const minSamples = 10

// parseOptions reads the command line, and reports its faults together.
func parseOptions(args []string, output io.Writer) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(output)
	quick := flags.Bool("quick", false, "everything at a smaller size: under a minute")
	sizes := flags.String("size", "1k,100k", "rows of each shape, ascending; k and M count as thousand and million")
	shapes := flags.String("shapes", strings.Join(shapeNames(), ","), "shapes to claim from; empty: none")
	statistics := flags.String("statistics", fresh, "states of the planner's statistics: fresh, stale, absent")
	samples := flags.Int("samples", 100, "claims per figure")
	events := flags.String("events", "100k", "events of one drain; 0: no drains")
	peers := flags.Bool("peers", true, "drain by other means too")
	jsonFile := flags.String("json", "", "`file` for the JSON lines, instead of standard output")
	profile := flags.String("cpuprofile", "", "`file` for a CPU profile of drain_noop")
	if err := flags.Parse(args); err != nil {
		return options{}, fmt.Errorf("read flags: %w", err)
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	o := options{samples: *samples, claimTime: 3 * time.Second, peerTime: 5 * time.Second, json: *jsonFile, profile: *profile}
	if *peers {
		o.workers = []int{100, 500, 1000}
	}
	if *quick {
		if !set["samples"] {
			o.samples = 30
		}
		if !set["events"] {
			*events = "10k"
		}
		if !set["size"] {
			*sizes = "1k,20k"
		}
		o.claimTime, o.peerTime = 200*time.Millisecond, time.Second
	}
	var faults [5]error
	o.sizes, faults[0] = parseSizes(*sizes)
	o.shapes, faults[1] = parseNames("shapes", *shapes, shapeNames())
	o.statistics, faults[2] = parseNames("statistics", *statistics, []string{fresh, stale, absent})
	o.events, faults[3] = parseSize(*events)
	if o.samples < minSamples {
		faults[4] = fmt.Errorf("samples: %d, takes at least %d", o.samples, minSamples)
	}
	return o, errors.Join(faults[:]...)
}

func parseSizes(list string) ([]int, error) {
	var sizes []int
	for text := range strings.SplitSeq(list, ",") {
		size, err := parseSize(text)
		if err != nil {
			return nil, err
		}
		if size == 0 {
			return nil, errors.New("size: 0, takes at least 1")
		}
		sizes = append(sizes, size)
	}
	if !slices.IsSorted(sizes) {
		return nil, fmt.Errorf("size: %s, takes an ascending list", list)
	}
	return sizes, nil
}

// parseSize reads 100000, 100k or 1M.
func parseSize(text string) (int, error) {
	factor := 1
	digits := text
	if cut, ok := strings.CutSuffix(text, "k"); ok {
		digits, factor = cut, 1_000
	} else if cut, ok := strings.CutSuffix(text, "M"); ok {
		digits, factor = cut, 1_000_000
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > 100_000_000 {
		return 0, fmt.Errorf("size: %q, takes a number like 1000, 100k or 1M", text)
	}
	return n * factor, nil
}

// sizeName is the reverse of parseSize.
func sizeName(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return strconv.Itoa(n/1_000_000) + "M"
	case n >= 1_000 && n%1_000 == 0:
		return strconv.Itoa(n/1_000) + "k"
	}
	return strconv.Itoa(n)
}

func parseNames(flagName, list string, allowed []string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(allowed, name) {
			return nil, fmt.Errorf("%s: %q, takes %s", flagName, name, strings.Join(allowed, ", "))
		}
	}
	return names, nil
}
