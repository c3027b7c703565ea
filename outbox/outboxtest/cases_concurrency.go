package outboxtest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/openlup/outbox-dispatch/outbox"
)

// claimers is how many goroutines claim and settle at once.
const claimers = 8

// concurrencyCases: several workers on the same data.
func concurrencyCases() []testCase {
	return []testCase{
		{"concurrency/claimers", "however claims overlap, a row has one holder, and so have the rows of an aggregate that are out", checkClaimers},
		{"concurrency/one_queue", "claims at the same moment share the queue and never a row", checkOneQueue},
		{"concurrency/settlers", "overlapping settles in any order neither fail nor settle a row twice", checkSettlers},
	}
}

func checkOneQueue(s *suite) {
	const rows = 120
	s.insertMany(rows, "x", Row{})
	ledger := newLedger()
	together(func(int) {
		// Rows locked elsewhere may be skipped: a claim that finds nothing is not yet the end.
		for range 500 {
			claim, err := s.Store.Claim(s.Context(), outbox.ClaimRequest{EventTypes: []string{typeMine}, BatchSize: 5})
			ledger.claimed(claim.Events, err)
			if ledger.done(rows) {
				return
			}
		}
	})
	ledger.report(s, rows)
}

// together runs do claimers times at once and waits.
func together(do func(i int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range claimers {
		group.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	group.Wait()
}

// ledger watches who holds what.
type ledger struct {
	mu     sync.Mutex
	count  map[string]int // key -> claims
	out    map[string]int // aggregate -> which claim's rows are out
	claims int
	last   map[string]int64 // aggregate -> position claimed last
	faults []string
}

func newLedger() *ledger {
	return &ledger{count: map[string]int{}, out: map[string]int{}, last: map[string]int64{}}
}

func (l *ledger) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

func (l *ledger) claimed(events []outbox.Event, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.fault("Claim: %v", err)
	}
	l.claims++
	events = slices.SortedFunc(slices.Values(events), func(a, b outbox.Event) int { return cmp.Compare(a.Position, b.Position) })
	for _, event := range events {
		key, of := event.IdempotencyKey, event.AggregateID
		if l.count[key]++; l.count[key] > 1 {
			l.fault("%s was claimed %d times", key, l.count[key])
		}
		if other := l.out[of]; other != 0 && other != l.claims {
			l.fault("%s was claimed while others of its aggregate were out", key)
		}
		if event.Position < l.last[of] {
			l.fault("%s was claimed after a younger row of its aggregate", key)
		}
		l.out[of], l.last[of] = l.claims, event.Position
	}
}

// settling must come before the settle, after which the row's follower is free.
func (l *ledger) settling(events []outbox.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range events {
		delete(l.out, event.AggregateID)
	}
}

func (l *ledger) done(want int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.count) >= want || len(l.faults) > 0
}

func (l *ledger) report(s *suite, want int) {
	s.Helper()
	for _, fault := range l.faults[:min(len(l.faults), 10)] {
		s.Errorf("%s", fault)
	}
	if len(l.count) != want {
		s.Errorf("%d rows were claimed, want all %d", len(l.count), want)
	}
}

func checkClaimers(s *suite) {
	const aggregates, depth = 20, 8
	// Rows of an aggregate lie side by side: who skips a head that another holds stumbles on its follower.
	for a := range aggregates {
		for n := range depth {
			s.insert(fmt.Sprintf("%d/%d", a, n))
		}
	}
	ledger := newLedger()
	together(func(i int) {
		for range 2000 { // many times what draining takes
			if ledger.done(aggregates * depth) {
				return
			}
			drain(s, ledger, 1+i)
		}
	})
	ledger.report(s, aggregates*depth)
}

// drain claims one batch and delivers it.
func drain(s *suite, ledger *ledger, batchSize int) {
	// Odd claimers take runs, even ones single rows: they share a queue.
	claim, err := s.Store.Claim(s.Context(), outbox.ClaimRequest{
		EventTypes: []string{typeMine}, BatchSize: batchSize, LaneDepth: 1 + 3*(batchSize%2),
	})
	events := claim.Events
	ledger.claimed(events, err)
	if len(events) == 0 {
		return
	}
	var batch []outbox.Settlement
	for _, event := range events {
		batch = append(batch, settlement(event, outbox.Processed))
	}
	ledger.settling(events)
	answers, err := s.Store.Settle(s.Context(), batch, outbox.Backoff{})
	ledger.mu.Lock()
	defer ledger.mu.Unlock()
	if err != nil {
		ledger.fault("Settle: %v", err)
	}
	for i, answer := range answers {
		if answer != outbox.AnswerProcessed {
			ledger.fault("%s was answered %q, want processed", events[i].IdempotencyKey, answer)
		}
	}
}

func checkSettlers(s *suite) {
	s.insertMany(40, "x", Row{})
	for range 5 {
		req := request()
		req.BatchSize = 40
		events := s.claim(req)
		if len(events) != 40 {
			s.Fatalf("claimed %d rows, want 40", len(events))
		}
		released := make([][]int, claimers) // of each settler, the events it released
		errs := make([]error, claimers)
		together(func(i int) {
			released[i], errs[i] = releaseShuffled(s.Context(), s.Store, events)
		})
		count := make([]int, len(events))
		for i := range claimers {
			if errs[i] != nil {
				s.Errorf("Settle: %v", errs[i])
			}
			for _, n := range released[i] {
				count[n]++
			}
		}
		for n, times := range count {
			if times != 1 {
				s.Errorf("%s was released %d times, want once", events[n].IdempotencyKey, times)
			}
		}
	}
}

// releaseShuffled gives all events back in an order of its own, and returns the indices of those that it settled.
func releaseShuffled(ctx context.Context, store outbox.Store, events []outbox.Event) ([]int, error) {
	order := rand.Perm(len(events))
	batch := make([]outbox.Settlement, 0, len(events))
	for _, n := range order {
		batch = append(batch, settlement(events[n], outbox.Released))
	}
	answers, err := store.Settle(ctx, batch, outbox.Backoff{})
	if err != nil {
		return nil, err
	}
	if len(answers) != len(batch) {
		return nil, fmt.Errorf("%d answers, want %d", len(answers), len(batch))
	}
	var released []int
	for i, answer := range answers {
		if answer == outbox.AnswerReleased {
			released = append(released, order[i])
		}
	}
	return released, nil
}
