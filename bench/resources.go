package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// memory measures the peak of the resident memory of a pass over a deep backlog of big payloads.
func (b *bench) memory(ctx context.Context) error {
	n := b.events * 10
	// 4 KiB of text are what a pass holds, while compression, done once, keeps the table small.
	built := fmt.Sprintf("jsonb_build_object('text', repeat('x', %d))", payloadText)
	big := "create table big as select jsonb_build_object('text', repeat('x', 4096)) as payload;" +
		strings.Replace(fill(n, spread), built, "(select payload from big)", 1)
	original, err := b.rows(ctx, big)
	if err != nil {
		return err
	}
	return b.use(ctx, original, func(db *database) error {
		u, err := b.child(ctx, order{Database: db.name, Batch: claimSize, Limit: 2 * b.passTime})
		if err != nil {
			return err
		}
		b.goal(figure{Name: "memory", Value: float64(u.Peak) / 1e6, Unit: "MB"}, atMost(96))
		b.add(figure{Name: "memory_events", Value: float64(u.Processed), Unit: "events of " + sizeName(n)})
		return nil
	})
}

// What AWS asks for Lambda on arm64 in us-east-1, first tier, as others quoted it in November 2026 (check it at
// https://aws.amazon.com/lambda/pricing); and what it gives for it: a CPU's share follows the memory.
const (
	dollarsPerGBSecond = 0.0000133334
	dollarsPerRequest  = 0.20 / 1e6
	megabytesPerCPU    = 1769
	secondsPerRequest  = 60 // one invocation a minute, each as long as there is work
)

// cost measures the time of a pass whose handlers take 20 ms, and what it would cost on Lambda.
//
// A pass takes as long as it waits plus as long as it computes. The smaller function gets a share of a CPU, so the
// computing is stretched by that share, and counted in full as if nothing of it fell into the waiting: more than a real
// function would need. A CPU of this machine is taken for one of Lambda's.
func (b *bench) cost(ctx context.Context) error {
	n := max(b.events*3/10, 1)
	original, err := b.backlog(ctx, n)
	if err != nil {
		return err
	}
	var cpu, took float64
	contenders := []contender{{"pass", func(ctx context.Context) (float64, error) {
		var u usage
		err := b.use(ctx, original, func(db *database) (err error) {
			u, err = b.child(ctx, order{Database: db.name, Batch: b.batch, Work: slowWork, Limit: 2 * b.passTime})
			return err
		})
		if err != nil {
			return 0, err
		}
		took += perMillion(u.Took, u.Processed)
		cpu += perMillion(u.CPU, u.Processed)
		return perMillion(u.Took, u.Processed), nil
	}}}
	if _, err := medians(ctx, b.rounds, contenders); err != nil {
		return err
	}
	took, cpu = took/float64(b.rounds), cpu/float64(b.rounds)
	b.add(figure{Name: "cost_pass_seconds", Value: took, Unit: "s per million events"})
	b.add(figure{Name: "cost_cpu_seconds", Value: cpu, Unit: "s per million events"})
	for _, megabytes := range []int{256, 512} {
		seconds, dollars := lambdaCost(took, cpu, megabytes)
		b.add(figure{Name: fmt.Sprintf("cost_%d_gb_seconds", megabytes), Value: seconds * float64(megabytes) / 1024, Unit: "GB-s per million events"})
		b.add(figure{Name: fmt.Sprintf("cost_%d", megabytes), Value: dollars, Unit: "USD per million events"})
	}
	return nil
}

func perMillion(d time.Duration, events int) float64 { return d.Seconds() * 1e6 / float64(events) }

// lambdaCost returns how long a function of that memory would run for what took so many seconds and CPU seconds here,
// and its price.
func lambdaCost(took, cpu float64, megabytes int) (seconds, dollars float64) {
	share := min(float64(megabytes)/megabytesPerCPU, 1)
	seconds = took + cpu*(1/share-1)
	return seconds, seconds*float64(megabytes)/1024*dollarsPerGBSecond + seconds/secondsPerRequest*dollarsPerRequest
}
