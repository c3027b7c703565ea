package proof_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// fenced is a store with three rows, two of type a and one of type b, each an aggregate of its own.
type fenced struct {
	store  outbox.Store
	expire func()          // ends all leases
	rows   func() []string // every row, whole
	lanes  []outbox.Aggregate
}

func fencedMemory(t *testing.T) fenced {
	t.Helper()
	m := &outboxtest.Memory{}
	m.Insert(outboxtest.Row{Type: "a"}, outboxtest.Row{Type: "a"}, outboxtest.Row{Type: "b"})
	f := fenced{store: m, expire: func() { m.ExpireLeases() }}
	f.rows = func() []string {
		var texts []string
		for _, r := range m.Rows() {
			texts = append(texts, strings.Join([]string{
				r.ID, r.Status, r.AvailableAt.String(), r.ProcessedAt.String(), string(rune('0' + r.Attempts)), r.Error, string(r.Metadata),
			}, " "))
		}
		return texts
	}
	for _, r := range m.Rows() {
		f.lanes = append(f.lanes, outbox.Aggregate{Type: r.AggregateType, ID: r.AggregateID})
	}
	return f
}

func fencedPostgreSQL(t *testing.T) fenced {
	t.Helper()
	pool := postgrestest.New(t)
	texts := func(sql string) []string {
		rows, err := pool.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	f := fenced{store: &postgres.Store{Pool: pool}}
	for _, id := range texts(`
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
select 'order', gen_random_uuid(), t, n::text, '{}' from unnest(array['a', 'a', 'b']) with ordinality as t (t, n)
returning aggregate_id::text`) {
		f.lanes = append(f.lanes, outbox.Aggregate{Type: "order", ID: id})
	}
	// xmin tells even a write that changes nothing.
	f.rows = func() []string { return texts("select e.xmin::text || e::text from outbox_events e order by position") }
	f.expire = func() {
		texts("update outbox_events set available_at = now() - interval '1 second' where status = 'processing' returning id::text")
	}
	return f
}

// logLines keeps what a pass logs.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// TestLateAcknowledgementsChangeNothing lets a pass hold its rows for too long: their leases end and somebody else claims
// them. What its handlers then answer must leave no trace but in its counters, by type, and in its log.
func TestLateAcknowledgementsChangeNothing(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) fenced{"memory": fencedMemory, "postgresql": fencedPostgreSQL} {
		for outcome, reply := range map[string]error{
			"processed": nil, "retry": errors.New("refused"), "discard": outbox.Discard(errors.New("gone")),
			"benign": outbox.Benign(errors.New("gone")), "snooze": outbox.Snooze(errors.New("down"), time.Minute),
		} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				t.Parallel()
				checkLate(t, open(t), reply)
			})
		}
	}
}

func checkLate(t *testing.T, f fenced, reply error) {
	t.Helper()
	started, release := make(chan string, 3), make(chan struct{})
	handler := outbox.HandlerFunc(func(_ context.Context, e outbox.Event) (outbox.Receipt, error) {
		started <- e.ID
		<-release
		return outbox.Receipt{"late": true}, reply
	})
	lines := &logLines{}
	worker, err := outbox.NewWorker(outbox.Config{
		Store: f.store, Logger: slog.New(slog.NewTextHandler(lines, nil)), Concurrency: 3,
		Registry: outbox.Registry{"a": {Handler: handler, Timeout: time.Minute}, "b": {Handler: handler, Timeout: time.Minute}},
	})
	if err != nil {
		t.Fatal(err)
	}
	type ended struct {
		result outbox.Result
		err    error
	}
	pass := make(chan ended)
	go func() {
		result, err := worker.Run(t.Context(), outbox.Pass{})
		pass <- ended{result, err}
	}()
	ids := []string{<-started, <-started, <-started}
	f.expire()
	others := claimLost(t, f)
	want := f.rows()
	close(release)
	got := <-pass
	if got.err != nil {
		t.Fatalf("run: %v", got.err)
	}
	if rows := f.rows(); !slices.Equal(rows, want) {
		t.Errorf("rows after the late answers are\n%s\nwant them untouched:\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
	counts := map[string]outbox.TypeCounts{"a": {LeaseLost: 2}, "b": {LeaseLost: 1}}
	if r := got.result; r.LeaseLost != 3 || !maps.Equal(r.ByEventType, counts) || r.Processed+r.Retried+r.Snoozed+r.Discarded+r.Released != 0 {
		t.Errorf("result %+v, want three lost leases, two of type a and one of type b, and no other outcome", r)
	}
	for _, id := range ids {
		if n := lostLines(lines.text.String(), id); n != 1 {
			t.Errorf("%d lines outbox_lease_lost for %s, want 1:\n%s", n, id, lines.text.String())
		}
	}
	for _, s := range others { // who claimed them last may still settle them
		answers, err := f.store.Settle(t.Context(), []outbox.Settlement{s}, outbox.Backoff{})
		if err != nil || !slices.Equal(answers, []outbox.Answer{outbox.AnswerProcessed}) {
			t.Errorf("settle under the last token: %v, %v; want processed", answers, err)
		}
	}
}

// lostLines counts the lines that say of an event that its lease was lost.
func lostLines(text, id string) int {
	n := 0
	for line := range strings.Lines(text) {
		if strings.Contains(line, "outbox_lease_lost") && strings.Contains(line, id) && strings.Contains(line, "level=WARN") {
			n++
		}
	}
	return n
}

// claimLost claims every row whose lease ran out, as another process would.
func claimLost(t *testing.T, f fenced) []outbox.Settlement {
	t.Helper()
	var list []outbox.Settlement
	for range f.lanes {
		claim, err := f.store.Claim(t.Context(), outbox.ClaimRequest{EventTypes: []string{"a", "b"}, Lanes: f.lanes, Recover: true})
		if err != nil || len(claim.Events) != 1 {
			t.Fatalf("claim a lost row: %d events, %v; want one", len(claim.Events), err)
		}
		e := claim.Events[0]
		list = append(list, outbox.Settlement{EventID: e.ID, ClaimToken: e.ClaimToken(), Outcome: outbox.Processed})
	}
	return list
}

// TestOldTokensSettleNothing settles a row by every outcome under every token but the last.
func TestOldTokensSettleNothing(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) fenced{"memory": fencedMemory, "postgresql": fencedPostgreSQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			var old []outbox.Settlement
			if _, err := f.store.Claim(t.Context(), outbox.ClaimRequest{EventTypes: []string{"a", "b"}}); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				f.expire()
				old = append(old, claimLost(t, f)...)
			}
			old = old[:len(old)-len(f.lanes)]
			want := f.rows()
			for _, outcome := range []outbox.Outcome{outbox.Processed, outbox.Retry, outbox.Snoozed, outbox.Discarded, outbox.Released} {
				for i := range old {
					old[i].Outcome = outcome
				}
				answers, err := f.store.Settle(t.Context(), old, outbox.Backoff{})
				if err != nil || len(slices.Compact(answers)) != 1 || answers[0] != outbox.Missed {
					t.Errorf("%s under old tokens: %v, %v; want all missed", outcome, answers, err)
				}
			}
			if rows := f.rows(); !slices.Equal(rows, want) {
				t.Errorf("rows are\n%s\nwant them untouched:\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
