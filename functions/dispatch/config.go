package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/internal/database"
	"github.com/openlup/outbox-dispatch/internal/routes"
	"github.com/openlup/outbox-dispatch/outbox"
)

// ConfigError is a configuration that cannot be used; its name is the errorType of every answer until it is mended.
type ConfigError struct{ err error }

func (e *ConfigError) Error() string { return "configuration: " + e.err.Error() }
func (e *ConfigError) Unwrap() error { return e.err }

// number is one variable that holds a whole number.
type number struct {
	name, unit              string
	otherwise, lowest, most int
	meaning                 string
}

// The variables of the function, each named here and nowhere else; those of the database are package database's.
const (
	batchSize   = "OUTBOX_BATCH_SIZE"
	visibility  = "OUTBOX_VISIBILITY_SECONDS"
	maxAttempts = "OUTBOX_MAX_ATTEMPTS"
	backoffBase = "OUTBOX_BACKOFF_BASE_SECONDS"
	backoffCap  = "OUTBOX_BACKOFF_CAP_SECONDS"
	snooze      = "OUTBOX_SNOOZE_SECONDS"
	maxSnoozes  = "OUTBOX_MAX_SNOOZES"
	concurrency = "OUTBOX_CONCURRENCY"
	routesText  = "OUTBOX_ROUTES"
	routesFile  = "OUTBOX_ROUTES_FILE"
)

// numbers is the table of them, ranges as the database clamps them: out of range is a fault here, never a silent
// other value.
func numbers() []number {
	whole := func(d time.Duration) int { return int(d / time.Second) }
	return []number{
		{batchSize, "events", outbox.DefaultBatchSize, 1, 100, "Events per claim."},
		{visibility, "s", whole(outbox.DefaultVisibility), 300, 3600, "Length of a lease: how long an event of a dead process waits. Must exceed every destination's timeout by 2 s."},
		{maxAttempts, "attempts", outbox.DefaultMaxAttempts, 1, 20, "Attempts after which an event is discarded."},
		{backoffBase, "s", whole(outbox.DefaultBackoffBase), 5, 3600, "Wait after the first failed attempt; doubles with each, less up to half at random."},
		{backoffCap, "s", whole(outbox.DefaultBackoffCap), 5, 86400, "Longest wait between attempts; not less than the base."},
		{snooze, "s", whole(outbox.DefaultSnooze), 60, 3600, "Wait after an outage of a destination that names no time itself."},
		{maxSnoozes, "snoozes", outbox.DefaultMaxSnoozes, 1, 1000, "Snoozes of an event after which an outage counts as a failed attempt."},
		{concurrency, "deliveries", outbox.DefaultConcurrency, 1, 256, "Events delivered at once; 1 delivers strictly one after the other."},
	}
}

// config is the whole configuration, checked.
type config struct {
	database database.Config
	worker   outbox.Config // without its store
}

// loadConfig reads the environment and the routes. The error is a [*ConfigError] that holds every fault.
func loadConfig(getenv func(string) string) (config, error) {
	var c config
	var faults []error
	values := map[string]int{}
	for _, n := range numbers() {
		value, err := n.read(getenv)
		values[n.name], faults = value, append(faults, err)
	}
	seconds := func(name string) time.Duration { return time.Duration(values[name]) * time.Second }
	if values[backoffCap] < values[backoffBase] {
		faults = append(faults, fmt.Errorf("%s: got %d, takes at least the %d of %s",
			backoffCap, values[backoffCap], values[backoffBase], backoffBase))
	}
	c.worker = outbox.Config{
		BatchSize: values[batchSize], Visibility: seconds(visibility), MaxAttempts: values[maxAttempts],
		BackoffBase: seconds(backoffBase), BackoffCap: seconds(backoffCap),
		Snooze: seconds(snooze), MaxSnoozes: values[maxSnoozes], Concurrency: values[concurrency],
	}
	faults = append(faults, c.loadRoutes(getenv))
	var err error
	c.database, err = database.FromEnv(getenv)
	if err := errors.Join(append(faults, err)...); err != nil {
		return config{}, &ConfigError{err}
	}
	return c, nil
}

func (n number) read(getenv func(string) string) (int, error) {
	text := getenv(n.name)
	if text == "" {
		return n.otherwise, nil
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < n.lowest || value > n.most {
		return n.otherwise, fmt.Errorf("%s: got %q, takes a whole number from %d to %d (%s)", n.name, text, n.lowest, n.most, n.unit)
	}
	return value, nil
}

// loadRoutes fills in the registry and the known types.
func (c *config) loadRoutes(getenv func(string) string) error {
	text, name, err := readRoutes(getenv)
	if err != nil {
		return err
	}
	file, err := routes.Parse(text, name, func(variable string) (string, bool) {
		value := getenv(variable)
		return value, value != ""
	})
	if err != nil {
		return err
	}
	c.worker.KnownTypes = file.Known
	c.worker.Registry, err = routes.Registry(file, routes.Options{Concurrency: c.worker.Concurrency})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var faults []error
	for destination, d := range file.Destinations {
		if d.Timeout+outbox.MarkMargin >= c.worker.Visibility {
			faults = append(faults, fmt.Errorf("%s: got %v, takes more than the timeout of destination %s (%v) and %v",
				visibility, c.worker.Visibility, destination, d.Timeout, outbox.MarkMargin))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

// readRoutes returns the routes and the name that their faults carry.
func readRoutes(getenv func(string) string) (text []byte, name string, err error) {
	if inline := getenv(routesText); inline != "" {
		return []byte(inline), routesText, nil
	}
	path, source := getenv(routesFile), routesFile
	if path == "" {
		binary, err := os.Executable()
		if err != nil {
			return nil, "", fmt.Errorf("%s: not set, and the binary's folder is unknown: %w", routesFile, err)
		}
		path, source = filepath.Join(filepath.Dir(binary), "routes.yaml"), routesFile+" (not set)"
	}
	text, err = os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, "", fmt.Errorf("%s: takes a readable file, or set %s: %w", source, routesText, err)
	}
	return text, path, nil
}
