package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// setting opens a pool on a fresh database that has a setting of its own.
func setting(t *testing.T, mode pgx.QueryExecMode, assignment string) *pgxpool.Pool {
	t.Helper()
	url := postgrestest.URL(t)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = mode
	admin, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(t.Context(), "alter database "+config.ConnConfig.Database+" set "+assignment); err != nil {
		t.Fatal(err)
	}
	_ = admin.Close(t.Context())
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestPassesUnderOddSettings(t *testing.T) {
	t.Parallel()
	for _, assignment := range []string{
		"datestyle = 'German, DMY'", "datestyle = 'SQL, DMY'", "timezone = 'Africa/Monrovia'", "array_nulls = off",
		"default_transaction_isolation = 'repeatable read'", "default_transaction_isolation = 'serializable'",
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
			t.Run(assignment+", "+mode.String(), func(t *testing.T) {
				t.Parallel()
				pool := setting(t, mode, assignment)
				insertEvents(t, pool, 300, 60)
				var got deliveries
				var passes sync.WaitGroup
				for range 2 {
					passes.Go(func() {
						if _, err := newWorker(t, pool, &got).Run(t.Context(), outbox.Pass{}); err != nil {
							t.Errorf("run: %v", err)
						}
					})
				}
				passes.Wait()
				got.check(t, 300)
				if n := scalar[int](t, pool, "select count(*) from outbox_events where status = 'processed'"); n != 300 {
					t.Errorf("%d rows are processed, want 300", n)
				}
			})
		}
	}
}

func TestOneUnreadableEventStopsNoOther(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	// A few kilobytes that stand for more text than a value may hold.
	const bomb = `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		values ('order', gen_random_uuid(), 'order.placed', 'bomb', ('[' || repeat('1e131071,', 9000) || '1]')::jsonb)`
	if _, err := pool.Exec(t.Context(), bomb); err != nil {
		t.Fatal(err)
	}
	insertEvents(t, pool, 30, 30)
	var got deliveries
	result, err := newWorker(t, pool, &got).Run(t.Context(), outbox.Pass{})
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	got.check(t, 30)
	if result.Processed != 30 {
		t.Errorf("%d processed, want 30", result.Processed)
	}
	if reason := scalar[string](t, pool, "select status || ' ' || attempts || ' ' || error from outbox_events where idempotency_key = 'bomb'"); reason != "failed 1 payload_unreadable" {
		t.Errorf("the unreadable event is %q, want it retried with its reason", reason)
	}
}

func TestInfiniteTimesAreDelivered(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	insertEvents(t, pool, 10, 10)
	if _, err := pool.Exec(t.Context(), "update outbox_events set created_at = case when position % 2 = 0 then 'infinity' else '-infinity' end::timestamptz, available_at = '-infinity'"); err != nil {
		t.Fatal(err)
	}
	var got deliveries
	if _, err := newWorker(t, pool, &got).Run(t.Context(), outbox.Pass{}); err != nil {
		t.Fatalf("run: %v", err)
	}
	got.check(t, 10)
}

func TestOneLockedRowKeepsNoAcknowledgementBack(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	insertEvents(t, pool, 20, 20)
	store := &postgres.Store{Pool: pool}
	claim, err := store.Claim(t.Context(), outbox.ClaimRequest{EventTypes: []string{"order.placed"}})
	events := claim.Events
	if err != nil || len(events) != 20 {
		t.Fatalf("claimed %d, error %v, want 20", len(events), err)
	}
	var batch []outbox.Settlement
	for _, e := range events {
		batch = append(batch, outbox.Settlement{EventID: e.ID, ClaimToken: e.ClaimToken(), Outcome: outbox.Processed})
	}
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "select 1 from outbox_events where id = $1 for update", events[3].ID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	answers, err := store.Settle(ctx, batch, outbox.Backoff{})
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	for i, answer := range answers {
		want := outbox.AnswerProcessed
		if i == 3 {
			want = outbox.Missed
		}
		if answer != want {
			t.Errorf("event %d was answered %s, want %s", i, answer, want)
		}
	}
	// A lock that ends soon costs nothing.
	release := time.AfterFunc(300*time.Millisecond, func() { _ = lock.Rollback(context.WithoutCancel(ctx)) })
	defer release.Stop()
	if answers, err = store.Settle(ctx, batch[3:4], outbox.Backoff{}); err != nil || answers[0] != outbox.AnswerProcessed {
		t.Errorf("after the lock the answer is %v, error %v, want processed", answers, err)
	}
}
