package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// figure is one measured number. RatioTo names the figure of the same run that Ratio compares it with: value divided
// by that figure's value.
type figure struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	RatioTo string  `json:"ratio_to,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`

	target target
	inRow  bool // shown in a row of claims, not in a line of its own
}

// target is the limit of a figure's ratio; its zero value is none.
type target struct {
	limit  float64
	atMost bool // otherwise at least
}

// report collects figures in the order in which they are to be printed.
type report struct {
	machine machine
	figures []figure
	claims  [][]string // the table of claims, in the columns of claimColumns
}

func (r *report) add(f figure) { r.figures = append(r.figures, f) }

// compare adds a figure with its ratio to one that the report has already. A missing base leaves the ratio out.
// It returns what it added.
func (r *report) compare(f figure, to string, t target) figure {
	if base, ok := r.value(to); ok && base != 0 {
		f.RatioTo, f.Ratio, f.target = to, f.Value/base, t
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

// write prints the table, and the JSON lines below it or into jsonFile.
func (r *report) write(stdout io.Writer, jsonFile string) error {
	if err := r.writeTable(stdout); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	if jsonFile == "" {
		return r.writeJSON(stdout)
	}
	file, err := os.Create(jsonFile) //nolint:gosec // the user names the file
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

// claimColumns heads the table of claims. The ratio is p50's, to the same shape's at its smallest size.
const claimColumns = "claim of 100\tfunction\trows\tstatistics\tp50 ms\tp99 ms\tratio\tpages\trows read\tclaimed\ttarget\t"

func (r *report) writeTable(out io.Writer) error {
	if _, err := fmt.Fprintln(out, r.machine); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(r.claims) > 0 {
		_, _ = fmt.Fprintln(table, "\n"+claimColumns)
	}
	for _, row := range r.claims {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")+"\t")
	}
	_, _ = fmt.Fprintln(table, "\nfigure\tvalue\tunit\tratio\tto\ttarget\t")
	for _, f := range r.figures {
		if f.inRow {
			continue
		}
		ratio := ""
		if f.RatioTo != "" {
			ratio = fmt.Sprintf("%.2f", f.Ratio)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t\n", f.Name, number(f.Value), f.Unit, ratio, f.RatioTo, f.verdict())
	}
	return table.Flush() // a failed write above fails here too
}

func number(value float64) string {
	if value >= 100 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

func (f figure) verdict() string {
	switch {
	case f.target.limit == 0:
		return ""
	case f.target.atMost && f.Ratio <= f.target.limit:
		return fmt.Sprintf("<= %g met", f.target.limit)
	case f.target.atMost:
		return fmt.Sprintf("<= %g MISSED", f.target.limit)
	case f.Ratio >= f.target.limit:
		return fmt.Sprintf(">= %g met", f.target.limit)
	}
	return fmt.Sprintf(">= %g MISSED", f.target.limit)
}

// writeJSON writes the machine and then one line per figure.
func (r *report) writeJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(map[string]machine{"machine": r.machine}); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	for _, f := range r.figures {
		if err := encoder.Encode(f); err != nil {
			return fmt.Errorf("write figures: %w", err)
		}
	}
	return nil
}
