package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/openlup/outbox-dispatch/internal/database"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/sql"
)

// errNotReady is the cause of a deadline, named in the answer.
var errNotReady = errors.New("the database did not answer in the time of this invocation")

// app handles the invocations of one process. It is safe for concurrent use.
type app struct {
	fault  error // of the configuration; then nothing else is set
	pool   *database.Pool
	rails  *rails
	logger *slog.Logger
	// started is called with every batch that was claimed, and at the end of every pass. Not nil.
	started func()
}

// newApp reads the configuration, wires the function and starts to connect to the database. A configuration that cannot be
// used does not stop the process: every invocation answers it, so that it is seen where invocations are watched.
func newApp(ctx context.Context, getenv func(string) string, load loadAWS, logger *slog.Logger) *app {
	c, err := loadConfig(ctx, getenv, load)
	if err != nil {
		return &app{fault: err}
	}
	pool, err := database.Open(ctx, c.database)
	if err != nil {
		return &app{fault: &ConfigError{err}}
	}
	pool.Connect(ctx)
	store := &postgres.Store{Pool: pool.Pool}
	c.worker.Store, c.worker.Circuits, c.worker.Stats, c.worker.Pruner, c.worker.Discards = store, store, store, store, store
	a := &app{pool: pool, logger: logger, started: func() {}}
	c.worker.Logger, c.worker.Observer = logger, func(string, int) { a.started() }
	c.router.endpoints.lookup.Pool = pool.Pool
	if a.rails, err = newRails(c, logger); err == nil {
		err = logStart(ctx, c, logger)
	}
	if err != nil {
		pool.Close()
		return &app{fault: &ConfigError{err}}
	}
	return a
}

// logStart tells which schema the deployment has and which one this binary was built with. A database that is ahead
// works, as after a rollback; one that is behind may not.
func logStart(ctx context.Context, c config, logger *slog.Logger) error {
	built, err := postgres.Latest(sql.Files)
	if err != nil {
		return fmt.Errorf("list the migrations: %w", err)
	}
	deployed := unmanaged
	if c.schema > 0 {
		deployed = strconv.Itoa(c.schema)
	}
	versions := slog.Group("value", slog.String("schemaVersion", deployed), slog.Int("builtForVersion", built))
	logger.LogAttrs(ctx, slog.LevelInfo, "[outbox-dispatch] start", versions)
	if c.schema > 0 && c.schema != built {
		logger.LogAttrs(ctx, slog.LevelWarn, "[outbox-dispatch] schema_version_mismatch", versions)
	}
	return nil
}

// Invoke runs one pass. It takes the payload as bytes since an empty one is no JSON, and answers the result's JSON,
// or a [*ConfigError], [*EventError] or [*StoreError]. The result is logged as well, also when the store fails in
// mid-pass and only the error can be answered.
func (a *app) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	if a.fault != nil {
		return nil, a.fault
	}
	rail, err := a.rails.current(ctx)
	if err != nil {
		return nil, &ConfigError{err}
	}
	pass, err := parseEvent(payload, rail.routed)
	if err != nil {
		return nil, err
	}
	// Of the empty result only the keys matter.
	result := outbox.Result{ByEventType: map[string]outbox.TypeCounts{}, DiscardedEventIDs: []string{}}
	if err = a.ready(ctx); err != nil {
		err = &outbox.StoreError{Op: "connect", Err: err}
	} else {
		result, err = rail.worker.Run(ctx, pass)
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
		a.pool.Distrust()
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
