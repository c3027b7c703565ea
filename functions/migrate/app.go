package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/openlup/outbox-dispatch/internal/database"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/sql"
)

// reserve is the time before the invocation's deadline at which the migration stops, so that the reply still gets
// out: at the deadline itself the process is killed.
const reserve = 2 * time.Second

var errReserve = errors.New("stopped 2s before the invocation's deadline")

// app lives as long as the process; its handle is safe for concurrent use.
type app struct {
	fault    error // why the configuration cannot be used
	pool     *database.Pool
	migrator *postgres.Migrator
	logger   *slog.Logger
}

// reply is what an invocation that succeeded answers.
type reply struct {
	OK     bool   `json:"ok"`
	Action string `json:"action"`
	postgres.Report
}

// newApp keeps a bad configuration for the invocations to answer with, so that the process stays up and the cause is
// in the reply. It connects to nothing.
func newApp(ctx context.Context, getenv func(string) string, logger *slog.Logger) *app {
	config, err := loadConfig(getenv)
	if err != nil {
		return &app{fault: err, logger: logger}
	}
	pool, err := database.Open(ctx, config.database)
	if err != nil {
		return &app{fault: err, logger: logger}
	}
	migrator := &postgres.Migrator{Pool: pool.Pool, Files: sql.Files, LockTimeout: config.lockTimeout}
	return &app{pool: pool, migrator: migrator, logger: logger}
}

// handle answers one invocation: a custom resource's event with what CloudFormation was told, any other with a reply.
func (a *app) handle(ctx context.Context, event json.RawMessage) (any, error) {
	resource, found, err := parseResource(event)
	if err != nil {
		a.log(ctx, "", postgres.Report{}, err)
		return nil, err
	}
	if found {
		return a.answerResource(ctx, resource)
	}
	return a.invoke(ctx, event)
}

// invoke answers a direct invocation.
func (a *app) invoke(ctx context.Context, event json.RawMessage) (*reply, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline.Add(-reserve), errReserve)
		defer cancel()
	}
	action, err := parseEvent(event)
	if a.fault != nil {
		action, err = "", &ConfigError{Err: a.fault}
	}
	var report postgres.Report
	if err == nil {
		report, err = a.do(ctx, action)
	}
	a.log(ctx, action, report, err)
	if err != nil {
		return nil, err
	}
	return &reply{OK: true, Action: action, Report: report}, nil
}

// do performs an action until ctx ends.
func (a *app) do(ctx context.Context, action string) (postgres.Report, error) {
	if a.fault != nil {
		return postgres.Report{}, &ConfigError{Err: a.fault}
	}
	if err := a.pool.Ready(ctx); err != nil {
		return postgres.Report{}, named(ctx, err)
	}
	do := a.migrator.Up
	switch action {
	case actionStatus:
		do = a.migrator.Status
	case actionVerify:
		do = a.migrator.Verify
	}
	report, err := do(ctx)
	if err != nil {
		err = named(ctx, err)
	}
	return report, err
}

func (a *app) log(ctx context.Context, action string, report postgres.Report, err error) {
	attrs := []slog.Attr{
		slog.String("action", action),
		slog.Int("versionBefore", report.VersionBefore),
		slog.Int("versionAfter", report.VersionAfter),
		slog.String("state", string(report.State)),
		slog.Any("applied", report.Applied),
		slog.Any("pending", report.Pending),
	}
	if err != nil {
		// The reply has no room for how far the migration came, and nobody reads that of an asynchronous call.
		a.logger.LogAttrs(ctx, slog.LevelError, "migrate failed", append(attrs, slog.String("error", err.Error()))...)
		return
	}
	a.logger.LogAttrs(ctx, slog.LevelInfo, "migrate done", attrs...)
}
