package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// model is the plain truth about a run over the in-memory store: which event was delivered when, and how often.
type model struct {
	mu     sync.Mutex
	faulty bool // handlers may fail
	rng    *rand.Rand
	busy   map[string]string // aggregate -> event being handled
	firsts map[string]int64  // aggregate -> position of its latest first delivery
	done   map[string]int    // event -> deliveries
	faults []string
}

func (m *model) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

// Handle delivers, or fails in one of all ways.
func (m *model) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	reply, wait := m.begin(event)
	defer m.end(event)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if reply != nil {
		return reply(ctx, event)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[event.ID]++
	if m.done[event.ID] == 1 {
		if event.Position < m.firsts[event.AggregateID] {
			m.fault("position %d of %s first delivered behind %d", event.Position, event.AggregateID, m.firsts[event.AggregateID])
		}
		m.firsts[event.AggregateID] = event.Position
	}
	return outbox.Receipt{"n": 1}, nil
}

func (m *model) begin(event outbox.Event) (outbox.HandlerFunc, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.busy[event.AggregateID]; other != "" {
		m.fault("%s of %s handled beside %s", event.ID, event.AggregateID, other)
	}
	m.busy[event.AggregateID] = event.ID
	wait := time.Duration(m.rng.IntN(3000)) * time.Millisecond
	if !m.faulty {
		return nil, wait
	}
	switch m.rng.IntN(12) {
	case 0:
		return retrying("refused"), wait
	case 1:
		return discarding("gone"), wait
	case 2:
		return snoozing("down"), wait
	case 3:
		return func(context.Context, outbox.Event) (outbox.Receipt, error) { panic("x") }, wait
	case 4:
		return nil, time.Hour
	default:
		return nil, wait
	}
}

func (m *model) end(event outbox.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy[event.AggregateID] = ""
}

// schedule runs a random queue through random passes, and returns what is wrong.
func schedule(t *testing.T, seed uint64, faulty bool) []string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	m := &model{
		faulty: faulty, rng: rand.New(rand.NewPCG(seed, 3)),
		busy: map[string]string{}, firsts: map[string]int64{}, done: map[string]int{},
	}
	store := &outboxtest.Memory{}
	types := []string{"t", "u", "v"}
	registry := outbox.Registry{}
	for i, name := range types {
		registry[name] = outbox.Route{Handler: m, Timeout: time.Duration(i+4) * time.Second, Destination: types[rng.IntN(i+1)]}
	}
	inserted := 0
	insert := func() {
		for range rng.IntN(15) {
			inserted++
			store.Insert(outboxtest.Row{
				ID: fmt.Sprint(inserted), AggregateID: string(rune('a' + rng.IntN(5))), Type: types[rng.IntN(3)],
			})
		}
	}
	worker, err := outbox.NewWorker(outbox.Config{
		Store: store, Registry: registry, Concurrency: 1 + rng.IntN(5), BatchSize: 1 + rng.IntN(6), MaxAttempts: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	insert()
	for range 1 + rng.IntN(4) {
		pass := outbox.Pass{SoftBudget: time.Duration(5+rng.IntN(60)) * time.Second}
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(time.Duration(rng.IntN(120))*time.Second, cancel)
		var runs sync.WaitGroup
		for range 1 + rng.IntN(2) { // passes at once
			runs.Go(func() {
				result, err := worker.Run(ctx, pass)
				m.mu.Lock()
				defer m.mu.Unlock()
				for _, wrong := range check(result, err) {
					m.fault("%s", wrong)
				}
			})
		}
		runs.Wait()
		stop.Stop()
		cancel()
		store.Advance(time.Duration(rng.IntN(400)) * time.Second)
		insert()
	}
	for _, row := range store.Rows() {
		switch row.Status {
		case outboxtest.StatusProcessing:
			m.fault("row %s is still leased after all passes", row.ID)
		case outboxtest.StatusProcessed:
			if m.done[row.ID] == 0 {
				m.fault("row %s is processed but was never delivered", row.ID)
			}
		}
		if n := m.done[row.ID]; n > 1 || (n == 1 && row.Status != outboxtest.StatusProcessed) {
			m.fault("row %s is %s after %d deliveries", row.ID, row.Status, n)
		}
		if !faulty && (row.Status == outboxtest.StatusDiscarded || row.Attempts > 1) {
			m.fault("row %s is %s after %d attempts though nothing failed", row.ID, row.Status, row.Attempts)
		}
	}
	if n := len(store.Rows()); n != inserted {
		m.fault("%d rows, want the %d inserted", n, inserted)
	}
	return m.faults
}

// check looks at what must hold of every result: each claimed row is counted once.
func check(r outbox.Result, err error) (wrong []string) {
	if err != nil || !r.OK {
		wrong = append(wrong, fmt.Sprintf("ok %t, error %v", r.OK, err))
	}
	settled := r.Processed + r.Retried + r.Snoozed + r.Discarded + r.Released + r.LeaseLost
	if settled != r.Claimed || r.LeaseLost > 0 {
		wrong = append(wrong, fmt.Sprintf("claimed %d, settled %d, lease lost %d: %+v", r.Claimed, settled, r.LeaseLost, r))
	}
	var sum outbox.TypeCounts
	for _, c := range r.ByEventType {
		sum.Processed += c.Processed
		sum.Retried += c.Retried
		sum.Snoozed += c.Snoozed
		sum.Discarded += c.Discarded
		sum.DuplicateInRun += c.DuplicateInRun
		if c == (outbox.TypeCounts{}) {
			wrong = append(wrong, "a type with only zeros is listed")
		}
	}
	if want := (outbox.TypeCounts{
		Processed: r.Processed, Retried: r.Retried, Snoozed: r.Snoozed, Discarded: r.Discarded, DuplicateInRun: r.DuplicateInRun,
	}); sum != want {
		wrong = append(wrong, fmt.Sprintf("types sum up to %+v, want %+v", sum, want))
	}
	return wrong
}

func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	for _, faulty := range []bool{false, true} {
		t.Run(fmt.Sprintf("faulty_%t", faulty), func(t *testing.T) {
			t.Parallel()
			first := rand.Uint64()
			for seed := first; seed < first+500; seed++ {
				synctest.Test(t, func(t *testing.T) {
					if faults := schedule(t, seed, faulty); len(faults) > 0 {
						t.Fatalf("seed %d: %q", seed, faults)
					}
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

func TestTwoPassesAtOnceOnOneWorker(t *testing.T) {
	t.Parallel()
	const rows = 400
	store, recorder := &outboxtest.Memory{}, &outboxtest.Recorder{}
	for i := range rows {
		store.Insert(outboxtest.Row{ID: fmt.Sprint(i), AggregateID: fmt.Sprint(i % 20), Type: "t"})
	}
	worker, err := outbox.NewWorker(outbox.Config{Store: store, Registry: outbox.Registry{"t": {Handler: recorder}}, Stats: store})
	if err != nil {
		t.Fatal(err)
	}
	var runs sync.WaitGroup
	results, errs := make([]outbox.Result, 2), make([]error, 2)
	for i := range results {
		runs.Go(func() { results[i], errs[i] = worker.Run(t.Context(), outbox.Pass{SoftBudget: time.Minute}) })
	}
	runs.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	// A pass may find everything leased to the other one and end; together they deliver what they claimed, once.
	processed := results[0].Processed + results[1].Processed
	if processed != rows || len(recorder.Events()) != rows {
		t.Errorf("processed %d, handled %d, want %d", processed, len(recorder.Events()), rows)
	}
	last := map[string]int64{}
	for _, event := range recorder.Events() {
		if event.Position < last[event.AggregateID] {
			t.Errorf("aggregate %s: %d behind %d", event.AggregateID, event.Position, last[event.AggregateID])
		}
		last[event.AggregateID] = event.Position
	}
}

func TestPassDrainsAHotAggregate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ depth, batches int }{{depth: 1, batches: 50}, {depth: 0, batches: 2}} {
		store, recorder := &outboxtest.Memory{}, &outboxtest.Recorder{}
		for i := range 50 {
			store.Insert(outboxtest.Row{ID: fmt.Sprint(i), AggregateID: "hot", Type: "t"})
		}
		worker, err := outbox.NewWorker(outbox.Config{
			Store: store, Registry: outbox.Registry{"t": {Handler: recorder}}, LaneDepth: c.depth,
		})
		if err != nil {
			t.Fatal(err)
		}
		result, err := worker.Run(t.Context(), outbox.Pass{})
		if err != nil || result.Processed != 50 || result.Batches != c.batches {
			t.Errorf("depth %d: processed %d in %d batches, error %v, want 50 in %d",
				c.depth, result.Processed, result.Batches, err, c.batches)
		}
		for i, event := range recorder.Events() {
			if event.ID != fmt.Sprint(i) {
				t.Fatalf("depth %d: delivery %d is %s, want it in order", c.depth, i, event.ID)
			}
		}
	}
}
