package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// report collects figures in the order in which they are to be printed.
type report struct {
	machine   machine
	figures   []figure
	claimRows [][]string // the table of claims, in the columns of claimColumns
	tables    []table    // beside the figures
}

// table is one of its own, beside the figures.
type table struct {
	columns []string
	rows    [][]string
}

func (r *report) add(f figure) { r.figures = append(r.figures, f) }

// goal adds a figure whose value has a target.
func (r *report) goal(f figure, t target) {
	f.target = t
	r.add(f)
}

// compare adds a figure with its ratio to one that the report has already. A missing base leaves the ratio out.
// It returns what it added.
func (r *report) compare(f figure, to string, t target) figure {
	if base, ok := r.value(to); ok && base != 0 {
		ratio := f.Value / base
		f.RatioTo, f.Ratio, f.target = &to, &ratio, t
	}
	r.add(f)
	return f
}

func (r *report) value(name string) (float64, bool) {
	for _, f := range r.figures {
		if f.Name == name {
			return f.Value, true
		}
	}
	return 0, false
}

// all are the tables to print.
func (r *report) all() []table {
	figures := table{columns: []string{"figure", "measured", "unit", "ratio", "to", "target", "verdict"}}
	for _, f := range r.figures {
		if f.inRow {
			continue
		}
		ratio, to := "", ""
		if f.Ratio != nil {
			ratio, to = number(*f.Ratio), *f.RatioTo
		}
		figures.rows = append(figures.rows, []string{f.Name, number(f.Value), f.Unit, ratio, to, f.target.String(), f.verdict()})
	}
	claims := table{columns: claimColumns(), rows: r.claimRows}
	var filled []table
	for _, t := range append([]table{figures, claims}, r.tables...) {
		if len(t.rows) > 0 {
			filled = append(filled, t)
		}
	}
	return filled
}

// claimColumns heads the table of claims. The ratios are to the same shape's figures at its smallest size.
func claimColumns() []string {
	return []string{
		"claim of 100", "function", "rows", "statistics", "p50 ms", "p99 ms", "ratio", "p50 <= 1.5",
		"pages", "ratio", "pages <= 1.5", "rows read", "claimed",
	}
}

// verdicts counts the targets, and names those that were missed.
func (r *report) verdicts() string {
	met := 0
	var missed []string
	for _, f := range r.figures {
		switch {
		case f.missed():
			missed = append(missed, fmt.Sprintf("%s (%s, wanted %s)", f.Name, number(f.measured()), f.target))
		case f.target.limit != 0:
			met++
		}
	}
	if len(missed) == 0 {
		return fmt.Sprintf("targets: all %d met", met)
	}
	return fmt.Sprintf("targets: %d met, %d missed: %s", met, len(missed), strings.Join(missed, ", "))
}

// write prints the tables, and the JSON lines below them or into the file for them.
func (r *report) write(stdout io.Writer, o options) error {
	if err := r.writeText(stdout); err != nil {
		return fmt.Errorf("write tables: %w", err)
	}
	if o.markdown != "" {
		if err := r.updateMarkdown(o.markdown); err != nil {
			return err
		}
	}
	if o.json == "" {
		return r.writeJSON(stdout)
	}
	file, err := os.Create(o.json)
	if err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	if err := r.writeJSON(file); err != nil {
		_ = file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

func (r *report) writeText(out io.Writer) error {
	if _, err := fmt.Fprintln(out, r.machine); err != nil {
		return err
	}
	for _, t := range r.all() {
		lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{nil, t.columns}, t.rows...) {
			_, _ = fmt.Fprintln(lines, strings.Join(row, "\t")+"\t")
		}
		if err := lines.Flush(); err != nil { // a failed write above fails here too
			return err
		}
	}
	_, err := fmt.Fprintf(out, "\n%s\n\n", r.verdicts())
	return err
}

// writeJSON writes one line per figure. The first is the machine, which is a figure like the others: its CPUs, with
// the rest of its description for a unit.
func (r *report) writeJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	for _, f := range append([]figure{r.machine.figure()}, r.figures...) {
		if err := encoder.Encode(f); err != nil {
			return fmt.Errorf("write figures: %w", err)
		}
	}
	return nil
}
