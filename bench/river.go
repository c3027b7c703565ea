package main

import (
	"context"
	"fmt"
	"log/slog"
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

// jobWorker takes its time with a job.
type jobWorker struct {
	river.WorkerDefaults[job]
	work time.Duration
}

// Work implements river.Worker.
func (w *jobWorker) Work(ctx context.Context, _ *river.Job[job]) error { return wait(ctx, w.work) }

// Fetches come as fast as River is willing: its defaults (100 ms and 1 s) would measure the pauses.
const (
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
)

// riverDrain is one drain by River.
type riverDrain struct {
	jobs, workers int
	work          time.Duration // of a job
}

// riverDrainer is a contender that drains a copy of a database by River.
func (b *bench) riverDrainer(name, original string, d riverDrain) contender {
	return contender{name, func(ctx context.Context) (speed float64, err error) {
		err = b.use(ctx, original, func(db *database) error {
			done, err := drainRiver(ctx, db, d)
			speed = done.perSecond()
			return err
		})
		return speed, err
	}}
}

// drainRiver drains by River, the time from its start to the last job's stored completion. Order is not kept.
func drainRiver(ctx context.Context, db *database, d riverDrain) (drained, error) {
	client, err := riverClient(db, d)
	if err != nil {
		return drained{}, err
	}
	// An event is sent once the completion is stored; with room for all, none is dropped.
	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: d.jobs, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	defer cancel()
	start := time.Now()
	if err := client.Start(ctx); err != nil {
		return drained{}, fmt.Errorf("start: %w", err)
	}
	for range d.jobs {
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
	if err == nil && stored != d.jobs {
		err = fmt.Errorf("%d jobs completed, want %d", stored, d.jobs)
	}
	return drained{events: d.jobs, took: took}, err
}

func riverClient(db *database, d riverDrain) (*river.Client[pgx.Tx], error) {
	registry := river.NewWorkers()
	river.AddWorker(registry, &jobWorker{work: d.work})
	client, err := river.NewClient(riverpgxv5.New(db.Pool), &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: d.workers}},
		Workers:       registry,
		Logger:        slog.New(slog.DiscardHandler),
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll,
	})
	if err != nil {
		return nil, fmt.Errorf("configure river: %w", err)
	}
	return client, nil
}

// riverBacklog makes a database that holds n jobs, and returns its name.
func (b *bench) riverBacklog(ctx context.Context, n int) (string, error) {
	return b.original(ctx, func(db *database) error {
		migrator, err := rivermigrate.New(riverpgxv5.New(db.Pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return fmt.Errorf("migrate river: %w", err)
		}
		if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("migrate river: %w", err)
		}
		client, err := riverClient(db, riverDrain{jobs: n, workers: 1})
		if err != nil {
			return err
		}
		args := job{Text: strings.Repeat("x", payloadText)}
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
		// As for ours, nothing but the benchmark vacuums.
		return db.exec(ctx, "alter table river_job set (autovacuum_enabled = false)", "vacuum (analyze) river_job")
	})
}
