package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// TestRunReportsEveryFigure measures at sizes too small to mean anything: every figure must come out.
func TestRunReportsEveryFigure(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	args := []string{
		"-quick", "-size=20,40", "-samples=10", "-events=200", "-shapes=spread,hot", "-statistics=fresh,stale,absent",
	}
	if err := run(t.Context(), os.Getenv("OUTBOX_TEST_DATABASE_URL"), args, &out); err != nil {
		t.Fatalf("run: %v", err)
	}
	names := figureNames(t, &out)
	for _, want := range []string{
		"claim_spread_batch_20_p50", "claim_spread_events_40_p99", "claim_spread_recovered_40_stale_buffers",
		"claim_hot_events_40_absent_rows_read", "claim_hot_batch_20_claimed", "drain_noop", "peer_claim_1_ack_1",
		"drain_noop_to_claim_100_ack_1", "peer_river_100", "peer_river_500", "peer_river_1000",
		"drain_noop_to_river_best",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no figure %s in %v", want, names)
		}
	}
}

// figureNames reads the JSON lines: the machine, then the figures.
func figureNames(t *testing.T, out *bytes.Buffer) []string {
	t.Helper()
	var names []string
	machines := 0
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var f struct {
			Machine map[string]any `json:"machine"`
			Name    string         `json:"name"`
			Value   float64        `json:"value"`
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if f.Machine != nil {
			machines++
			if len(names) > 0 {
				t.Error("the machine comes after a figure, want it first")
			}
			continue
		}
		if f.Value <= 0 {
			t.Errorf("%s is %v, want more than 0", f.Name, f.Value)
		}
		names = append(names, f.Name)
	}
	if machines != 1 {
		t.Errorf("%d descriptions of the machine, want 1", machines)
	}
	return names
}

func TestRunDropsItsDatabases(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	ws, err := openWorkspace(ctx, os.Getenv("OUTBOX_TEST_DATABASE_URL"))
	if err != nil {
		t.Fatalf("open workspace: %v", err)
	}
	if _, err := ws.outbox(ctx, "some"); err != nil {
		t.Fatalf("make database: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	prefix := ws.prefix
	if err := ws.close(cancelled); err != nil {
		t.Fatalf("close: %v", err)
	}
	again, err := openWorkspace(ctx, os.Getenv("OUTBOX_TEST_DATABASE_URL"))
	if err != nil {
		t.Fatalf("open workspace: %v", err)
	}
	defer func() { _ = again.close(ctx) }()
	var left int
	err = again.server.QueryRow(ctx, "select count(*) from pg_database where starts_with(datname, $1)", prefix).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d databases left, error %v; want none", left, err)
	}
}

func TestDeliveriesAreChecked(t *testing.T) {
	t.Parallel()
	first, second := outbox.Event{AggregateID: "a", Position: 1}, outbox.Event{AggregateID: "a", Position: 2}
	for _, c := range []struct {
		name   string
		events []outbox.Event
		ok     bool
	}{
		{"in order", []outbox.Event{first, second}, true},
		{"inverted", []outbox.Event{second, first}, false},
		{"twice", []outbox.Event{first, first}, false},
		{"lost", []outbox.Event{first}, false},
		{"one too many", []outbox.Event{first, second, second}, false},
	} {
		d := newDeliveries(2)
		for _, e := range c.events {
			if _, err := d.Handle(t.Context(), e); err != nil {
				t.Fatalf("%s: handle: %v", c.name, err)
			}
		}
		if err := d.check(2); (err == nil) != c.ok {
			t.Errorf("%s: got error %v, want ok %v", c.name, err, c.ok)
		}
	}
}

func TestPercentileIsANearestRank(t *testing.T) {
	t.Parallel()
	times := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for p, want := range map[int]time.Duration{1: 1, 50: 5, 90: 9, 99: 10, 100: 10} {
		if got := percentile(times, p); got != want {
			t.Errorf("percentile %d: got %v, want %v", p, got, want)
		}
	}
}

func TestVerdictsFollowTheRatio(t *testing.T) {
	t.Parallel()
	r := &report{}
	r.add(figure{Name: "base", Value: 10})
	for _, c := range []struct {
		value float64
		limit target
		want  string
	}{
		{15, target{1.5, true}, "<= 1.5 met"},
		{16, target{1.5, true}, "<= 1.5 MISSED"},
		{13, target{1.3, false}, ">= 1.3 met"},
		{12, target{1.3, false}, ">= 1.3 MISSED"},
		{12, target{}, ""},
	} {
		if got := r.compare(figure{Name: "f", Value: c.value}, "base", c.limit).verdict(); got != c.want {
			t.Errorf("%v against 10: got %q, want %q", c.value, got, c.want)
		}
	}
	if got := r.compare(figure{Name: "f", Value: 1}, "missing", target{1, true}); got.RatioTo != "" || got.verdict() != "" {
		t.Errorf("without a base: got %+v, want no ratio", got)
	}
}

func TestOptionsReportTheirFaults(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	_, err := parseOptions([]string{"-size=100k,1k", "-shapes=spread,round", "-statistics=old", "-events=many", "-samples=1"}, &out)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"100k,1k", `"round"`, `"old"`, `"many"`, "samples: 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %s", err, want)
		}
	}
	o, err := parseOptions([]string{"-size=1k,1M", "-shapes="}, &out)
	if err != nil || !slices.Equal(o.sizes, []int{1000, 1_000_000}) || len(o.shapes) != 0 {
		t.Errorf("got sizes %v, shapes %v, error %v", o.sizes, o.shapes, err)
	}
}
