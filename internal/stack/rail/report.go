package rail

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// maxTold is how many differences are printed; a run in which everything failed has hundreds.
const maxTold = 40

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

func (r *run) report(rows []row, got arrivals, faults []string, took time.Duration) {
	r.reportPasses()
	r.reportDestinations(rows, got)
	r.reportTroubles(rows, got.lost)
	if len(faults) == 0 {
		r.reportVerified(rows, got)
		r.say("\n%s %d events, %.1f s\n", r.style("32", "ok"), len(rows), took.Seconds())
		return
	}
	r.say("\n%s\n  %s\n\n", r.bold("the last reply"), r.reply)
	for _, fault := range faults[:min(len(faults), maxTold)] {
		r.say("%s %s\n", r.style("31", "difference:"), fault)
	}
	if more := len(faults) - maxTold; more > 0 {
		r.say("and %d more\n", more)
	}
}

func (r *run) reportPasses() {
	lines := []string{"pass\tclaimed\tprocessed\tretried\tsnoozed\tdiscarded\treleased\tms\treason"}
	for i, p := range r.passes {
		lines = append(lines, fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s",
			i+1, p.Claimed, p.Processed, p.Retried, p.Snoozed, p.Discarded, p.Released, p.RunMs, cmp.Or(p.Reason, "-")))
	}
	r.table("dispatched (between passes SQL makes waiting events due; in life they wait a minute or more)", lines...)
}

// destinations in the order of the tables, with what stands at their receiving ends.
func destinations() []struct{ name, end string } {
	return []struct{ name, end string }{
		{crm, "webhook"},
		{billing, "webhook, out at first"},
		{members, "webhook, fails now and then"},
		{shipments, "SNS to SQS, topic missing at first"},
		{stock, "SNS to SQS, FIFO"},
		{ses, "SES, sending paused at first"},
		{"", "another worker's"},
	}
}

func (r *run) reportDestinations(rows []row, got arrivals) {
	c := newCount()
	c.webhooks(rows, got.requests)
	c.queues(rows, got.messages)
	c.mailbox(rows, got.mails)
	c.calls(rows, got.calls)
	type sums struct{ events, processed, discarded, left, sent, arrived, twice int }
	byPlace, all := map[string]*sums{}, &sums{}
	for _, d := range destinations() {
		byPlace[d.name] = &sums{}
	}
	for _, end := range rows {
		for _, s := range []*sums{byPlace[place(end.eventType)], all} {
			s.events++
			s.sent += c.sent[end.id]
			s.arrived += min(1, c.accepted[end.id])
			s.twice += max(0, c.accepted[end.id]-1)
			switch end.status {
			case "processed":
				s.processed++
			case "discarded":
				s.discarded++
			default:
				s.left++
			}
		}
	}
	lines := []string{"destination\t\tinserted\tprocessed\tdiscarded\tleft\tsent\tarrived\tduplicates"}
	line := func(name, end string, s *sums) {
		lines = append(lines, fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d",
			name, end, s.events, s.processed, s.discarded, s.left, s.sent, s.arrived, s.twice))
	}
	for _, d := range destinations() {
		line(cmp.Or(d.name, "-"), d.end, byPlace[d.name])
	}
	line("all", "", all)
	r.table("what was sent, and what arrived", lines...)
}

// reportTroubles groups the events that did not arrive at the first try by what became of them, and why.
func (r *run) reportTroubles(rows []row, lost map[string]int) {
	groups := map[string]int{}
	for _, end := range rows {
		switch {
		case end.status == "discarded":
			groups[fmt.Sprintf("discarded, attempts spent: %d of %d here, 8 by default\t%s", end.attempts, maxAttempts, end.reason)]++
		case end.fate == untouched:
			groups["left pending\tthe type is declared as known: another worker's"]++
		case end.snoozes > 0:
			groups["snoozed, then processed\t"+place(end.eventType)+" was out; no attempt was charged"]++
		case lost[end.id] > 0:
			groups["retried, then processed\tan answer of "+place(end.eventType)+" was lost"]++
		case end.attempts > 1:
			groups["retried, then processed\t"+place(end.eventType)+" failed once"]++
		}
	}
	lines := []string{"events\twhat became of them\twhy"}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		lines = append(lines, fmt.Sprintf("%d\t%s", groups[group], group))
	}
	r.table("what did not go at the first try", lines...)
}

// reportVerified says what a run without differences has shown.
func (r *run) reportVerified(rows []row, got arrivals) {
	ends, lost, accepted := map[string]int{}, 0, 0
	for _, end := range rows {
		ends[end.status]++
		lost += got.lost[end.id]
	}
	for _, req := range got.requests {
		if req.status == http.StatusOK {
			accepted++
		}
	}
	aggregates, _ := got.inversions(rows)
	ok := r.style("32", "ok")
	r.table("verified at the receiving ends",
		fmt.Sprintf("%s  %d inserted = %d delivered + %d discarded + %d left to another worker",
			ok, len(rows), ends["processed"], ends["discarded"], ends["pending"]),
		fmt.Sprintf("%s  %d webhook requests, %d accepted: signatures, headers, payloads byte for byte in each kind of envelope",
			ok, len(got.requests), accepted),
		fmt.Sprintf("%s  %d messages in SQS by %d requests: attributes, CloudEvents' data byte for byte; groups and deduplication ids of the FIFO topic",
			ok, len(got.messages), got.snsRequests),
		fmt.Sprintf("%s  %d answers of SNS lost: only the standard topic's queue got an event again", ok, lost),
		fmt.Sprintf("%s  %d mails: sender, recipient, subject, text", ok, len(got.mails)),
		fmt.Sprintf("%s  %d aggregates: in order at each end, and across destinations", ok, aggregates),
	)
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
