package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// insertHistory inserts n finished events, one a minute and the last one a minute ago, one of 50 discarded, and n/100
// pending ones between them.
func insertHistory(tb testing.TB, pool *pgxpool.Pool, n int) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, created_at, available_at,
  processed_at, metadata)
select 'order', md5((n % 1000)::text)::uuid, 'order.placed', n::text, '{}', status, at, at, case when status = 'processed' then at end,
  case when status = 'discarded' then jsonb_build_object('discardedAt', at) else '{}' end
from (select n, now() - make_interval(mins => $1 - n + 1) as at,
        case when n % 100 = 7 then 'pending' when n % 50 = 3 then 'discarded' else 'processed' end as status
      from generate_series(1, $1::int) n) r order by n`, n); err != nil {
		tb.Fatalf("insert history: %v", err)
	}
}

// pruneCost prunes and returns how many rows went and how many pages were touched.
func pruneCost(t *testing.T, pool *pgxpool.Pool, arguments string) (pruned, pages int) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// Twice: the first call of a session reads the catalog.
	before := scalar[int](t, pool, `select count(*) from outbox_events`)
	for range 2 {
		var text string
		if err := conn.QueryRow(t.Context(), `explain (analyze, buffers, format json) select outbox_prune(`+arguments+`)`).Scan(&text); err != nil {
			t.Fatal(err)
		}
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			} `json:"Plan"`
		}
		if err := json.Unmarshal([]byte(text), &plans); err != nil || len(plans) != 1 {
			t.Fatalf("plan %s: %v", text, err)
		}
		after := scalar[int](t, pool, `select count(*) from outbox_events`)
		pruned, pages, before = before-after, plans[0].Plan.Hit+plans[0].Plan.Read, after
	}
	return pruned, pages
}

func TestCostOfPruningDoesNotFollowTheHistory(t *testing.T) {
	t.Parallel()
	for _, history := range []int{5_000, 50_000} {
		for name, statistics := range map[string]string{"fresh": "analyze outbox_events", "none": "select 1"} {
			t.Run(fmt.Sprintf("%d rows, statistics %s", history, name), func(t *testing.T) {
				t.Parallel()
				pool := postgrestest.New(t)
				insertHistory(t, pool, history)
				if _, err := pool.Exec(t.Context(), statistics); err != nil {
					t.Fatal(err)
				}
				for _, c := range []struct {
					arguments     string
					pruned, pages int
				}{
					// 600 discarded rows are looked at in vain, a tenth of which fit a page.
					{`'60 days', '60 days', 100`, 0, 700},
					{`null, null, 100`, 0, 700},
					{`'10 years', null, 100`, 0, 700},
					{`'0', '0', 100`, 100, 100 * 10},
					{`'0', '0', 500`, 500, 500 * 8},
					{`null, '0', 20`, 20, 20 * 10},
				} {
					if pruned, pages := pruneCost(t, pool, c.arguments); pruned != c.pruned || pages > c.pages {
						t.Errorf("outbox_prune(%s) pruned %d and touched %d pages, want %d and at most %d",
							c.arguments, pruned, pages, c.pruned, c.pages)
					}
				}
				if n := scalar[int](t, pool, `select count(*) from outbox_events where status = 'pending'`); n != history/100 {
					t.Errorf("%d pending events are left, want all %d", n, history/100)
				}
			})
		}
	}
}

// TestPruningKeepsClaimsHeapOnly: an index that followed what a claim writes would make every claim write all indexes.
func TestPruningKeepsClaimsHeapOnly(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	columns := scalar[[]string](t, pool, `
select array(select distinct a.attname::text
from pg_index i join pg_attribute a on a.attrelid = i.indrelid
where i.indrelid = 'outbox_events'::regclass
  and a.attname in ('status', 'attempts', 'available_at', 'metadata', 'error')
  and (a.attnum = any (i.indkey) or pg_get_indexdef(i.indexrelid) ~ ('\m' || a.attname || '\M')))`)
	if len(columns) > 0 {
		t.Errorf("indexes read %v, which claims write", columns)
	}
}

func TestPruneRefusesNegativeAges(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	insertHistory(t, pool, 100)
	for _, arguments := range []string{`'-1 second'`, `null, '-1 day'`} {
		var refusal *pgconn.PgError
		if _, err := pool.Exec(t.Context(), `select outbox_prune(`+arguments+`)`); !errors.As(err, &refusal) ||
			refusal.Message != "outbox_prune_invalid_input" || refusal.Code != "22023" {
			t.Errorf("outbox_prune(%s): error %v, want outbox_prune_invalid_input", arguments, err)
		}
	}
}

func TestPruneSkipsWhatSomebodyElseHolds(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	insertHistory(t, pool, 100)
	store := &postgres.Store{Pool: pool}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	var id string
	if err := tx.QueryRow(t.Context(), `
update outbox_events set status = 'pending' where idempotency_key = '3' returning id::text`).Scan(&id); err != nil { // discarded before
		t.Fatal(err)
	}
	all := outbox.Retention{Processed: outbox.PruneAtOnce, Discarded: outbox.PruneAtOnce}
	if n, err := store.Prune(t.Context(), all, 0); err != nil || n != 98 {
		t.Errorf("pruned %d, %v, want the 98 finished events that nobody holds", n, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := store.Prune(t.Context(), all, 0); err != nil || n != 0 {
		t.Errorf("pruned %d, %v, want none of the two unfinished events", n, err)
	}
	if n := scalar[int](t, pool, `select count(*) from outbox_events where status = 'pending'`); n != 2 {
		t.Errorf("%d pending events are left, want 2", n)
	}
}

// TestPruneAgainstRedrive delivers finished events again while others prune: each goes or is delivered again, never both.
func TestPruneAgainstRedrive(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	const events = 400
	if _, err := pool.Exec(t.Context(), `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, created_at, metadata)
select 'order', gen_random_uuid(), 'order.placed', n::text, '{}', 'discarded', now() - interval '1 hour', '{"discardedAt": "2020-01-01T00:00:00+00:00"}'
from generate_series(1, $1::int) n`, events); err != nil {
		t.Fatal(err)
	}
	store := &postgres.Store{Pool: pool}
	var group sync.WaitGroup
	var redriven, pruned int64
	group.Go(func() {
		for n := range events / 2 {
			tag, err := pool.Exec(t.Context(), `update outbox_events set status = 'pending', attempts = 0 where idempotency_key = $1 and status = 'discarded'`,
				fmt.Sprint((n*7919)%events+1))
			if err != nil {
				t.Errorf("redrive: %v", err)
			}
			redriven += tag.RowsAffected()
		}
	})
	group.Go(func() {
		for range events / 5 {
			n, err := store.Prune(t.Context(), outbox.Retention{Discarded: time.Minute}, 5)
			if err != nil {
				t.Errorf("prune: %v", err)
			}
			pruned += int64(n)
		}
	})
	group.Wait()
	n, err := store.Prune(t.Context(), outbox.Retention{Discarded: time.Minute}, 0)
	if err != nil {
		t.Fatal(err)
	}
	pruned += int64(n)
	left := scalar[int64](t, pool, `select count(*) from outbox_events where status = 'pending'`)
	if all := scalar[int64](t, pool, `select count(*) from outbox_events`); left != redriven || all != left || pruned+redriven != events {
		t.Errorf("%d events were redriven, %d pruned, %d are left and %d pending, want %d in all and each redriven one there",
			redriven, pruned, all, left, events)
	}
	t.Logf("%d redriven, %d pruned", redriven, pruned)
}

func TestPassPrunes(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	insertHistory(t, pool, 3000)
	store := &postgres.Store{Pool: pool}
	var got deliveries
	worker, err := outbox.NewWorker(outbox.Config{
		Store: store, Pruner: store, Retention: outbox.Retention{Processed: 24 * time.Hour, Discarded: 36 * time.Hour},
		Registry: outbox.Registry{"order.placed": {Handler: &got, Timeout: 2 * time.Second}}, BatchSize: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	got.check(t, 30)
	old := scalar[int](t, pool, `select count(*) from outbox_events where processed_at < now() - interval '24 hours'
		or (status = 'discarded' and (metadata ->> 'discardedAt')::timestamptz < now() - interval '36 hours')`)
	// 1,560 minutes are older than 24 h, 840 older than 36 h; in each hundred 97 are processed, two discarded.
	if want := 1513 + 17; result.Pruned < want-5 || result.Pruned > want+5 || old != 0 {
		t.Errorf("%d pruned, want some %d; %d old ones are left", result.Pruned, want, old)
	}
}
