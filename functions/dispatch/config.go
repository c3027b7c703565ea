package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/openlup/outbox-dispatch/internal/database"
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
	batchSize     = "OUTBOX_BATCH_SIZE"
	visibility    = "OUTBOX_VISIBILITY_SECONDS"
	maxAttempts   = "OUTBOX_MAX_ATTEMPTS"
	backoffBase   = "OUTBOX_BACKOFF_BASE_SECONDS"
	backoffCap    = "OUTBOX_BACKOFF_CAP_SECONDS"
	snooze        = "OUTBOX_SNOOZE_SECONDS"
	maxSnoozes    = "OUTBOX_MAX_SNOOZES"
	concurrency   = "OUTBOX_CONCURRENCY"
	linger        = "OUTBOX_LINGER_SECONDS"
	routesText    = "OUTBOX_ROUTES"
	routesARN     = "OUTBOX_ROUTES_SECRET_ARN"
	routesFile    = "OUTBOX_ROUTES_FILE"
	schemaVersion = "OUTBOX_SCHEMA_VERSION"
)

// unmanaged is the schema version of a deployment that leaves migrations to somebody else.
const unmanaged = "unmanaged"

// numbers is the table of them, ranges as the database clamps them: out of range is a fault here, never a silent
// other value.
func numbers() []number {
	whole := func(d time.Duration) int { return int(d / time.Second) }
	return []number{
		{batchSize, "events", outbox.DefaultBatchSize, 1, 1000, "Events per claim; up to four claims are worked on at once."},
		{visibility, "s", whole(outbox.DefaultVisibility), 300, 3600, "Length of a lease: how long an event of a dead process waits. Must exceed every destination's timeout by 2 s."},
		{maxAttempts, "attempts", outbox.DefaultMaxAttempts, 1, 20, "Attempts after which an event is discarded."},
		{backoffBase, "s", whole(outbox.DefaultBackoffBase), 5, 3600, "Wait after the first failed attempt; doubles with each, less up to half at random."},
		{backoffCap, "s", whole(outbox.DefaultBackoffCap), 5, 86400, "Longest wait between attempts; not less than the base."},
		{snooze, "s", whole(outbox.DefaultSnooze), 60, 3600, "Wait after an outage of a destination that names no time itself."},
		{maxSnoozes, "snoozes", outbox.DefaultMaxSnoozes, 1, 1000, "Snoozes of an event after which an outage counts as a failed attempt."},
		{concurrency, "deliveries", outbox.DefaultConcurrency, 1, 256, "Events delivered at once; 1 delivers strictly one after the other."},
		{linger, "s", 0, 0, 840, "How long a pass goes on looking, every 20 ms, once it finds nothing more: what is committed meanwhile is delivered at once. The function is paid for that time."},
	}
}

// config is the whole configuration, checked.
type config struct {
	database database.Config
	// worker is without its store, and without registry and known types where those need a secret.
	worker outbox.Config
	// routesSecret is the ARN of the secret that holds the routes; empty when they are in routes.
	routesSecret string
	routes       source
	// references are to the secrets that routes need.
	references []string
	router     *router
	// schema is the version that the deployment's migration left behind; zero means that nobody said.
	schema int
}

// loadConfig reads the environment and the routes, unless these are in a secret. It calls nobody. The error is a
// [*ConfigError] that holds every fault.
func loadConfig(ctx context.Context, getenv func(string) string, load loadAWS) (config, error) {
	var c config
	var faults []error
	values := map[string]int{}
	for _, n := range numbers() {
		value, err := n.read(getenv)
		values[n.name], faults = value, append(faults, err)
	}
	kept := map[string]time.Duration{}
	for _, a := range ages() {
		value, err := a.read(getenv)
		kept[a.name], faults = value, append(faults, err)
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
		Linger: seconds(linger), Retention: outbox.Retention{Processed: kept[keepProcessed], Discarded: kept[keepDiscarded]},
	}
	services := &cloud{load: load, conns: c.worker.Concurrency}
	c.router = &router{getenv: getenv, cloud: services, secrets: &secrets{cloud: services}}
	faults = append(faults, c.loadRoutes(ctx, getenv))
	var schemaErr, databaseErr error
	c.schema, schemaErr = readSchemaVersion(getenv)
	c.database, databaseErr = database.FromEnv(getenv)
	if err := errors.Join(append(faults, schemaErr, databaseErr)...); err != nil {
		return config{}, &ConfigError{err}
	}
	return c, nil
}

// loadRoutes gives the worker its routes, or finds out which secrets they need.
func (c *config) loadRoutes(ctx context.Context, getenv func(string) string) error {
	arn := getenv(routesARN)
	if arn != "" {
		if err := checkSecretARN(arn); err != nil {
			return err
		}
	}
	if arn != "" && getenv(routesText) == "" {
		c.routesSecret = arn
		return nil
	}
	var err error
	if c.routes, err = readRoutes(getenv); err != nil {
		return err
	}
	file, references, err := c.router.check(c.routes)
	if c.references = references; err != nil || len(references) > 0 {
		return err
	}
	return c.router.route(ctx, &c.worker, file, c.routes.name)
}

// readSchemaVersion returns the version that a deployment says its migration left behind, or zero.
func readSchemaVersion(getenv func(string) string) (int, error) {
	text := getenv(schemaVersion)
	if text == "" || text == unmanaged {
		return 0, nil
	}
	version, err := strconv.Atoi(text)
	if err != nil || version < 1 {
		return 0, fmt.Errorf("%s: got %q, takes a whole number from 1, or %s", schemaVersion, text, unmanaged)
	}
	return version, nil
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
