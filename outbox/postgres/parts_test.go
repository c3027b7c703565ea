package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// customers is a destination with a place for each aggregate type.
type customers struct {
	mu    sync.Mutex
	out   map[string]error
	calls map[string]int
}

func (c *customers) Handle(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[event.AggregateType]++
	return outbox.Receipt{}, c.out[event.AggregateType]
}

// TestThousandsOfPartsInPostgreSQL: one place is down and one waits for an operator. Each has a circuit of its own, of which
// other workers know, and which one event at a time probes; all the others notice nothing.
func TestThousandsOfPartsInPostgreSQL(t *testing.T) {
	t.Parallel()
	const places = 2000
	pool := postgrestest.New(t)
	c := &customers{calls: map[string]int{}, out: map[string]error{
		"c7": outbox.Snooze(errors.New("http_503"), 0), "c8": outbox.Snooze(errors.New("endpoint_disabled: c8"), 0),
	}}
	pass := func() outbox.Result {
		t.Helper()
		c.calls = map[string]int{}
		return runParts(t, pool, c)
	}
	insert := func(round int) {
		t.Helper()
		execute(t, pool, fmt.Sprintf(`
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
select 'c' || n %% %d, md5(n || ' %d')::uuid, 'order.placed', n || ' %[2]d', '{}' from generate_series(1, %[1]d * 2) n order by n`, places, round))
	}
	later := func() { // the circuits' and the snoozed rows' times are over
		execute(t, pool, `update outbox_circuits set open_until = now() where open_until is not null and mode = 'auto';
update outbox_events set available_at = now() where status = 'failed'`)
	}
	insert(1)
	if got := pass(); got.Processed != 2*(places-2) || got.Snoozed != 4 || got.Retried+got.Discarded != 0 {
		t.Errorf("the first pass: %+v, want all but four delivered", got)
	}
	open := scalar[string](t, pool, `select string_agg(key, ' ' order by key) from outbox_circuit_states where state <> 'closed'`)
	if open != "hooks/c7 hooks/c8" {
		t.Errorf("open circuits: %s, want hooks/c7 hooks/c8", open)
	}
	insert(2)
	if got := pass(); got.Processed != 2*(places-2) || c.calls["c7"]+c.calls["c8"] != 0 {
		t.Errorf("while both are open: %+v, and %d calls, want the others delivered and no call", got, c.calls["c7"]+c.calls["c8"])
	}
	later()
	if got := pass(); c.calls["c7"] != 1 || c.calls["c8"] != 1 || got.Processed != 0 {
		t.Errorf("when both are due: %d and %d calls, want one probe each", c.calls["c7"], c.calls["c8"])
	}
	delete(c.out, "c7")
	for range 3 { // what was put back while the probe was under way comes with the next pass
		later()
		pass()
	}
	left := scalar[string](t, pool, `
select string_agg(aggregate_type || ' ' || status || ' ' || attempts || ' ' || coalesce(metadata ->> 'snoozeCount', '-'), ', ' order by position)
from outbox_events where status <> 'processed'`)
	for row := range strings.SplitSeq(left, ", ") {
		var name, status string
		var attempts, snoozes int
		if _, err := fmt.Sscan(row, &name, &status, &attempts, &snoozes); err != nil || name != "c8" || status != "failed" || attempts != 0 || snoozes > 1 {
			t.Errorf("left is %q (%v), want rows of c8, not charged, and snoozed once at most", row, err)
		}
	}
	if n := scalar[int](t, pool, `select count(*) from outbox_events where status <> 'processed'`); n != 4 {
		t.Errorf("%d rows are left, want the 4 of c8", n)
	}
}

// runParts runs a pass whose destination has many parts.
func runParts(t *testing.T, pool *pgxpool.Pool, c *customers) outbox.Result {
	t.Helper()
	store := &postgres.Store{Pool: pool}
	var lines strings.Builder
	worker, err := outbox.NewWorker(outbox.Config{
		Store: store, Circuits: store, BatchSize: 200, Concurrency: 4, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
		Registry: outbox.Registry{"order.placed": {
			Handler: c, Destination: "hooks", Part: func(event outbox.Event) string { return event.AggregateType },
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := worker.Run(t.Context(), outbox.Pass{})
	if err != nil || lines.Len() > 0 {
		t.Fatalf("error %v, log %s", err, lines.String())
	}
	return result
}
