//go:build soak && linux

package limits_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"

	"github.com/openlup/outbox-dispatch/internal/stack/dispatchtest"
)

// A million events wait, most of them small, some big, and the big ones together. The function delivers all of them, and its
// memory stays well under the 256 MB that the template gives it.
func TestSoakAMillionEventsInTwoHundredFiftySixMegabytes(t *testing.T) {
	t.Parallel()
	n := number(t, "SOAK_BACKLOG", 1_000_000)
	url := postgrestest.URL(t)
	w := dispatchtest.New(t, url)
	start := time.Now()
	w.Exec(`create table sizes as select jsonb_build_object('text', repeat('x', 1000000)) as big,
		jsonb_build_object('text', repeat('x', 10000)) as middle, jsonb_build_object('text', repeat('x', 200)) as small`)
	w.Exec(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		select 'order', md5((n % $2::int)::text)::uuid, 'order.placed', n::text,
		       case when n % 20000 < 20 then (select big from sizes) when n % 100 = 0 then (select middle from sizes) else (select small from sizes) end
		from generate_series(1, $1::int) n order by n`, n, n/5)
	w.Exec("vacuum analyze outbox_events")
	filled := time.Since(start)
	f := w.Function(120*time.Second, "DATABASE_URL="+url, "OUTBOX_BATCH_SIZE=1000", "OUTBOX_CONCURRENCY=64", "GOMEMLIMIT=")
	var ledger strings.Builder
	start = time.Now()
	var peak int64
	for pass, left := 1, n; left > 0 && pass <= 100; pass++ {
		r := w.Dispatch(f)
		var err error
		if peak, err = f.Peak(); err != nil {
			t.Fatal(err)
		}
		left -= r.Processed
		fmt.Fprintf(&ledger, "%4d %9d %9d %6d\n", pass, r.Processed, left, peak>>20)
		if r.Processed == 0 || r.Retried+r.Snoozed+r.Discarded > 0 {
			t.Fatalf("pass %d: %s", pass, r.Raw)
		}
	}
	drained := time.Since(start)
	w.Arrived(n)
	if got := w.Hook.Repeated(); got > 0 {
		t.Errorf("%d deliveries came twice, want none", got)
	}
	if peak > 200<<20 {
		t.Errorf("the function's memory had a peak of %d MB, want at most 200 of the 256 it has", peak>>20)
	}
	t.Logf("the ledger\npass processed      left peak MB\n%s%d events written in %.0f s, delivered in %.0f s; 0 came twice, 0 out of order",
		&ledger, n, filled.Seconds(), drained.Seconds())
}
