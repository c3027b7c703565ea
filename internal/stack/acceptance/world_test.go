// Package acceptance plays what the guarantees promise through the real dispatch function, under the runtime
// emulator, against a real PostgreSQL and a webhook receiver.
package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

const routesFile = `
version: 1
destinations:
  hook: {http: {url: "${HOOK_URL}", timeout: 2s, allow_http: true, allow_ports: [1-65535], allow_private: ["127.0.0.0/8"]}}
routes:
  order.placed: {to: hook}
`

// tools builds the emulator and the function once for all tests.
var tools = sync.OnceValues(func() (lambda.Config, error) {
	builder := lambda.Builder{Root: "../../..", Log: io.Discard}
	emulator, err := builder.Emulator(context.Background())
	if err != nil {
		return lambda.Config{}, err
	}
	binary, err := builder.Function(context.Background(), "dispatch")
	return lambda.Config{Emulator: emulator, Binary: binary}, err
})

// world is one test's database, receiver and functions.
type world struct {
	*testing.T
	url  string
	pool *pgxpool.Pool
	hook *hook
	env  []string // of the functions, beside what every test has
	log  lambdaLog
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, url: postgrestest.URL(t), hook: newHook(t)}
	var err error
	if w.pool, err = pgxpool.New(t.Context(), w.url); err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(w.pool.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the functions' last log lines:\n%s", w.log.tail())
		}
	})
	return w
}

// function starts a sandbox of the dispatch function.
func (w *world) function(timeout time.Duration) *lambda.Function {
	w.Helper()
	config, err := tools()
	if err != nil {
		w.Fatalf("build: %v", err)
	}
	config.Timeout, config.Log = timeout, &w.log
	config.Env = append([]string{
		"DATABASE_URL=" + w.url, "OUTBOX_ROUTES=" + routesFile, "HOOK_URL=" + w.hook.URL, "OUTBOX_BATCH_SIZE=100",
	}, w.env...)
	f, err := lambda.Start(w.Context(), config)
	if err != nil {
		w.Fatalf("start the function: %v", err)
	}
	w.Cleanup(f.Stop)
	return f
}

// reply is the part of the pass's result that the tests read.
type reply struct {
	OK                                             bool
	Claimed, Processed, Retried, Snoozed, Released int
	LeaseLost                                      int
}

func (w *world) dispatch(f *lambda.Function) reply {
	w.Helper()
	raw, err := f.Invoke(w.Context(), []byte("{}"))
	if err != nil {
		w.Fatalf("invoke: %v", err)
	}
	var r reply
	if err := json.Unmarshal(raw, &r); err != nil || !r.OK {
		w.Fatalf("reply is %s, want ok", raw)
	}
	return r
}

// drain dispatches pass after pass until nothing is unfinished, and returns how many passes that took.
func (w *world) drain(f *lambda.Function) int {
	w.Helper()
	for passes := 1; passes <= 50; passes++ {
		w.dispatch(f)
		if w.count("status in ('pending', 'failed', 'processing')") == 0 {
			return passes
		}
	}
	w.Fatalf("not drained after 50 passes")
	return 0
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.pool.Exec(w.Context(), sql, args...); err != nil {
		w.Fatalf("%s: %v", sql, err)
	}
}

// insert inserts n events over the given number of aggregates, round robin.
func (w *world) insert(n, aggregates int) {
	w.Helper()
	w.exec(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		select 'order', md5((n % $2::int)::text)::uuid, 'order.placed', n::text, jsonb_build_object('n', n)
		from generate_series(1, $1::int) n order by n`, n, aggregates)
}

func (w *world) count(condition string) int {
	w.Helper()
	var n int
	if err := w.pool.QueryRow(w.Context(), "select count(*) from outbox_events where "+condition).Scan(&n); err != nil {
		w.Fatalf("count %s: %v", condition, err)
	}
	return n
}

// ids returns the events for which the condition holds.
func (w *world) ids(condition string) map[string]bool {
	w.Helper()
	rows, err := w.pool.Query(w.Context(), "select id::text from outbox_events where "+condition)
	if err != nil {
		w.Fatalf("ids: %v", err)
	}
	defer rows.Close()
	found := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			w.Fatalf("ids: %v", err)
		}
		found[id] = true
	}
	return found
}

// ageLeases lets every lease run out and every delay pass, as time would.
func (w *world) ageLeases() {
	w.Helper()
	w.exec("update outbox_events set available_at = now() - interval '1 second' where status in ('processing', 'failed', 'pending') and available_at > now()")
	w.exec("update outbox_circuits set open_until = now() - interval '1 second', probe_until = null where open_until is not null")
}

// hook is the webhook's receiver: it answers 204 and remembers what came, in order of arrival.
type hook struct {
	*httptest.Server
	mu        sync.Mutex
	times     map[string]int     // deliveries by event
	positions map[string][]int64 // first deliveries by aggregate
	payloads  map[string]string
	before    func(id string, r *http.Request) // runs before an answer is given; may be nil
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{times: map[string]int{}, positions: map[string][]int64{}, payloads: map[string]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.receive))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

func (h *hook) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	id := r.Header.Get("webhook-id")
	position, _ := strconv.ParseInt(r.Header.Get("outbox-position"), 10, 64)
	h.mu.Lock()
	if h.times[id]++; h.times[id] == 1 {
		key := r.Header.Get("outbox-aggregate-id")
		h.positions[key] = append(h.positions[key], position)
	}
	h.payloads[id] = cloud.Message{Body: string(body)}.Data()
	before := h.before
	h.mu.Unlock()
	if before != nil {
		before(id, r)
	}
	w.WriteHeader(http.StatusNoContent)
}

// distinct is how many different events arrived.
func (h *hook) distinct() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.times)
}

// repeated returns the events that arrived more than once.
func (h *hook) repeated() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	repeated := map[string]int{}
	for id, n := range h.times {
		if n > 1 {
			repeated[id] = n
		}
	}
	return repeated
}

// inversions describes aggregates whose first deliveries came out of order.
func (h *hook) inversions() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []string
	for aggregate, positions := range h.positions {
		for i := 1; i < len(positions); i++ {
			if positions[i] <= positions[i-1] {
				found = append(found, fmt.Sprintf("%s: %d after %d", aggregate, positions[i], positions[i-1]))
			}
		}
	}
	return found
}

// arrivedOnceInOrder fails unless n events arrived, each once, in order within each aggregate.
func (w *world) arrivedOnceInOrder(n int) {
	w.Helper()
	if got := w.hook.distinct(); got != n {
		w.Errorf("%d different events arrived, want %d", got, n)
	}
	if repeated := w.hook.repeated(); len(repeated) > 0 {
		w.Errorf("%d events arrived more than once, want none: %v", len(repeated), repeated)
	}
	if inversions := w.hook.inversions(); len(inversions) > 0 {
		w.Errorf("out of order: %v", inversions)
	}
	if got := w.count("status = 'processed'"); got != n {
		w.Errorf("%d rows are processed, want %d", got, n)
	}
}

// lambdaLog keeps what the functions print.
type lambdaLog struct {
	mu   sync.Mutex
	text []byte
}

func (l *lambdaLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *lambdaLog) tail() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text[max(0, len(l.text)-8000):]
}
