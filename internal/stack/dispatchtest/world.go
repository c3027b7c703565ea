// Package dispatchtest gives tests the dispatch function under the runtime emulator, a database for it and a webhook that
// remembers what came.
package dispatchtest

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

// Routes deliver order.placed to the webhook.
const Routes = `
version: 1
destinations:
  hook: {http: {url: "${HOOK_URL}", timeout: 1s, allow_http: true, allow_ports: [1-65535], allow_private: ["127.0.0.0/8"]}}
routes:
  order.placed: {to: hook}
`

// tools builds the emulator and the function once for all tests of a package.
var tools = sync.OnceValues(func() (lambda.Config, error) {
	builder := lambda.Builder{Root: "../../..", Log: io.Discard}
	emulator, err := builder.Emulator(context.Background())
	if err != nil {
		return lambda.Config{}, err
	}
	binary, err := builder.Function(context.Background(), "dispatch")
	return lambda.Config{Emulator: emulator, Binary: binary}, err
})

// World is one test's database and receiver.
type World struct {
	*testing.T
	// Pool reaches the database directly, whatever way the functions take.
	Pool *pgxpool.Pool
	Hook *Hook
	log  tail
}

// New makes a world around a database that has the outbox.
func New(t *testing.T, url string) *World {
	t.Helper()
	w := &World{T: t, Hook: newHook(t)}
	config, err := pgxpool.ParseConfig(url)
	if err == nil {
		config.MaxConns = 4
		w.Pool, err = pgxpool.NewWithConfig(t.Context(), config)
	}
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(w.Pool.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the functions' last log lines:\n%s", w.log.String())
		}
	})
	return w
}

// Function starts a sandbox whose function has the environment, beside routes and webhook.
func (w *World) Function(timeout time.Duration, env ...string) *lambda.Function {
	w.Helper()
	config, err := tools()
	if err != nil {
		w.Fatalf("build: %v", err)
	}
	config.Timeout, config.Log = timeout, &w.log
	config.Env = append([]string{"OUTBOX_ROUTES=" + Routes, "HOOK_URL=" + w.Hook.URL}, env...)
	f, err := lambda.Start(w.Context(), config)
	if err != nil {
		w.Fatalf("start the function: %v", err)
	}
	w.Cleanup(f.Stop)
	return f
}

// Reply is what an invocation answered: a result, or an error.
type Reply struct {
	OK                                                        bool
	Claimed, Processed, Retried, Snoozed, Released, Discarded int
	LeaseLost                                                 int
	ErrorType, ErrorMessage                                   string
	Raw                                                       string `json:"-"`
}

// Invoke runs one pass. It fails the test unless the function itself answers, in its time.
func (w *World) Invoke(f *lambda.Function) Reply {
	w.Helper()
	raw, err := f.Invoke(w.Context(), []byte("{}"))
	if err != nil {
		w.Fatalf("invoke: %v", err)
	}
	r := Reply{Raw: string(raw)}
	if err := json.Unmarshal(raw, &r); err != nil || (!r.OK && r.ErrorType == "") || r.ErrorType == "Sandbox.Timedout" || r.ErrorType == "Runtime.ExitError" {
		w.Fatalf("reply is %.500s, want one of the function's own", raw)
	}
	return r
}

// Dispatch runs one pass that must succeed.
func (w *World) Dispatch(f *lambda.Function) Reply {
	w.Helper()
	r := w.Invoke(f)
	if !r.OK {
		w.Fatalf("reply is %s, want ok", r.Raw)
	}
	return r
}

// Exec runs a statement.
func (w *World) Exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.Pool.Exec(w.Context(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// Insert adds n events over the given number of aggregates, round robin.
func (w *World) Insert(n, aggregates int) {
	w.Helper()
	w.Exec(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		select 'order', md5((n % $2::int)::text)::uuid, 'order.placed', gen_random_uuid()::text, jsonb_build_object('n', n)
		from generate_series(1, $1::int) n order by n`, n, aggregates)
}

// Count is the number of events for which the condition holds.
func (w *World) Count(condition string) int {
	w.Helper()
	var n int
	if err := w.Pool.QueryRow(w.Context(), "select count(*) from outbox_events where "+condition).Scan(&n); err != nil {
		w.Fatalf("count %s: %v", condition, err)
	}
	return n
}

// AgeLeases lets every lease and every delay end, as time would.
func (w *World) AgeLeases() {
	w.Helper()
	w.Exec("update outbox_events set available_at = now() - interval '1 second' where status in ('processing', 'failed', 'pending') and available_at > now()")
}

// Arrived fails unless n events arrived, each at least once and in order within its aggregate, and all rows are processed.
func (w *World) Arrived(n int) {
	w.Helper()
	if got := w.Hook.Distinct(); got != n {
		w.Errorf("%d different events arrived, want %d", got, n)
	}
	if inversions := w.Hook.Inversions(); len(inversions) > 0 {
		w.Errorf("out of order: %v", inversions)
	}
	if got := w.Count("status = 'processed'"); got != n {
		w.Errorf("%d rows are processed, want %d", got, n)
	}
}

// tail keeps the end of what the functions print.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	l.text = l.text[max(0, len(l.text)-8000):]
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
