package limits_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openlup/outbox-dispatch/outbox"
	outboxpostgres "github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// Whatever zone a database, a role or a session is in, every delay is as long as it is in UTC.
func TestTimeZonesChangeNoDelay(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Pacific/Kiritimati", "Pacific/Niue", "Asia/Kathmandu", "UTC"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.URL(t)
			pool := connect(t, url, nil)
			execute(t, pool, "alter database "+scalar[string](t, pool, "select quote_ident(current_database())")+" set timezone = '"+zone+"'")
			pool.Reset()
			if got := scalar[string](t, pool, "show timezone"); got != zone {
				t.Fatalf("the session's zone is %s, want %s", got, zone)
			}
			playTimes(t, pool)
		})
	}
	t.Run("a zone of each session", func(t *testing.T) {
		t.Parallel()
		zones := make(chan string, 100)
		for range cap(zones) / 2 {
			zones <- "Pacific/Kiritimati"
			zones <- "Pacific/Niue"
		}
		playTimes(t, connect(t, postgrestest.URL(t), func(c *pgxpool.Config) {
			c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
				_, err := conn.Exec(ctx, "select set_config('timezone', $1, false)", <-zones)
				return err == nil, err
			}
		}))
	})
}

// delay is what the scenario expects of a time in the database: that it lies so long after the pass.
type delay struct {
	of            string // SQL of a timestamptz
	least, atMost time.Duration
}

// playTimes plays one event of each fate, and looks at each time that the database keeps of it. Every time is measured by the
// database's clock, and compared with how long the pass took by the same clock.
func playTimes(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const clock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
	inserted := scalar[int64](t, pool, clock)
	execute(t, pool, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		select 'order', gen_random_uuid(), k, k, '{}' from unnest(array['ok', 'retry', 'snooze', 'discard']) k`)
	execute(t, pool, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, created_at, available_at)
		values ('order', gen_random_uuid(), 'ok', 'future', '{}', now(), now() + interval '1 hour'),
		       ('order', gen_random_uuid(), 'ok', 'past', '{}', now() - interval '90 minutes', now())`)
	f := &fates{}
	worker := newWorker(t, pool, outbox.Config{Registry: f.registry(), Retention: outbox.Retention{Processed: time.Hour, Discarded: time.Hour}})
	began := scalar[int64](t, pool, clock)
	result := run(t, worker)
	if result.Processed != 2 || result.Retried != 1 || result.Snoozed != 1 || result.Discarded != 1 {
		t.Fatalf("result %+v, want 2 processed, 1 retried, 1 snoozed, 1 discarded", result)
	}
	leased(t, pool)
	took := time.Duration(scalar[int64](t, pool, clock)-began) * time.Microsecond
	row := func(column, key string) string {
		return "(select " + column + " from outbox_events where idempotency_key = '" + key + "')"
	}
	for _, d := range []delay{
		{row("processed_at", "ok"), 0, 0},
		{row("available_at", "retry"), 30 * time.Second, time.Minute},
		{row("available_at", "snooze"), 2 * time.Minute, 2 * time.Minute},
		{"(select open_until from outbox_circuits where key = 'snooze')", 2 * time.Minute, 2 * time.Minute},
		{row("(metadata ->> 'discardedAt')::timestamptz", "discard"), 0, 0},
		{row("outbox_discarded_at(metadata, created_at, available_at)", "discard"), 0, 0},
		{row("available_at", "leased"), 5 * time.Minute, 5 * time.Minute},
	} {
		at := scalar[int64](t, pool, "select (extract(epoch from "+d.of+") * 1000000)::bigint")
		if after := time.Duration(at-began) * time.Microsecond; after < d.least || after > d.atMost+took {
			t.Errorf("%s is %v after the pass began, want %v to %v", d.of, after, d.least, d.atMost+took)
		}
	}
	f.created(t, pool, time.Duration(scalar[int64](t, pool, clock)-inserted)*time.Microsecond)
	if again := run(t, worker); again.Claimed != 0 {
		t.Errorf("a pass right after claimed %d events, want none: nothing is due", again.Claimed)
	}
	laterAll(t, pool, worker, f)
	pruned(t, pool, worker)
}

// leased claims one event as a process that dies then does.
func leased(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	execute(t, pool, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		values ('order', gen_random_uuid(), 'ok', 'leased', '{}')`)
	claim, err := (&outboxpostgres.Store{Pool: pool}).Claim(t.Context(), outbox.ClaimRequest{EventTypes: []string{"ok"}})
	if err != nil || len(claim.Events) != 1 {
		t.Fatalf("claimed %d events, error %v, want 1", len(claim.Events), err)
	}
}

// laterAll lets each delay but the last second of it pass, then that: only then is an event delivered.
func laterAll(t *testing.T, pool *pgxpool.Pool, worker *outbox.Worker, f *fates) {
	t.Helper()
	f.heal()
	execute(t, pool, "select outbox_circuit_reset('snooze')")
	execute(t, pool, "update outbox_events set available_at = now() + interval '5 minutes' where status in ('pending', 'failed', 'processing')")
	if result := run(t, worker); result.Claimed != 0 {
		t.Errorf("a pass before the delays ended claimed %d events, want none", result.Claimed)
	}
	execute(t, pool, "update outbox_events set available_at = now() - interval '1 millisecond' where status in ('pending', 'failed', 'processing')")
	if result := run(t, worker); result.Processed != 4 { // retry, snooze, future, leased
		t.Errorf("a pass after the delays ended delivered %d events, want 4", result.Processed)
	}
}

// pruned makes finished events older, by nearly and by fully the hour for which they are kept.
func pruned(t *testing.T, pool *pgxpool.Pool, worker *outbox.Worker) {
	t.Helper()
	const finished = "select count(*) from outbox_events where status in ('processed', 'discarded')"
	age := func(by string) {
		execute(t, pool, `update outbox_events set created_at = created_at - $1::text::interval, available_at = available_at - $1::text::interval,
			processed_at = processed_at - $1::text::interval, metadata = case when status = 'discarded'
				then metadata || jsonb_build_object('discardedAt', (metadata ->> 'discardedAt')::timestamptz - $1::text::interval) else metadata end`, by)
	}
	before := scalar[int](t, pool, finished)
	age("50 minutes")
	if result := run(t, worker); result.Pruned != 0 {
		t.Errorf("%d events were pruned after 50 minutes, want none: they are kept for an hour", result.Pruned)
	}
	age("10 minutes")
	if result := run(t, worker); result.Pruned != before || before == 0 {
		t.Errorf("%d events were pruned after an hour, want all %d", result.Pruned, before)
	}
}

// fates are handlers, one for each way in which a delivery ends.
type fates struct {
	record
	healed bool
	lock   sync.Mutex
}

func (f *fates) heal() {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.healed = true
}

func (f *fates) registry() outbox.Registry {
	registry := outbox.Registry{}
	for name, fault := range map[string]error{
		"ok": nil, "retry": errors.New("500"), "snooze": outbox.Snooze(errors.New("503"), 2*time.Minute),
		"discard": outbox.Discard(errors.New("410")), "hold": nil,
	} {
		handler := outbox.HandlerFunc(func(ctx context.Context, e outbox.Event) (outbox.Receipt, error) {
			f.lock.Lock()
			healed := f.healed
			f.lock.Unlock()
			if fault != nil && !healed {
				return nil, fault
			}
			return f.Handle(ctx, e)
		})
		registry[name] = outbox.Route{Handler: handler, Timeout: 10 * time.Second, Destination: name}
	}
	return registry
}

// created compares the times that handlers were told with the row's own; since is the time since the insert.
func (f *fates) created(t *testing.T, pool *pgxpool.Pool, since time.Duration) {
	t.Helper()
	ages := map[string]time.Duration{"ok": 0, "past": 90 * time.Minute}
	for _, e := range f.events {
		want := scalar[int64](t, pool, "select (extract(epoch from created_at) * 1000000)::bigint from outbox_events where id = $1::text::uuid", e.ID)
		if got := e.CreatedAt.UnixMicro(); got != want {
			t.Errorf("%s: created at %d µs, want the row's %d", e.IdempotencyKey, got, want)
		}
		if age := ages[e.IdempotencyKey]; e.Age < age || e.Age > age+since {
			t.Errorf("%s: its age is %v, want %v to %v", e.IdempotencyKey, e.Age, age, age+since)
		}
	}
	if len(f.events) != len(ages) {
		t.Errorf("%d events were delivered, want %d", len(f.events), len(ages))
	}
}
