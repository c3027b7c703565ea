package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
	"github.com/openlup/outbox-dispatch/outbox"
)

// TestMain makes this program the child that runs a pass, when it is called as one.
func TestMain(m *testing.M) {
	postgres.Helper()
	if order := os.Getenv(childVariable); order != "" {
		if err := runChild(context.Background(), order, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestRunReportsEveryFigure measures at sizes too small to mean anything: every figure must come out.
func TestRunReportsEveryFigure(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	args := []string{
		"-quick", "-size=20,40", "-samples=10", "-events=400", "-shapes=spread,hot", "-statistics=fresh,stale,absent",
		"-peer-time=100ms", "-pass-time=200ms", "-starts=1", "-days=2", "-only=" + strings.Join(append(ordinaryNames(), specialNames()...), ","),
	}
	if err := run(t.Context(), os.Getenv("OUTBOX_TEST_DATABASE_URL"), args, &out); err != nil {
		t.Fatalf("run: %v", err)
	}
	names := figureNames(t, &out)
	for _, want := range []string{
		"machine", "bundle_dispatch", "bundle_migrate", "peer_empty_function", "cold_start", "enqueue",
		"enqueue_commit_not_waited_for", "peer_bare_table", "latency_idle_p50", "latency_idle_p99", "drain_noop",
		"drain_noop_to_claim_1_ack_1", "drain_noop_to_claim_100_ack_1", "peer_river_100", "peer_river_500",
		"peer_river_1000", "drain_20ms", "drain_20ms_to_river", "drain_hot", "drain_mixed_1k_aggregates",
		"drain_mixed_100k_aggregates", "held_xmin", "memory", "month_bloat", "month_growth", "cost_256", "cost_512",
		"claim_spread_batch_20_p50", "claim_spread_lanes_40_p99", "claim_spread_lanes_40_stale_buffers",
		"claim_hot_lanes_40_absent_rows_read", "claim_hot_batch_20_claimed", "claim_hot_pass_40_p50",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no figure %s in %v", want, names)
		}
	}
	if !strings.Contains(out.String(), "targets: ") {
		t.Error("no line counts the targets")
	}
}

// figureNames reads the JSON lines, whose keys are a promise, the machine's first.
func figureNames(t *testing.T, out *bytes.Buffer) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var keys map[string]any
		var f figure
		if err := errors.Join(json.Unmarshal([]byte(line), &keys), json.Unmarshal([]byte(line), &f)); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if got, want := slices.Sorted(maps.Keys(keys)), []string{"name", "ratio", "ratio_to", "unit", "value"}; !slices.Equal(got, want) {
			t.Errorf("%s has keys %v, want %v", f.Name, got, want)
		}
		if f.Value <= 0 || f.Unit == "" {
			t.Errorf("%s is %v %q, want more than 0 of some unit", f.Name, f.Value, f.Unit)
		}
		names = append(names, f.Name)
	}
	if len(names) > 0 && names[0] != "machine" {
		t.Errorf("the first line is %s, want machine", names[0])
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
		d := newDeliveries(2, 0)
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
		{15, atMost(1.5), "met"},
		{18, atMost(1.5), "MISSED by 1.20x"},
		{13, atLeast(1.3), "met"},
		{6.5, atLeast(1.3), "MISSED by 2.00x"},
		{12, target{}, ""},
	} {
		if got := r.compare(figure{Name: "f", Value: c.value}, "base", c.limit).verdict(); got != c.want {
			t.Errorf("%v against 10: got %q, want %q", c.value, got, c.want)
		}
	}
	r.goal(figure{Name: "absolute", Value: 90}, atLeast(45))
	if got, want := r.figures[len(r.figures)-1].verdict(), "met"; got != want {
		t.Errorf("90 of at least 45: got %q, want %q", got, want)
	}
	if got := r.compare(figure{Name: "f", Value: 1}, "missing", atMost(1)); got.RatioTo != nil || got.verdict() != "" {
		t.Errorf("without a base: got %+v, want no ratio", got)
	}
	if got, want := r.verdicts(), "targets: 3 met, 2 missed: f (1.80, wanted <= 1.5), f (0.65, wanted >= 1.3)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMediansTakeTurns(t *testing.T) {
	t.Parallel()
	var turns string
	contenderOf := func(name string, values ...float64) contender {
		return contender{name, func(context.Context) (float64, error) {
			turns += name
			value := values[0]
			values = values[1:]
			return value, nil
		}}
	}
	got, err := medians(t.Context(), 3, []contender{contenderOf("a", 3, 1, 2), contenderOf("b", 5, 5, 9)})
	if err != nil {
		t.Fatal(err)
	}
	if turns != "ababab" || got["a"] != 2 || got["b"] != 5 {
		t.Errorf("turns %s, medians %v; want ababab, 2 and 5", turns, got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of four: got %v, want 2.5", got)
	}
}

func TestCostFollowsTheShareOfACPU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		took, cpu float64
		megabytes int
		want      float64 // seconds
	}{
		{100, 0, 256, 100},
		{100, 10, megabytesPerCPU, 100},
		{100, 10, 2 * megabytesPerCPU, 100},
		{100, 10, megabytesPerCPU / 5, 140.05},
	} {
		seconds, dollars := lambdaCost(c.took, c.cpu, c.megabytes)
		if math.Abs(seconds-c.want) > 0.1 {
			t.Errorf("%v s, %v s of CPU at %d MB: got %v s, want %v", c.took, c.cpu, c.megabytes, seconds, c.want)
		}
		want := c.want*float64(c.megabytes)/1024*dollarsPerGBSecond + c.want/60*dollarsPerRequest
		if math.Abs(dollars-want) > want/1000 {
			t.Errorf("%d MB: got %v USD, want %v", c.megabytes, dollars, want)
		}
	}
}

func TestMarkdownReplacesOnlyWhatIsGenerated(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/page.md"
	r := &report{}
	r.goal(figure{Name: "slow", Value: 1, Unit: "x"}, atLeast(2))
	if err := os.WriteFile(path, []byte("before\n"+generatedBegin+"old\n"+generatedEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.updateMarkdown(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "before\n" + generatedBegin + r.markdown() + generatedEnd + "after\n"
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if !strings.Contains(want, "| slow | 1.00 | x | | | >= 2 | **MISSED** by 2.00x |\n") {
		t.Errorf("no row of the figure in %s", want)
	}
	if err := os.WriteFile(path, []byte("no lines\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.updateMarkdown(path); err == nil {
		t.Error("a page without the lines: got no error")
	}
}

func TestOptionsReportTheirFaults(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	_, err := parseOptions([]string{
		"-size=100k,1k", "-shapes=spread,round", "-statistics=old", "-events=many", "-samples=1", "-only=drain",
	}, &out)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"100k,1k", `"round"`, `"old"`, `"many"`, "samples: 1", `"drain"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %s", err, want)
		}
	}
	o, err := parseOptions([]string{"-quick", "-rounds=4"}, &out)
	if err != nil || o.rounds != 4 || o.events != 10_000 {
		t.Errorf("quick with 4 rounds: got %d rounds of %d events, error %v; want 4 of 10000", o.rounds, o.events, err)
	}
	o, err = parseOptions([]string{"-size=1k,1M", "-shapes="}, &out)
	if err != nil || !slices.Equal(o.sizes, []int{1000, 1_000_000}) || len(o.shapes) != 0 {
		t.Errorf("got sizes %v, shapes %v, error %v", o.sizes, o.shapes, err)
	}
}
