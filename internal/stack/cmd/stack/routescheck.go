package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/openlup/outbox-dispatch/internal/routes"
)

// checkRoutes checks one routes file without a network: it writes the faults to standard error, or else what the file
// says to standard output. getenv gives the variables; those that are not set, and secrets, are unknown.
func checkRoutes(args []string, getenv func(string) string, out, problems io.Writer) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("routes-check: takes one file, like FILE=routes.yaml")
	}
	text, err := os.ReadFile(args[0]) //nolint:gosec // whoever runs it names the file
	if err != nil {
		return fmt.Errorf("routes-check: %w", err)
	}
	lookup := func(name string) (string, bool) {
		value := getenv(name)
		return value, value != "" && !routes.IsSecret(name)
	}
	file, unknown, err := routes.Check(text, args[0], lookup, func(string) bool { return true })
	if err != nil {
		faults := strings.Split(err.Error(), "\n")
		if _, err := fmt.Fprintln(problems, strings.Join(faults, "\n")); err != nil {
			return err
		}
		return fmt.Errorf("routes-check: faults: %d", len(faults))
	}
	_, err = io.WriteString(out, summary(args[0], file, unknown))
	return err
}

// summary tells where each type goes, and what was not looked at. It shows names only.
func summary(name string, file routes.File, unknown []routes.Unknown) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: no fault\n", name)
	types := map[string][]string{}
	for _, eventType := range slices.Sorted(maps.Keys(file.Routes)) {
		to := file.Routes[eventType].To
		types[to] = append(types[to], eventType)
	}
	var rows [][3]string
	for _, destination := range slices.Sorted(maps.Keys(file.Destinations)) {
		rows = append(rows, [3]string{destination, file.Destinations[destination].Kind(), strings.Join(types[destination], ", ")})
	}
	if lost := types[""]; len(lost) > 0 {
		rows = append(rows, [3]string{"unknown", "", strings.Join(lost, ", ")})
	}
	if len(file.Known) > 0 {
		rows = append(rows, [3]string{"other workers", "", strings.Join(file.Known, ", ")})
	}
	align(&b, rows)
	if len(unknown) > 0 {
		b.WriteString("not checked, since these values are not known here:\n")
	}
	rows = nil
	for _, u := range unknown {
		rows = append(rows, [3]string{fmt.Sprintf("line %d", u.Line), u.Field, u.Label()})
	}
	align(&b, rows)
	return b.String()
}

// align writes rows with their first two columns as wide as need be.
func align(b *strings.Builder, rows [][3]string) {
	var first, second int
	for _, row := range rows {
		first, second = max(first, len(row[0])), max(second, len(row[1]))
	}
	for _, row := range rows {
		fmt.Fprintf(b, "  %-*s  %-*s  %s\n", first, row[0], second, row[1], row[2])
	}
}
