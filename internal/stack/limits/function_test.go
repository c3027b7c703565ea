package limits_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"

	"github.com/openlup/outbox-dispatch/internal/stack/dispatchtest"
)

// hook is a destination for tests of the function.
const hook = `
version: 1
destinations:
  hook: {http: {url: "${HOOK_URL}", timeout: 30s, allow_http: true, allow_private: ["127.0.0.0/8"], allow_ports: [1-65535]}}
routes:
`

// The function claims and reports all types of a big system in one pass, and none keeps another waiting.
func TestAThousandEventTypes(t *testing.T) {
	t.Parallel()
	const types, each, aggregates = 1000, 3, 500
	url := postgrestest.URL(t)
	w := dispatchtest.New(t, url)
	routes := hook
	for n := range types {
		routes += fmt.Sprintf("  shop.thing.%d: {to: hook}\n", n)
	}
	file := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(file, []byte(routes), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Exec(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		select 'order', md5((n % $2::int)::text)::uuid, 'shop.thing.' || n % $1::int, n::text, '{}'
		from generate_series(1, $1::int * $3::int) n order by n`, types, aggregates, each)
	f := w.Function(60*time.Second, "DATABASE_URL="+url, "OUTBOX_ROUTES=", "OUTBOX_ROUTES_FILE="+file, "OUTBOX_BATCH_SIZE=100")
	r := w.Dispatch(f)
	if r.Processed != types*each {
		t.Errorf("%d events were processed, want %d in one pass", r.Processed, types*each)
	}
	w.Arrived(types * each)
	if got := strings.Count(r.Raw, fmt.Sprintf(`{"processed":%d}`, each)); got != types {
		t.Errorf("the reply tells of %d types with %d processed, want %d", got, each, types)
	}
	t.Logf("%d types: a reply of %d bytes", types, len(r.Raw))
}

// The function's zone and the database's are as far apart as zones can be, and then their clocks too.
func TestTheFunctionIsFarFromItsDatabase(t *testing.T) {
	t.Parallel()
	for _, zones := range [][2]string{{"Pacific/Kiritimati", "Pacific/Niue"}, {"Pacific/Niue", "Pacific/Kiritimati"}} {
		t.Run(zones[0], func(t *testing.T) {
			t.Parallel()
			url := postgrestest.URL(t)
			w := dispatchtest.New(t, url)
			w.Exec("alter database " + scalar[string](t, w.Pool, "select quote_ident(current_database())") + " set timezone = '" + zones[1] + "'")
			playFunction(t, url, "TZ="+zones[0])
		})
	}
}

// playFunction delivers with a failure, a retry that is not due yet, and that retry. Each delivery bears the function's time:
// a receiver refuses what is five minutes off.
func playFunction(t *testing.T, url string, env ...string) {
	t.Helper()
	w := dispatchtest.New(t, url)
	r := newReceiver(t)
	r.refuse = 3
	w.Insert(60, 60)
	f := w.Function(60*time.Second, append([]string{
		"DATABASE_URL=" + url, "HOOK_URL=" + r.URL, "OUTBOX_ROUTES=" + hook + "  order.placed: {to: hook}",
	}, env...)...)
	if got := w.Dispatch(f); got.Processed != 57 || got.Retried != 3 {
		t.Errorf("%d processed, %d retried, want 57 and 3: %s", got.Processed, got.Retried, got.Raw)
	}
	if got := w.Dispatch(f); got.Claimed != 0 {
		t.Errorf("%d claimed before their back-off ended, want none", got.Claimed)
	}
	w.AgeLeases()
	if got := w.Dispatch(f); got.Processed != 3 {
		t.Errorf("%d processed once their back-off ended, want 3", got.Processed)
	}
	came := r.deliveries()
	if len(came) != 60 {
		t.Errorf("%d different events arrived, want 60", len(came))
	}
	for id, d := range came {
		if off := time.Since(d.sent).Abs(); d.times != 1 || off > 4*time.Minute {
			t.Errorf("%s came %d times, stamped %v off the function's clock", id, d.times, off)
		}
	}
}
