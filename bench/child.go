package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// childVariable makes this program a process that runs one pass and reports what it used. It holds the order.
const childVariable = "OUTBOX_BENCH_PASS"

// order is what a child is to do.
type order struct {
	URL         string        `json:"url"`
	Database    string        `json:"database"`
	Batch       int           `json:"batch"`
	Concurrency int           `json:"concurrency"`
	Work        time.Duration `json:"work"`
	Limit       time.Duration `json:"limit"` // ends the pass early; zero: never
}

// usage is what a child's pass used.
type usage struct {
	Processed int           `json:"processed"`
	Took      time.Duration `json:"took"`
	CPU       time.Duration `json:"cpu"`  // of the whole process
	Peak      int64         `json:"peak"` // resident memory, bytes
}

// runChild runs one pass and writes its usage. Little is noted of each event, so that the memory is the pass's own.
func runChild(ctx context.Context, text string, out io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	config.ConnConfig.Database, config.MaxConns = o.Database, poolSize
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	var payload atomic.Int64
	handler := outbox.HandlerFunc(func(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
		payload.Add(int64(len(event.Payload)))
		return nil, wait(ctx, o.Work)
	})
	size := options{batch: o.Batch, concurrency: o.Concurrency}
	worker, err := outbox.NewWorker(size.config(&postgres.Store{Pool: pool}, handler))
	if err != nil {
		return err
	}
	var settings outbox.Pass
	if o.Limit > 0 {
		settings.SoftBudget = o.Limit + handlerTimeout + outbox.MarkMargin
	}
	start := time.Now()
	result, err := worker.Run(ctx, settings)
	if err != nil {
		return err
	}
	u := usage{Processed: result.Processed, Took: time.Since(start)}
	if u.CPU, u.Peak, err = used(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(u)
}

// used returns the CPU time and the peak of the resident memory of this process.
func used() (time.Duration, int64, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, 0, fmt.Errorf("read usage: %w", err)
	}
	cpu := time.Duration(r.Utime.Nano() + r.Stime.Nano())
	// Linux counts in kilobytes, and starts from the parent's peak: /proc knows better.
	if text, _, ok := strings.Cut(field("/proc/self/status", "VmHWM"), " "); ok {
		kilobytes, err := strconv.ParseInt(text, 10, 64)
		return cpu, kilobytes * 1024, err
	}
	return cpu, int64(r.Maxrss), nil //nolint:unconvert // 32 bits wide on some systems
}

// child runs a pass in a process of its own, whose memory and CPU time are nobody else's.
func (b *bench) child(ctx context.Context, o order) (usage, error) {
	o.URL, o.Concurrency = b.url, b.concurrency
	text, err := json.Marshal(o)
	if err != nil {
		return usage{}, fmt.Errorf("run a pass: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return usage{}, fmt.Errorf("run a pass: %w", err)
	}
	cmd := exec.CommandContext(ctx, program) //nolint:gosec // this program
	var stdout, stderr bytes.Buffer
	cmd.Env = append(cmd.Environ(), childVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return usage{}, fmt.Errorf("run a pass: %w: %s", err, &stderr)
	}
	var u usage
	if err := json.Unmarshal(stdout.Bytes(), &u); err != nil {
		return usage{}, fmt.Errorf("run a pass: %w", err)
	}
	if u.Processed == 0 {
		return usage{}, fmt.Errorf("run a pass: nothing was processed")
	}
	return u, nil
}
