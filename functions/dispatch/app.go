package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/openlup/outbox-dispatch/internal/database"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// errNotReady is the cause of a deadline, named in the answer.
var errNotReady = errors.New("the database did not answer in the time of this invocation")

// app handles the invocations of one process. It is safe for concurrent use.
type app struct {
	fault  error // of the configuration; then nothing else is set
	pool   *database.Pool
	worker *outbox.Worker
	routed []string // event types with a route, sorted
	logger *slog.Logger
}

// newApp reads the configuration and wires the function. It connects to nothing. A configuration that cannot be used
// does not stop the process: every invocation answers it, so that it is seen where invocations are watched.
func newApp(ctx context.Context, getenv func(string) string, logger *slog.Logger) *app {
	c, err := loadConfig(getenv)
	if err != nil {
		return &app{fault: err}
	}
	pool, err := database.Open(ctx, c.database)
	if err != nil {
		return &app{fault: &ConfigError{err}}
	}
	store := &postgres.Store{Pool: pool.Pool}
	c.worker.Store, c.worker.Stats, c.worker.Logger = store, store, logger
	worker, err := outbox.NewWorker(c.worker)
	if err != nil {
		pool.Close()
		return &app{fault: &ConfigError{err}}
	}
	return &app{pool: pool, worker: worker, routed: slices.Sorted(maps.Keys(c.worker.Registry)), logger: logger}
}

// Invoke runs one pass. It takes the payload as bytes since an empty one is no JSON, and answers the result's JSON,
// or a [*ConfigError], [*EventError] or [*StoreError]. The result is logged as well, also when the store fails in
// mid-pass and only the error can be answered.
func (a *app) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	if a.fault != nil {
		return nil, a.fault
	}
	pass, err := parseEvent(payload, a.routed)
	if err != nil {
		return nil, err
	}
	// Of the empty result only the keys matter.
	result := outbox.Result{ByEventType: map[string]outbox.TypeCounts{}, DiscardedEventIDs: []string{}}
	if err = a.ready(ctx); err != nil {
		err = &outbox.StoreError{Op: "connect", Err: err}
	} else {
		result, err = a.worker.Run(ctx, pass)
	}
	reply, jsonErr := json.Marshal(result)
	if jsonErr != nil {
		return nil, errors.Join(err, fmt.Errorf("encode the result: %w", jsonErr))
	}
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelError
	}
	a.logger.LogAttrs(ctx, level, "[outbox-dispatch] result", slog.Any("result", json.RawMessage(reply)))
	if failure, ok := errors.AsType[*outbox.StoreError](err); ok {
		return nil, &StoreError{failure: failure}
	}
	return reply, err
}

// ready proves that the database answers, early enough for the reply to come before the platform kills the process.
func (a *app) ready(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, left-min(outbox.MarkMargin, left/2), errNotReady)
		defer cancel()
	}
	err := a.pool.Ready(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errNotReady) {
		return errors.Join(err, errNotReady)
	}
	return err
}
