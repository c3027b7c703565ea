package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// blockedSQL inserts $1 events, ten of an aggregate each, whose first is not due today.
const blockedSQL = `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, available_at)
select 'order', md5('blocked ' || n / 10)::uuid, 'order.placed', 'blocked ' || n, '{}',
       case when n % 10 = 0 then now() + interval '1 day' else now() end
from generate_series(0, $1::int - 1) n order by n`

const oneSQL = `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
values ('order', md5($1)::uuid, 'order.placed', $2, '{}')`

// TestAClaimLooksPastWhatWaits has one event behind so many blocked ones that no claim reads them all, among which
// stands one behind a leased one.
func TestAClaimLooksPastWhatWaits(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	insert := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("insert: %v", err)
		}
	}
	store := &postgres.Store{Pool: pool}
	claim := func(cursor string) outbox.Claim {
		t.Helper()
		got, err := store.Claim(t.Context(), outbox.ClaimRequest{
			EventTypes: []string{"order.placed"}, BatchSize: 10, LaneDepth: 10, Visibility: 5 * time.Minute, MaxAttempts: 8, Cursor: cursor,
		})
		if err != nil {
			t.Fatalf("claim: %v", err)
		}
		return got
	}
	insert(oneSQL, "busy", "leased")
	if got := claim(""); len(got.Events) != 1 {
		t.Fatalf("claimed %d events, want the one that is to be leased", len(got.Events))
	}
	insert(blockedSQL, 30_000)
	insert(oneSQL, "busy", "behind it")
	insert(oneSQL, "free", "free")

	got := claim("")
	if len(got.Events) != 1 || got.Events[0].IdempotencyKey != "free" {
		t.Fatalf("the first claim got %d events, want the free one behind 30,000 that wait", len(got.Events))
	}
	busy := outbox.Aggregate{Type: "order", ID: scalar[string](t, pool, "select md5('busy')::uuid::text")}
	if !slices.Contains(got.Leased, busy) {
		t.Errorf("leased lanes %v, want %v among them, a row of which was passed", got.Leased, busy)
	}
}

// hurriedSQL has one event inserted whenever a claim begins to look ahead, as a producer does who is quick.
const hurriedSQL = `
alter function outbox_look_ahead(text[], text[], bigint) rename to unhurried;
create function outbox_look_ahead(p_event_types text[], p_passable text[], p_fresh bigint,
  out place bigint, out sure bigint, out waits_until timestamptz, out types text[], out ids uuid[])
language plpgsql as $$
begin
  insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
  values ('order', gen_random_uuid(), 'order.placed', gen_random_uuid()::text, '{}');
  select * into place, sure, waits_until, types, ids from unhurried(p_event_types, p_passable, p_fresh);
end
$$`

// dueSQL inserts $1 failed events of twenty aggregates, all due but the first of each.
const dueSQL = `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, attempts, available_at)
select 'order', md5('due ' || n % 20)::uuid, 'order.placed', 'due ' || n, '{}', 'failed', 1,
       case when n < 20 then now() + interval '1 day' else now() end
from generate_series(0, $1::int - 1) n order by n`

// TestLookingAheadCountsAsFarAsItMust has claims look ahead where numbers are largest: from before the first fresh event,
// which comes just then, and behind more events than a pass reads in an hour.
func TestLookingAheadCountsAsFarAsItMust(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ setup, insert, cursor string }{
		"before the first event": {hurriedSQL, dueSQL, ""},
		"behind very many":       {"", blockedSQL, `{"futile": 3000000000, "tried": 600000000}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := postgrestest.New(t)
			if _, err := pool.Exec(t.Context(), test.setup); err != nil {
				t.Fatalf("set up: %v", err)
			}
			if _, err := pool.Exec(t.Context(), test.insert, 5000); err != nil {
				t.Fatalf("insert: %v", err)
			}
			before := scalar[int64](t, pool, "select count(*) from outbox_events")
			got, err := (&postgres.Store{Pool: pool}).Claim(t.Context(), outbox.ClaimRequest{
				EventTypes: []string{"order.placed"}, BatchSize: 10, LaneDepth: 10, Visibility: 5 * time.Minute, MaxAttempts: 8, Cursor: test.cursor,
			})
			if err != nil {
				t.Fatalf("claim: %v", err)
			}
			if after := scalar[int64](t, pool, "select count(*) from outbox_events"); test.setup != "" && after == before {
				t.Errorf("no look ahead, and so the test proves nothing: %+v", got)
			}
		})
	}
}
