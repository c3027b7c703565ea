package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// Defaults of a [Config], the same as SQL's.
const (
	DefaultBatchSize   = 25
	DefaultVisibility  = 5 * time.Minute
	DefaultMaxAttempts = 8
	DefaultBackoffBase = time.Minute
	DefaultBackoffCap  = time.Hour
	DefaultSnooze      = 5 * time.Minute
	DefaultMaxSnoozes  = 20
	DefaultConcurrency = 16
)

// Constants of a pass.
const (
	// MarkMargin is the time kept, per row, for the acknowledgement after a handler's worst case.
	MarkMargin = 2 * time.Second
	// StatsDeadline is how long a pass waits for statistics, in real time.
	StatsDeadline = 3 * time.Second
)

// Observer is told "claimed" with the number of events for every non-empty batch, and "finished" with the
// processed count once. A panic in it is swallowed.
type Observer func(name string, n int)

// Config configures a Worker. Store and Registry are required; every other zero value means its default. The store
// clamps the numbers it is handed (see [ClaimRequest], [Settlement], [Backoff]).
type Config struct {
	Store    Store
	Registry Registry
	// KnownTypes are event types that exist but that this worker leaves to others.
	KnownTypes []string

	BatchSize   int           // events per claim
	LaneDepth   int           // events of one aggregate per claim; its default is the batch size
	Visibility  time.Duration // length of a lease
	MaxAttempts int           // attempts after which an event is discarded
	BackoffBase time.Duration
	BackoffCap  time.Duration
	Snooze      time.Duration // delay of a snoozed event when its handler names none
	MaxSnoozes  int           // snoozes after which an outage is taken for a permanent error
	Concurrency int           // handlers at once; 1 runs strictly one after the other
	// Linger is how long a pass goes on looking, every 20 ms, once it finds nothing more: a pass that lingers
	// delivers at once what is committed while it runs. Zero ends the pass when the queue is empty.
	Linger time.Duration
	// Retention says which finished events Pruner deletes, once in a pass, in what is left of its budget.
	Retention Retention

	Circuits Circuits         // nil: each pass finds out by itself which destinations are out
	Stats    Stats            // nil: no statistics
	Pruner   Pruner           // nil: nothing is ever deleted
	Discards Discards         // nil: nobody is told of discards
	Observer Observer         // nil: nobody watches
	Logger   *slog.Logger     // nil: no logs
	Clock    func() time.Time // measures the budget only; nil: time.Now
}

// Pass holds what may differ from one pass to the next; the zero value is an ordinary pass.
type Pass struct {
	// SoftBudget is the time after which nothing new is started. Zero derives it from the context's deadline:
	// the time left, less [StatsDeadline] and [MarkMargin]. Without a deadline there is no limit.
	SoftBudget time.Duration
	// EventTypes limits the pass to these of the registry's types; the others are held, so that order stays.
	// Nil means all. An empty list, and a type that the registry lacks, are errors.
	EventTypes []string
	// BatchSize replaces the worker's for this pass; zero keeps it.
	BatchSize int
}

func (c Config) withDefaults() Config {
	c.BatchSize = orDefault(c.BatchSize, DefaultBatchSize)
	c.Visibility = orDefault(c.Visibility, DefaultVisibility)
	c.MaxAttempts = orDefault(c.MaxAttempts, DefaultMaxAttempts)
	c.BackoffBase = orDefault(c.BackoffBase, DefaultBackoffBase)
	c.BackoffCap = orDefault(c.BackoffCap, DefaultBackoffCap)
	c.Snooze = orDefault(c.Snooze, DefaultSnooze)
	c.MaxSnoozes = orDefault(c.MaxSnoozes, DefaultMaxSnoozes)
	c.Concurrency = orDefault(c.Concurrency, DefaultConcurrency)
	c.Retention = c.Retention.WithDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Registry, c.KnownTypes = maps.Clone(c.Registry), slices.Clone(c.KnownTypes)
	return c
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// validate reports every fault at once, each naming its field, what it got and what it takes.
func (c Config) validate() error {
	faults := []error{c.Registry.validate()}
	if c.Store == nil {
		faults = append(faults, errors.New("store: nil, takes a Store"))
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"batch size", c.BatchSize},
		{"lane depth", c.LaneDepth},
		{"max attempts", c.MaxAttempts},
		{"max snoozes", c.MaxSnoozes},
		{"concurrency", c.Concurrency},
	} {
		if n.value < 0 {
			faults = append(faults, fmt.Errorf("%s: %d, takes a positive number or zero for the default", n.name, n.value))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"visibility", c.Visibility},
		{"backoff base", c.BackoffBase},
		{"backoff cap", c.BackoffCap},
		{"snooze", c.Snooze},
		{"linger", c.Linger},
	} {
		if d.value < 0 {
			faults = append(faults, fmt.Errorf("%s: %v, takes a positive duration or zero for the default", d.name, d.value))
		}
	}
	return errors.Join(faults...)
}
