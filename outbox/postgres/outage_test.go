package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const (
	twoHours   = 30 // passes, four minutes apart
	afterwards = 5  // passes until all has arrived
	perPass    = 4  // events to each destination
	atOnce     = 4
)

// TestAnOutageOfTwoHoursInTheDatabase plays a pass every four minutes, by the database's time: rows and circuits are made
// older by SQL. Each of three destinations is down in turn, in each way to be down.
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
			pool := postgrestest.New(t)
			for _, out := range destinations() {
				t.Run(out, func(t *testing.T) { // one after the other, in one database
					execute(t, pool, `truncate outbox_events, outbox_circuits`)
					playOutage(t, pool, out, failure)
				})
			}
		})
	}
}

func destinations() []string { return []string{"crm", "erp", "mail"} }

// receivers are the destinations, one of which may be out.
type receivers struct {
	mu       sync.Mutex
	out      string // empty: none
	failure  func(ctx context.Context) error
	received map[string]int
	running  int // calls under way
	most     int // of them at once
}

func (r *receivers) handler(destination string) outbox.Handler {
	return outbox.HandlerFunc(func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
		r.mu.Lock()
		r.running++
		r.most = max(r.most, r.running)
		out := r.out == destination
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.running--
		}()
		if out {
			return nil, r.failure(ctx)
		}
		time.Sleep(time.Millisecond) // so that calls overlap where they may
		r.mu.Lock()
		defer r.mu.Unlock()
		r.received[destination]++
		return nil, nil
	})
}

func (r *receivers) count(destination string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received[destination]
}

// recover ends the outage, and counts calls under way from now on: before, some may have been given up by the worker and not
// know it yet.
func (r *receivers) recover() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out, r.most = "", 0
}

// outageWorker delivers to the receivers. It gives all much time but the one that is out.
func outageWorker(t *testing.T, pool *pgxpool.Pool, r *receivers) *outbox.Worker {
	t.Helper()
	registry := outbox.Registry{}
	for _, destination := range destinations() {
		route := outbox.Route{Handler: r.handler(destination), Timeout: 10 * time.Second, Destination: destination}
		if destination == r.out {
			route.Timeout = 100 * time.Millisecond
		}
		registry[destination] = route
	}
	store := &postgres.Store{Pool: pool}
	worker, err := outbox.NewWorker(outbox.Config{Store: store, Circuits: store, Registry: registry, Snooze: time.Minute, Concurrency: atOnce})
	if err != nil {
		t.Fatal(err)
	}
	return worker
}

func playOutage(t *testing.T, pool *pgxpool.Pool, out string, failure func(ctx context.Context) error) {
	r := &receivers{received: map[string]int{}, out: out, failure: failure}
	worker := outageWorker(t, pool, r)
	passes := 0
	pass := func() {
		passes++
		execute(t, pool, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
			select 'order', gen_random_uuid(), d, d || $1::text || '-' || n, '{}'
			from unnest($2::text[]) d, generate_series(1, $3::int) n`, fmt.Sprint(passes), destinations(), perPass)
		if _, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: 40 * time.Second}); err != nil {
			t.Fatalf("pass %d: %v", passes, err)
		}
		for _, destination := range destinations() {
			if got := r.count(destination); destination != out && got != passes*perPass {
				t.Fatalf("%s has %d of %d events after pass %d", destination, got, passes*perPass, passes)
			}
		}
	}
	for range twoHours {
		pass()
		later(t, pool, out)
	}
	if got := r.count(out); got != 0 {
		t.Fatalf("%s received %d events while it was out", out, got)
	}
	r.recover()
	worker = outageWorker(t, pool, r) // a cold one
	for passed := range afterwards {
		before := r.count(out)
		pass()
		if before == 0 && r.count(out) > 0 {
			t.Logf("it received %d events in pass %d after the outage", r.count(out), passed+1)
			drained(t, pool, out)
		}
		later(t, pool, out)
	}
	if r.most < 2 || r.most > atOnce {
		t.Errorf("up to %d calls were under way at once, want several, %d at most", r.most, atOnce)
	}
	nothingLost(t, pool)
	t.Logf("deliveries to %s by the database's time since the first:\n%s", out, histogram(t, pool, out))
}

// later lets four minutes pass; all other destinations' events are over. What was delivered ages too, for the histogram.
func later(t *testing.T, pool *pgxpool.Pool, out string) {
	t.Helper()
	execute(t, pool, `update outbox_events set available_at = available_at - interval '4 minutes', processed_at = processed_at - interval '4 minutes'
		where event_type = $1`, out)
	execute(t, pool, `update outbox_circuits set open_until = open_until - interval '4 minutes', probe_until = probe_until - interval '4 minutes'`)
}

// drained fails if anything is left after the pass whose probe was answered, but for what still waits out a snooze: no more
// than the last probe and what was under way beside it. Such a pass starts nothing once its 40 s are over.
func drained(t *testing.T, pool *pgxpool.Pool, destination string) {
	t.Helper()
	var snoozed, left int
	err := pool.QueryRow(t.Context(), `select count(*) filter (where snoozed), count(*) filter (where not snoozed)
		from (select available_at > now() and metadata ? 'snoozeCount' as snoozed from outbox_events
			where event_type = $1 and status <> 'processed') e`, destination).Scan(&snoozed, &left)
	if err != nil || left != 0 || snoozed > atOnce {
		t.Errorf("after the first pass with an answer %d events are left and %d snoozed, error %v, want none and at most %d", left, snoozed, err, atOnce)
	}
}

func nothingLost(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var discarded, waiting, spent int
	err := pool.QueryRow(t.Context(), `select count(*) filter (where status = 'discarded'), count(*) filter (where status <> 'processed'),
		count(*) filter (where attempts > 1) from outbox_events`).Scan(&discarded, &waiting, &spent)
	if err != nil || discarded != 0 || waiting != 0 {
		t.Errorf("%d events are discarded, %d not processed, error %v, want none", discarded, waiting, err)
	}
	if spent > 8 {
		t.Errorf("%d events have more than one attempt, want only those that opened the circuit", spent)
	}
}

// histogram draws deliveries to a destination by 10 ms from the first on.
func histogram(t *testing.T, pool *pgxpool.Pool, destination string) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `select 10 * floor(extract(epoch from processed_at - min(processed_at) over ()) * 100)::int as ms, count(*)
		from outbox_events where event_type = $1 group by processed_at order by processed_at`, destination)
	if err != nil {
		t.Fatal(err)
	}
	bars := map[int]int{}
	var ms, n int
	if _, err := pgx.ForEachRow(rows, []any{&ms, &n}, func() error {
		bars[ms] += n
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, ms := range slices.Sorted(maps.Keys(bars)) {
		fmt.Fprintf(&lines, "%9v %s\n", time.Duration(ms)*time.Millisecond, strings.Repeat("#", bars[ms]))
	}
	return lines.String()
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
