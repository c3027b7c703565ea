package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// TestAnOutageOfTwoHoursInTheDatabase plays a pass every four minutes, by the database's time: rows and circuits are made
// older by SQL. One of three destinations is down, in each way to be down.
func TestAnOutageOfTwoHoursInTheDatabase(t *testing.T) {
	t.Parallel()
	for kind, failure := range map[string]func(ctx context.Context) error{
		"503":             func(context.Context) error { return outbox.Snooze(errors.New("503"), time.Minute) },
		"503 Retry-After": func(context.Context) error { return outbox.Snooze(errors.New("503"), 2*time.Minute) },
		"500":             func(context.Context) error { return errors.New("500") },
		"401":             func(context.Context) error { return errors.New("401") },
		"refused":         func(context.Context) error { return errors.New("connection refused") },
		"timeout": func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			playOutage(t, failure)
		})
	}
}

// receivers are three destinations; crm may be out.
type receivers struct {
	mu       sync.Mutex
	failure  func(ctx context.Context) error // nil: crm is up
	received map[string][]time.Time
}

func (r *receivers) handler(destination string) outbox.Handler {
	return outbox.HandlerFunc(func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
		r.mu.Lock()
		failure := r.failure
		r.mu.Unlock()
		if destination == "crm" && failure != nil {
			return nil, failure(ctx)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.received[destination] = append(r.received[destination], time.Now())
		return nil, nil
	})
}

func (r *receivers) count(destination string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.received[destination])
}

func playOutage(t *testing.T, failure func(ctx context.Context) error) {
	const outage, recovery, perPass = 30, 5, 4
	pool := postgrestest.New(t)
	r := &receivers{received: map[string][]time.Time{}, failure: failure}
	registry := outbox.Registry{}
	for _, destination := range []string{"crm", "erp", "mail"} {
		registry[destination] = outbox.Route{Handler: r.handler(destination), Timeout: 100 * time.Millisecond, Destination: destination}
	}
	store := &postgres.Store{Pool: pool}
	worker, err := outbox.NewWorker(outbox.Config{Store: store, Circuits: store, Registry: registry, Snooze: time.Minute, Concurrency: 4})
	if err != nil {
		t.Fatal(err)
	}
	passes := 0
	pass := func() {
		passes++
		execute(t, pool, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
			select 'order', gen_random_uuid(), d, d || $1::text || '-' || n, '{}'
			from unnest(array['crm', 'erp', 'mail']) d, generate_series(1, $2::int) n`, fmt.Sprint(passes), perPass)
		if _, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: 30 * time.Second}); err != nil {
			t.Fatalf("pass %d: %v", passes, err)
		}
		for _, destination := range []string{"erp", "mail"} {
			if got := r.count(destination); got != passes*perPass {
				t.Fatalf("%s has %d of %d events after pass %d", destination, got, passes*perPass, passes)
			}
		}
		execute(t, pool, `update outbox_events set available_at = available_at - interval '4 minutes' where status <> 'processed'`)
		execute(t, pool, `update outbox_circuits set open_until = open_until - interval '4 minutes', probe_until = probe_until - interval '4 minutes'`)
	}
	for range outage {
		pass()
	}
	r.mu.Lock()
	r.failure = nil
	r.mu.Unlock()
	for range recovery {
		pass()
	}
	var discarded, waiting, spent int
	err = pool.QueryRow(t.Context(), `select count(*) filter (where status = 'discarded'), count(*) filter (where status <> 'processed'),
		count(*) filter (where attempts > 1) from outbox_events`).Scan(&discarded, &waiting, &spent)
	if err != nil || discarded != 0 || waiting != 0 {
		t.Errorf("%d events are discarded, %d not processed, error %v, want none", discarded, waiting, err)
	}
	if spent > 8 {
		t.Errorf("%d events have more than one attempt, want only those that opened the circuit", spent)
	}
	t.Logf("%d events came after the outage:\n%s", r.count("crm"), histogram(r.received["crm"]))
}

// histogram draws deliveries by 10 ms from the first on, for as long as there are any.
func histogram(times []time.Time) string {
	bars := map[time.Duration]int{}
	last := time.Duration(0)
	for _, at := range times {
		bucket := at.Sub(times[0]).Truncate(10 * time.Millisecond)
		bars[bucket]++
		last = max(last, bucket)
	}
	var lines strings.Builder
	for bucket := time.Duration(0); bucket <= last && bucket < time.Second; bucket += 10 * time.Millisecond {
		if bars[bucket] > 0 {
			fmt.Fprintf(&lines, "%6v %s\n", bucket, strings.Repeat("#", bars[bucket]))
		}
	}
	return lines.String()
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
