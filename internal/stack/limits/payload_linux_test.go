package limits_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"

	"github.com/openlup/outbox-dispatch/internal/stack/dispatchtest"
)

// A payload is never cut, whatever its size. What does not compress is the worst case for the database.
func TestAPayloadOfTenMegabytes(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	w := dispatchtest.New(t, url)
	r := newReceiver(t)
	w.Exec(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		select 'order', gen_random_uuid(), 'order.placed', n::text, case when n % 5 > 0 then '{}' else
			(select jsonb_build_object('text', string_agg(sha512((n * 1e6 + m)::text::bytea)::text, '')) from generate_series(1, 80000) m) end
		from generate_series(1, 20) n order by n`)
	if least := scalar[int](t, w.Pool, "select min(length(payload::text)) from outbox_events where length(payload::text) > 2"); least < 10e6 {
		t.Fatalf("the payloads have %d bytes, want 10 MB: the case shows nothing", least)
	}
	f := w.Function(60*time.Second, "DATABASE_URL="+url, "HOOK_URL="+r.URL, "OUTBOX_ROUTES="+hook+"  order.placed: {to: hook}")
	if got := w.Dispatch(f).Processed; got != 20 {
		t.Errorf("%d events were processed, want 20", got)
	}
	for id, d := range r.deliveries() {
		want := scalar[string](t, w.Pool, "select payload::text from outbox_events where id = $1::text::uuid", id)
		if d.times != 1 || !bytes.Contains(d.body, []byte(want)) {
			t.Errorf("%s came %d times, in %d bytes, want once and whole, with the payload's %d", id, d.times, len(d.body), len(want))
		}
	}
	peak, err := f.Peak()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("four payloads of 10 MB in one claim: a peak of %d MB", peak>>20)
	if peak > 200<<20 {
		t.Errorf("the function's memory had a peak of %d MB, want at most 200: it has 256", peak>>20)
	}
}
