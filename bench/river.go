package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// job is the payload of an event, as a job of River.
type job struct {
	Text string `json:"text"`
}

// Kind implements river.JobArgs.
func (job) Kind() string { return eventType }

// noop does nothing with a job.
type noop struct{ river.WorkerDefaults[job] }

// Work implements river.Worker.
func (noop) Work(context.Context, *river.Job[job]) error { return nil }

// Fetches come as fast as River is willing: its defaults (100 ms and 1 s) would measure the pauses.
const (
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
)

// drainRiver drains n jobs by River, the time from its start to the last job's stored completion. Order is not kept.
func drainRiver(ctx context.Context, ws *workspace, n, workers int) (drained, error) {
	db, err := ws.database(ctx, "river_"+strconv.Itoa(workers), "template1")
	if err != nil {
		return drained{}, err
	}
	client, err := riverClient(ctx, db, workers)
	if err != nil {
		return drained{}, err
	}
	if err := riverBacklog(ctx, client, n); err != nil {
		return drained{}, err
	}
	if err := db.exec(ctx, "vacuum (analyze) river_job"); err != nil {
		return drained{}, err
	}
	ws.settle(ctx)
	// An event is sent once the completion is stored; with room for all, none is dropped.
	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: n, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	defer cancel()
	start := time.Now()
	if err := client.Start(ctx); err != nil {
		return drained{}, fmt.Errorf("start: %w", err)
	}
	for range n {
		select {
		case <-completed:
		case <-ctx.Done():
			return drained{}, context.Cause(ctx)
		}
	}
	took := time.Since(start)
	if err := client.Stop(ctx); err != nil {
		return drained{}, fmt.Errorf("stop: %w", err)
	}
	var stored int
	err = db.QueryRow(ctx, "select count(*) from river_job where state = 'completed'").Scan(&stored)
	if err == nil && stored != n {
		err = fmt.Errorf("%d jobs completed, want %d", stored, n)
	}
	return drained{events: n, took: took}, errors.Join(err, ws.drop(ctx, db))
}

func riverClient(ctx context.Context, db *database, workers int) (*river.Client[pgx.Tx], error) {
	driver := riverpgxv5.New(db.Pool)
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	registry := river.NewWorkers()
	river.AddWorker(registry, noop{})
	client, err := river.NewClient(driver, &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:       registry,
		Logger:        quiet,
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll,
	})
	if err != nil {
		return nil, fmt.Errorf("configure: %w", err)
	}
	return client, nil
}

func riverBacklog(ctx context.Context, client *river.Client[pgx.Tx], n int) error {
	args := job{Text: strings.Repeat("x", 280)}
	for left := n; left > 0; {
		params := make([]river.InsertManyParams, min(left, 10_000))
		for i := range params {
			params[i].Args = args
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
		left -= len(params)
	}
	return nil
}
