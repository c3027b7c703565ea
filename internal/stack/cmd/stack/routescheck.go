package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/openlup/outbox-dispatch/internal/routes"
)

// checkRoutes checks one routes file without a network: it writes the faults to standard error, or else what the file
// says to standard output. getenv gives the variables; those that are not set, and secrets, are unknown.
func checkRoutes(args []string, getenv func(string) string, out, problems io.Writer) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("routes-check: takes one file, like FILE=routes.yaml")
	}
	text, err := os.ReadFile(args[0])
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
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, destination := range slices.Sorted(maps.Keys(file.Destinations)) {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", destination, file.Destinations[destination].Kind(), strings.Join(types[destination], ", "))
	}
	if lost := types[""]; len(lost) > 0 {
		fmt.Fprintf(table, "  unknown\t\t%s\n", strings.Join(lost, ", "))
	}
	if len(file.Known) > 0 {
		fmt.Fprintf(table, "  other workers\t\t%s\n", strings.Join(file.Known, ", "))
	}
	_ = table.Flush() // into memory
	if len(unknown) == 0 {
		return b.String()
	}
	b.WriteString("not checked, since these values are not known here:\n")
	for _, u := range unknown {
		fmt.Fprintf(table, "  line %d\t%s\t%s\n", u.Line, u.Field, u.Label())
	}
	_ = table.Flush()
	return b.String()
}
