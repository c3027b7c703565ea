package outbox_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

var (
	simulations = flag.Int("simulations", 40, "worlds of destinations that TestSimulations plays")
	simulation  = flag.Uint64("simulation", 0, "the one world to play again; 0 plays new ones")
)

// TestSimulations plays worlds of destinations with limits, batches, parts, shared circuits, odd answers, crashes and cancelled
// passes, then lets everything be well, and wants the queue to empty: in order, once each, within every limit.
func TestSimulations(t *testing.T) {
	t.Parallel()
	seeds := []uint64{*simulation}
	if *simulation == 0 {
		seeds = seeds[:0]
		for range *simulations {
			seeds = append(seeds, rand.Uint64()>>1)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				playWorld(t, seed)
				if t.Failed() {
					t.Logf("play it again: go test ./outbox -run TestSimulations -simulation %d", seed)
				}
			})
		})
	}
}

// witness sees what handlers are called with.
type witness struct {
	mu      sync.Mutex
	dice    *rand.Rand
	well    bool              // nothing goes wrong any more
	busy    map[string]string // aggregate: the event that is handled
	last    map[string]int64  // aggregate: the last position delivered
	started map[string]int    // event: calls
	done    map[string]int    // event: deliveries
	calls   map[string]int    // gate: calls under way
	most    map[string]int    // gate: calls allowed at once; 0: any number
	faults  []string
}

func (w *witness) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// roll is true once in n times, while things may go wrong.
func (w *witness) roll(n int) bool { return !w.well && w.dice.IntN(n) == 0 }

func (w *witness) begin(gate string, events []outbox.Event) {
	w.calls[gate]++
	if most := w.most[gate]; most > 0 && w.calls[gate] > most {
		w.fault("%d calls of %s at once, want %d at most", w.calls[gate], gate, most)
	}
	for _, e := range events {
		if e.Type != events[0].Type {
			w.fault("a batch of %s and %s", e.Type, events[0].Type)
		}
		if other := w.busy[e.AggregateID]; other != "" {
			w.fault("%s beside %s of the same aggregate", e.ID, other)
		}
		w.busy[e.AggregateID] = e.ID
		w.started[e.ID]++
	}
}

func (w *witness) end(gate string, events []outbox.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[gate]--
	for _, e := range events {
		delete(w.busy, e.AggregateID)
	}
}

// answer is what becomes of one event.
func (w *witness) answer(e outbox.Event) error {
	switch {
	case w.roll(25):
		return errors.New("refused")
	case w.roll(25):
		return outbox.Discard(errors.New("bad"))
	case w.roll(25):
		return outbox.Snooze(errors.New("503"), time.Duration(w.dice.IntN(200))*time.Second)
	case w.roll(25):
		return outbox.Benign(errors.New("not wanted"))
	}
	if w.done[e.ID]++; w.done[e.ID] > 1 {
		w.fault("%s was delivered twice", e.ID)
	}
	if e.Position < w.last[e.AggregateID] {
		w.fault("%s was delivered after a younger event of its aggregate", e.ID)
	}
	w.last[e.AggregateID] = e.Position
	return nil
}

// player is a handler of a simulation. Its events weigh one to four.
type player struct {
	*witness
	gate string
	rate *outbox.Limit
}

func (p *player) Weight(e outbox.Event) int {
	if p.mu.Lock(); p.roll(200) {
		defer p.mu.Unlock()
		panic("no weight")
	}
	p.mu.Unlock()
	return 1 + int(e.Position%4)
}

func (p *player) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	return nil, p.handle(ctx, []outbox.Event{event})[0].Err
}

func (p *player) handle(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	p.mu.Lock()
	p.begin(p.gate, events)
	wait, panics := time.Duration(p.dice.IntN(1500))*time.Millisecond, p.roll(30)
	if p.roll(40) {
		wait = time.Hour
	}
	if p.rate != nil && p.roll(30) {
		p.rate.Set(float64(5 + p.dice.IntN(30)))
	}
	p.mu.Unlock()
	defer p.end(p.gate, events)
	answers := make([]outbox.Delivery, len(events))
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		for i := range answers {
			answers[i].Err = ctx.Err()
		}
		return answers
	}
	if panics {
		panic("poison")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range events {
		answers[i].Err = p.answer(e)
	}
	return answers
}

// batchPlayer takes batches, and now and then says odd things of them.
type batchPlayer struct {
	player
	limit int
}

func (p *batchPlayer) BatchLimit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.roll(40):
		panic("no limit")
	case p.roll(40):
		return -5
	case p.roll(40):
		return 1 << 40
	}
	return p.limit
}

func (p *batchPlayer) HandleBatch(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	answers := p.handle(ctx, events)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roll(15) {
		answers = append(answers, outbox.Delivery{Err: errors.New("one too many")})
	}
	return answers
}

// registryOf makes up to five gates, some of one circuit, with up to four types more than gates.
func (w *witness) registryOf(dice *rand.Rand) outbox.Registry {
	registry, gates := outbox.Registry{}, 1+dice.IntN(5)
	shared := make([]outbox.Route, gates)
	for i := range shared {
		route := outbox.Route{Gate: fmt.Sprint("gate", i), Destination: fmt.Sprint("destination", i*min(1, dice.IntN(4)))}
		if dice.IntN(2) == 0 {
			route.Concurrency = 1 + dice.IntN(3)
			w.most[route.Gate] = route.Concurrency
		}
		if dice.IntN(2) == 0 {
			route.Limit = outbox.NewLimit([]float64{3, 10, 40, 100}[dice.IntN(4)])
		}
		if dice.IntN(3) == 0 {
			route.Part = func(e outbox.Event) string { return []string{"", "a", "b", "c"}[e.Position%4] }
		}
		shared[i] = route
	}
	for i := range gates + dice.IntN(4) {
		route := shared[i%gates]
		one := player{w, route.Gate, route.Limit}
		route.Handler = &one
		if dice.IntN(3) > 0 {
			route.Handler = &batchPlayer{one, []int{0, 1, 5, 10, 50}[dice.IntN(5)]}
		}
		route.Timeout = time.Duration(2+dice.IntN(8)) * time.Second
		if dice.IntN(5) == 0 {
			route.MaxAge = time.Duration(5+dice.IntN(60)) * time.Minute
		}
		registry[fmt.Sprint("type", i)] = route
	}
	return registry
}

// simulated is one world.
type simulated struct {
	*testing.T
	dice   *rand.Rand
	store  *outboxtest.Memory
	worker *outbox.Worker
	types  []string
	died   bool // some process did
}

func playWorld(t *testing.T, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 7))
	w := &witness{
		dice: rand.New(rand.NewPCG(seed, 8)), busy: map[string]string{}, last: map[string]int64{}, started: map[string]int{},
		done: map[string]int{}, calls: map[string]int{}, most: map[string]int{},
	}
	store := &outboxtest.Memory{}
	config := outbox.Config{
		Store: store, Registry: w.registryOf(dice), Snooze: time.Minute, MaxAttempts: 20, MaxSnoozes: 1000,
		BatchSize: []int{1, 5, 25, 100}[dice.IntN(4)], LaneDepth: []int{0, 1, 5}[dice.IntN(3)], Concurrency: []int{1, 2, 8, 16}[dice.IntN(4)],
	}
	if dice.IntN(3) > 0 {
		config.Circuits = store
	}
	if dice.IntN(4) == 0 {
		config.Linger = 3 * time.Second
	}
	worker, err := outbox.NewWorker(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulated{T: t, dice: dice, store: store, worker: worker}
	for i := range len(config.Registry) {
		s.types = append(s.types, fmt.Sprint("type", i))
	}
	for aggregates := 1 + dice.IntN(100); len(store.Rows()) < 200; {
		for range 100 {
			store.Insert(outboxtest.Row{Type: s.types[dice.IntN(len(s.types))], AggregateID: fmt.Sprint("a", dice.IntN(aggregates))})
		}
	}
	for range 12 {
		s.trouble()
	}
	w.mu.Lock()
	w.well = true
	w.mu.Unlock()
	for range 480 { // four hours
		s.run(outbox.Pass{SoftBudget: 50 * time.Second}, 0)
		if s.left() == 0 {
			break
		}
		time.Sleep(30 * time.Second)
	}
	s.judge(w)
	time.Sleep(2 * time.Hour) // for handlers that were abandoned
}

// trouble is a pass that may be cut short, of some types only, perhaps after another process died.
func (s *simulated) trouble() {
	pass, cancelAfter := outbox.Pass{SoftBudget: time.Duration(5+s.dice.IntN(60)) * time.Second}, time.Duration(0)
	switch s.dice.IntN(6) {
	case 0:
		cancelAfter = time.Duration(1+s.dice.IntN(5000)) * time.Millisecond
	case 1:
		pass.EventTypes = s.types[:1+s.dice.IntN(len(s.types))]
	}
	if s.dice.IntN(6) == 0 {
		s.died = true
		_, err := s.store.Claim(s.Context(), outbox.ClaimRequest{EventTypes: s.types, BatchSize: 1 + s.dice.IntN(20), MaxAttempts: 20})
		if err != nil {
			s.Fatal(err)
		}
	}
	s.run(pass, cancelAfter)
	time.Sleep(time.Duration(s.dice.IntN(90)) * time.Second)
}

func (s *simulated) run(pass outbox.Pass, cancelAfter time.Duration) {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	limit := pass.SoftBudget + 3*time.Second
	if cancelAfter > 0 {
		time.AfterFunc(cancelAfter, cancel)
		limit = min(limit, cancelAfter+time.Second)
	}
	began := time.Now()
	result, err := s.worker.Run(ctx, pass)
	if took := time.Since(began); err != nil || took > limit || result.LeaseLost > 0 {
		s.Errorf("a pass took %v of %v, lost %d leases, error %v", took, limit, result.LeaseLost, err)
	}
	for _, row := range s.store.Rows() {
		if row.Status == outboxtest.StatusProcessing && !s.died {
			s.Fatalf("%s is still leased after the pass", row.ID)
		}
	}
}

func (s *simulated) left() (n int) {
	for _, row := range s.store.Rows() {
		if row.Status != outboxtest.StatusProcessed && row.Status != outboxtest.StatusDiscarded {
			n++
		}
	}
	return n
}

func (s *simulated) judge(w *witness) {
	if left := s.left(); left > 0 {
		s.Errorf("%d events are left, want none", left)
	}
	for _, row := range s.store.Rows() {
		aged := strings.HasPrefix(row.Error, outbox.ReasonMaxAge)
		if row.Attempts > w.started[row.ID] && !s.died && !aged {
			s.Errorf("%s was charged %d attempts, and started %d times", row.ID, row.Attempts, w.started[row.ID])
		}
		if row.Status == outboxtest.StatusProcessed && w.done[row.ID] != 1 {
			s.Errorf("%s is processed, and was delivered %d times", row.ID, w.done[row.ID])
		}
	}
	for _, fault := range w.faults[:min(5, len(w.faults))] {
		s.Error(fault)
	}
}
