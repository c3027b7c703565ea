package rail

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func (r *run) say(format string, args ...any) { _, _ = fmt.Fprintf(r.Out, format, args...) }

func (r *run) bold(text string) string { return r.style("1", text) }
func (r *run) style(code, text string) string {
	if !r.Colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// table prints aligned rows under a title.
func (r *run) table(title string, lines ...string) {
	r.say("\n%s\n", r.bold(title))
	w := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		_, _ = fmt.Fprintln(w, "  "+line)
	}
	_ = w.Flush()
}

func (r *run) report(rows []row, faults []string, took time.Duration) {
	r.reportPasses()
	r.reportTypes(rows)
	r.reportEndpoints()
	r.reportOrder(rows)
	r.reportTroubles(rows)
	r.say("\n%s\n  %s\n", r.bold("the last reply"), r.reply)
	r.say("\n")
	for _, fault := range faults {
		r.say("%s %s\n", r.style("31", "difference:"), fault)
	}
	if len(faults) == 0 {
		r.say("%s what arrived is what should have: %d events, %.1f s\n", r.style("32", "ok"), len(rows), took.Seconds())
	}
}

func (r *run) reportPasses() {
	lines := []string{"pass\tclaimed\tprocessed\tretried\tsnoozed\tdiscarded\treleased\tms\treason\tthen made due"}
	for i, p := range r.passes {
		lines = append(lines, fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%d",
			i+1, p.Claimed, p.Processed, p.Retried, p.Snoozed, p.Discarded, p.Released, p.RunMs, cmp.Or(p.Reason, "-"), p.aged))
	}
	r.table("dispatched (after each pass, waiting events are made due by SQL; in life they wait a minute or more)", lines...)
}

func (r *run) reportTypes(rows []row) {
	type counts struct{ all, processed, discarded, pending int }
	byType := map[string]*counts{}
	for _, end := range rows {
		c := byType[end.eventType]
		if c == nil {
			c = &counts{}
			byType[end.eventType] = c
		}
		c.all++
		switch end.status {
		case "processed":
			c.processed++
		case "discarded":
			c.discarded++
		default:
			c.pending++
		}
	}
	lines := []string{"event type\tdestination\tinserted\tprocessed\tdiscarded\tleft"}
	for _, name := range slices.Sorted(maps.Keys(byType)) {
		c := byType[name]
		lines = append(lines, fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%d",
			name, cmp.Or(endpoint(name), "(another worker's)"), c.all, c.processed, c.discarded, c.pending))
	}
	r.table("what was sent", lines...)
}

func (r *run) reportEndpoints() {
	lines := []string{"endpoint\trequests\tevents\taccepted\tduplicates\tturned away\tbad signatures"}
	requests := r.receiver.received()
	for _, name := range []string{"crm", "billing", "mail"} {
		events, answers := map[string]bool{}, map[int]int{}
		all, bad, accepted := 0, 0, map[string]bool{}
		for _, req := range requests {
			if req.endpoint != name {
				continue
			}
			all++
			events[req.id] = true
			answers[req.status]++
			if req.status == http.StatusOK {
				accepted[req.id] = true
			}
			if !req.signed {
				bad++
			}
		}
		var away []string
		for _, status := range slices.Sorted(maps.Keys(answers)) {
			if status != http.StatusOK {
				away = append(away, fmt.Sprintf("%d x %d", answers[status], status))
			}
		}
		lines = append(lines, fmt.Sprintf("/%s\t%d\t%d\t%d\t%d\t%s\t%d",
			name, all, len(events), len(accepted), answers[http.StatusOK]-len(accepted), cmp.Or(strings.Join(away, ", "), "-"), bad))
	}
	r.table("what was received", lines...)
}

// reportOrder shows the order in which three aggregates' events were accepted, and the verdict on all.
func (r *run) reportOrder(rows []row) {
	byID, accepted := index(rows), map[string][]string{}
	requests := r.receiver.received()
	for _, req := range requests {
		if end, ok := byID[req.id]; ok && req.status == http.StatusOK {
			accepted[end.aggregate()] = append(accepted[end.aggregate()], strconv.FormatInt(end.position, 10))
		}
	}
	lines := []string{"aggregate\taccepted, in this order (position)"}
	shown := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(accepted)) {
		kind, _, _ := strings.Cut(name, "/")
		if shown[kind] {
			continue
		}
		shown[kind] = true
		lines = append(lines, fmt.Sprintf("%s …%s\t%s", kind, name[len(name)-2:], strings.Join(accepted[name], " ")))
	}
	aggregates, inverted := order(rows, requests)
	lines = append(lines, fmt.Sprintf("all %d\t%d out of order", aggregates, len(inverted)))
	r.table("in what order", lines...)
}

// reportTroubles groups the events that did not arrive at the first try by what became of them, and why.
func (r *run) reportTroubles(rows []row) {
	tried := map[string]int{}
	for _, req := range r.receiver.received() {
		tried[req.id]++
	}
	groups := map[string]int{}
	for _, end := range rows {
		switch {
		case end.status == "discarded":
			groups[fmt.Sprintf("discarded, attempts spent: %d\t%s", end.attempts, end.reason)]++
		case end.fate == untouched:
			groups["left pending\tthe type is declared as known: another worker's"]++
		case end.snoozes > 0:
			groups["snoozed, then processed\tits destination was out; no attempt was charged"]++
		case tried[end.id] > 1:
			groups["retried, then processed\tits destination failed once"]++
		}
	}
	lines := []string{"events\twhat became of them\twhy"}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		lines = append(lines, fmt.Sprintf("%d\t%s", groups[group], group))
	}
	r.table("what did not go at the first try", lines...)
}

// reportLog prints where the functions' log is, and its end.
func (r *run) reportLog(path string) {
	const most = 30
	r.say("\n%s %s\n", r.bold("the functions' log is in"), path)
	text, err := os.ReadFile(path) //nolint:gosec // the run's own log
	if err != nil || len(text) == 0 {
		return
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	r.say("its last lines:\n%s\n", strings.Join(lines[max(0, len(lines)-most):], "\n"))
}
