package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// blockedSQL inserts $1 events, ten of an aggregate each, whose first is due after $2 seconds.
const blockedSQL = `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, available_at)
select 'order', md5('blocked ' || n / 10)::uuid, 'order.placed', 'blocked ' || n, '{}',
       case when n % 10 = 0 then now() + make_interval(secs => $2) else now() end
from generate_series(0, $1::int - 1) n order by n`

const oneSQL = `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
values ('order', md5($1)::uuid, 'order.placed', $2, '{}')`

// TestAClaimLooksPastWhatWaits has one event behind so many blocked ones that no claim reads them all, among which
// stands one behind a leased one.
func TestAClaimLooksPastWhatWaits(t *testing.T) {
	t.Parallel()
	a := newAhead(t)
	a.insert(oneSQL, "busy", "leased")
	if got := a.claim(outbox.ClaimRequest{}); len(got.Events) != 1 {
		t.Fatalf("claimed %d events, want the one that is to be leased", len(got.Events))
	}
	a.insert(blockedSQL, 30_000, 86_400)
	a.insert(oneSQL, "busy", "behind it")
	a.insert(oneSQL, "free", "free")

	got := a.claim(outbox.ClaimRequest{})
	if len(got.Events) != 1 || got.Events[0].IdempotencyKey != "free" {
		t.Fatalf("the first claim got %d events, want the free one behind 30,000 that wait", len(got.Events))
	}
	busy := outbox.Aggregate{Type: "order", ID: scalar[string](t, a.pool, "select md5('busy')::uuid::text")}
	if !slices.Contains(got.Leased, busy) {
		t.Errorf("leased lanes %v, want %v among them, a row of which was passed", got.Leased, busy)
	}
}

// hurriedSQL has one event inserted whenever a claim begins to look ahead, as a producer does who is quick.
const hurriedSQL = `
alter function outbox_look_ahead(text[], text[], bigint, jsonb) rename to unhurried;
create function outbox_look_ahead(p_event_types text[], p_passable text[], p_fresh bigint, p_so_far jsonb) returns jsonb
language plpgsql as $$
begin
  insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
  values ('order', gen_random_uuid(), 'order.placed', gen_random_uuid()::text, '{}');
  return unhurried(p_event_types, p_passable, p_fresh, p_so_far);
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
	for name, test := range map[string]struct {
		setup, insert string
		args          []any
		cursor        string
	}{
		"before the first event": {hurriedSQL, dueSQL, []any{5000}, ""},
		"behind very many":       {"", blockedSQL, []any{5000, 86_400}, `{"futile": 3000000000, "tried": 600000000}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAhead(t)
			a.insert(test.setup)
			a.insert(test.insert, test.args...)
			before := scalar[int64](t, a.pool, "select count(*) from outbox_events")
			got := a.claim(outbox.ClaimRequest{Cursor: test.cursor})
			if after := scalar[int64](t, a.pool, "select count(*) from outbox_events"); test.setup != "" && after == before {
				t.Errorf("no look ahead, and so the test proves nothing: %+v", got)
			}
		})
	}
}

// TestWhatWasSeenAheadHoldsAsLongAsItWaits lets the events that block become due after a claim looked past what they
// block: once they are delivered, a reading from the start of the queue finds the others.
func TestWhatWasSeenAheadHoldsAsLongAsItWaits(t *testing.T) {
	t.Parallel()
	a := newAhead(t)
	a.insert(blockedSQL, 6000, 4)
	first := a.claim(outbox.ClaimRequest{})
	if !first.End || len(first.Events) > 0 {
		t.Fatalf("claimed %d events, end %v: want none, and the end", len(first.Events), first.End)
	}
	for !scalar[bool](t, a.pool, "select max(available_at) <= now() from outbox_events") {
		time.Sleep(100 * time.Millisecond)
	}
	cursor, delivered := first.Cursor, 0
	for range 10 {
		got := a.claim(outbox.ClaimRequest{Cursor: cursor, Again: true})
		cursor, delivered = got.Cursor, delivered+len(got.Events)
		a.deliver(got.Events)
	}
	if delivered != 6000 {
		t.Errorf("ten claims from the start, once the rows were due, got %d events, want all 6,000", delivered)
	}
}

type ahead struct {
	*testing.T
	pool  *pgxpool.Pool
	store *postgres.Store
}

func newAhead(t *testing.T) *ahead {
	t.Helper()
	pool := postgrestest.New(t)
	return &ahead{t, pool, &postgres.Store{Pool: pool}}
}

func (a *ahead) insert(sql string, args ...any) {
	a.Helper()
	if _, err := a.pool.Exec(a.Context(), sql, args...); err != nil {
		a.Fatalf("insert: %v", err)
	}
}

func (a *ahead) claim(req outbox.ClaimRequest) outbox.Claim {
	a.Helper()
	req.EventTypes, req.BatchSize, req.LaneDepth = []string{"order.placed"}, 1000, 10
	req.Visibility, req.MaxAttempts = 5*time.Minute, 8
	got, err := a.store.Claim(a.Context(), req)
	if err != nil {
		a.Fatalf("claim: %v", err)
	}
	return got
}

func (a *ahead) deliver(events []outbox.Event) {
	a.Helper()
	done := make([]outbox.Settlement, 0, len(events))
	for _, e := range events {
		done = append(done, outbox.Settlement{EventID: e.ID, ClaimToken: e.ClaimToken(), Outcome: outbox.Processed})
	}
	if _, err := a.store.Settle(a.Context(), done, outbox.Backoff{}); err != nil {
		a.Fatalf("settle: %v", err)
	}
}

// othersSQL inserts $1 events that others deliver, of aggregates behind all of ours.
const othersSQL = `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
select 'parcel', md5('other ' || n / 3)::uuid, 'parcel.sent', 'other ' || n, '{}' from generate_series(0, $1::int - 1) n`

// countedSQL ends a look ahead at its second portion, instead of after a second.
const countedSQL = `
do $do$ begin
  create sequence portions;
  execute replace(pg_get_functiondef('outbox_look_ahead'::regproc), 'clock_timestamp() > c_until', $$nextval('portions') > 1$$);
end $do$`

// TestLookingAheadIsBoundedWhateverItPasses has it read thousands of others' events, which must count like its own.
func TestLookingAheadIsBoundedWhateverItPasses(t *testing.T) {
	t.Parallel()
	a := newAhead(t)
	a.insert(blockedSQL, 100, 86_400)
	a.insert(othersSQL, 6000)
	const ahead = `select (outbox_look_ahead('{order.placed}', '{parcel.sent}', 0, '{}') ->> 'done')::boolean`
	if !scalar[bool](t, a.pool, ahead) {
		t.Error("100 blocked events among 6,000 of others are not looked past at once")
	}
	a.insert(countedSQL)
	if scalar[bool](t, a.pool, ahead) {
		t.Error("6,000 events of others were read in a single portion, which nothing bounds")
	}
}
