package acceptance_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

func TestTenThousandEventsArriveOnceInOrder(t *testing.T) {
	t.Parallel()
	const n = 10_000
	t.Run("several passes in a row", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.insert(n, 700)
		// A timeout of 10 s leaves 1 s a pass in which a delivery may start, so that it takes several.
		passes := w.drain(w.function(10 * time.Second))
		w.arrivedOnceInOrder(n)
		if passes < 2 {
			t.Errorf("it took %d pass, want several: the case needs a smaller budget", passes)
		}
	})
	t.Run("four functions at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.insert(n, 700)
		var all sync.WaitGroup
		for range 4 {
			f := w.function(30 * time.Second)
			all.Go(func() {
				for range 50 {
					if raw, err := f.Invoke(w.Context(), []byte("{}")); err != nil || !lambda.Succeeded(raw) {
						t.Errorf("reply %s, error %v, want ok", raw, err)
						return
					}
					if w.hook.distinct() >= n {
						return
					}
				}
			})
		}
		all.Wait()
		w.arrivedOnceInOrder(n)
	})
}

func TestKilledPassLosesNothing(t *testing.T) {
	t.Parallel()
	const n = 1000
	w := newWorld(t)
	w.insert(n, 300)
	f := w.function(30 * time.Second)
	var once sync.Once
	w.hook.before = func(string, *http.Request) {
		if w.hook.distinct() >= n/3 {
			once.Do(func() { go f.Kill() })
		}
	}
	if raw, err := f.Invoke(t.Context(), []byte("{}")); err == nil {
		t.Fatalf("the pass replied %s, want it killed", raw)
	}
	f.Kill()
	// Claimed and not acknowledged; of these only what the receiver has seen already can come twice.
	inFlight := w.ids("status = 'processing'")
	if len(inFlight) == 0 {
		t.Fatal("nothing was claimed at the kill: the case shows nothing")
	}
	w.hook.mu.Lock()
	w.hook.before = nil
	w.hook.mu.Unlock()

	w.ageLeases()
	w.drain(w.function(30 * time.Second))

	if got := w.hook.distinct(); got != n {
		t.Errorf("%d different events arrived, want all %d", got, n)
	}
	for id, times := range w.hook.repeated() {
		if !inFlight[id] || times != 2 {
			t.Errorf("event %s arrived %d times (in flight at the kill: %t), want twice at most and only if in flight", id, times, inFlight[id])
		}
	}
	if got := w.count("status = 'processed'"); got != n {
		t.Errorf("%d rows are processed, want %d", got, n)
	}
	if inversions := w.hook.inversions(); len(inversions) > 0 {
		t.Errorf("out of order: %v", inversions)
	}
}

func TestOneKillerAmongHealthyEvents(t *testing.T) {
	t.Parallel()
	const n = 100
	w := newWorld(t)
	w.insert(n, n)
	var killer string
	for id := range w.ids("idempotency_key = '50'") {
		killer = id
	}
	var mu sync.Mutex
	var running *lambda.Function
	w.hook.before = func(id string, _ *http.Request) {
		if id == killer {
			mu.Lock()
			defer mu.Unlock()
			running.Kill()
		}
	}
	for range 30 {
		f := w.function(15 * time.Second)
		mu.Lock()
		running = f
		mu.Unlock()
		_, _ = f.Invoke(t.Context(), []byte("{}")) // killed or not
		f.Kill()
		w.ageLeases()
		if w.count("status in ('pending', 'failed', 'processing')") == 0 {
			break
		}
	}
	discarded := w.ids("status = 'discarded' and error like '%max_attempts_exhausted_at_claim'")
	if len(discarded) != 1 || !discarded[killer] {
		t.Errorf("discarded are %v, want exactly the killer %s", discarded, killer)
	}
	if got := w.count("status = 'processed'"); got != n-1 {
		t.Errorf("%d rows are processed, want the %d healthy ones", got, n-1)
	}
	if got := w.count("status = 'processed' and attempts > 3"); got != 0 {
		t.Errorf("%d healthy events spent more than 3 attempts, want none", got)
	}
}

func TestReplyComesBeforeTheKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert(200, 200)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	w.hook.before = func(_ string, r *http.Request) {
		select { // hangs for ever, as far as the function can tell
		case <-release:
		case <-r.Context().Done():
		}
	}
	r := w.dispatch(w.function(10 * time.Second)) // fails unless it replies
	if r.Retried == 0 {
		t.Errorf("reply %+v, want some retried", r)
	}
	if r.Retried+r.Snoozed+r.Released != r.Claimed || r.LeaseLost != 0 {
		t.Errorf("reply %+v, want every claimed row retried, snoozed or released", r)
	}
	if got := w.count("status in ('pending', 'failed')"); got != 200 {
		t.Errorf("%d rows are still claimable, want 200", got)
	}
}

func TestInsertOrderIsDeliveryOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const insert = `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		values ('order', md5($1)::uuid, 'order.placed', $2, '{}')`
	// Two events of one aggregate in one transaction: their created_at ties.
	for i := range 1000 {
		key := "tie-" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + time.Duration(i).String()
		tx, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatalf("begin: %v", err)
		}
		for _, suffix := range []string{"-1", "-2"} {
			if _, err := tx.Exec(t.Context(), insert, key, key+suffix); err != nil {
				t.Fatalf("insert: %v", err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
	// One transaction begins first and writes last: its created_at is the older one.
	for i := range 1000 {
		key := "late-" + time.Duration(i).String()
		early, err := w.pool.Begin(t.Context())
		if err != nil {
			t.Fatalf("begin: %v", err)
		}
		if _, err := early.Exec(t.Context(), "select now()"); err != nil {
			t.Fatalf("begin: %v", err)
		}
		w.exec(insert, key, key+"-first")
		if _, err := early.Exec(t.Context(), insert, key, key+"-second"); err != nil {
			t.Fatalf("insert: %v", err)
		}
		if err := early.Commit(t.Context()); err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
	if got := w.count("idempotency_key like 'late-%-second' and created_at < (select f.created_at from outbox_events f where f.aggregate_id = outbox_events.aggregate_id and f.idempotency_key like '%-first')"); got != 1000 {
		t.Fatalf("%d of 1,000 late writers have the older created_at: the case shows nothing", got)
	}
	w.drain(w.function(30 * time.Second))
	w.arrivedOnceInOrder(4000)
}

func TestHostileDataArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const insert = `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, metadata, attempts, status)
		values ('order', md5($1)::uuid, $2, $3, $4::jsonb, $5::jsonb, $6, 'pending')`
	payloads := map[string]string{
		"256 kB": `{"text": "` + strings.Repeat("é", 128<<10) + `"}`,
		"nested": strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		"1e400":  `{"n": 1e400, "m": 12345678901234567890.123456789}`,
		"null":   `null`,
		"empty":  `{}`,
		"keys":   `{"b": 1, "a": 2, "é<>&": "\u2028"}`,
	}
	for name, payload := range payloads {
		w.exec(insert, name, "order.placed", name, payload, "{}", 0)
	}
	w.exec(insert, "metadata", "order.placed", "metadata", "{}", `[]`, 0)
	w.exec(insert, "snoozes", "order.placed", "snoozes", "{}", `{"snoozeCount": "many"}`, 0)
	// A head that is spent is discarded, and its follower goes on.
	w.exec(insert, "spent", "order.placed", "spent", "{}", "{}", 8)
	w.exec(insert, "spent", "order.placed", "after spent", "{}", "{}", 0)
	// A type with no route stays, and blocks its aggregate.
	w.exec(insert, "foreign", "order.unknown", "foreign", "{}", "{}", 0)
	w.exec(insert, "foreign", "order.placed", "after foreign", "{}", "{}", 0)

	w.dispatch(w.function(30 * time.Second))

	want := len(payloads) + 3
	if got := w.count("status = 'processed'"); got != want {
		t.Errorf("%d rows are processed, want %d", got, want)
	}
	if got := w.count("status = 'discarded' and idempotency_key = 'spent'"); got != 1 {
		t.Errorf("the spent head is not discarded")
	}
	if got := w.count("status = 'pending' and idempotency_key in ('foreign', 'after foreign')"); got != 2 {
		t.Errorf("%d rows wait for the type with no route, want 2", got)
	}
	for name := range payloads {
		var id, text string
		if err := w.pool.QueryRow(t.Context(), "select id::text, payload::text from outbox_events where idempotency_key = $1", name).Scan(&id, &text); err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		if got := w.hook.payloads[id]; got != text {
			t.Errorf("%s: data of %d bytes differs from the row's payload of %d", name, len(got), len(text))
		}
	}
}
