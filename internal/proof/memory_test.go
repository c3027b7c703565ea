package proof_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of the histories; 0 draws one")
	timesFlag = flag.Int("times", 1, "how many times the usual number of histories and operations")
)

const schedules = 100_000 // on the in-memory store

// firstSeed is the flag's seed, or a new one; either way it is printed with what fails.
func firstSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("the first seed is %d", seed)
	return seed
}

// start is when a history begins; far from any year's edge, and whole.
const start = micros(1_800_000_000) * second

// memoryTarget is an empty in-memory store. wrap may put something between it and the history.
func memoryTarget(now *micros, wrap func(*outboxtest.Memory) outbox.Store) target {
	m := &outboxtest.Memory{Clock: func() time.Time { return time.UnixMicro(*now) }}
	store, known := wrap(m), map[string]*memorySeen{}
	return target{
		claim: func(req outbox.ClaimRequest) (outbox.Claim, error) { return store.Claim(context.Background(), req) },
		settle: func(batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
			return store.Settle(context.Background(), batch, backoff)
		},
		insert:  func(rows []row) ([]row, error) { return insertMemory(m, rows), nil },
		rows:    func(bool) ([]row, error) { return readMemory(m, known) },
		setNow:  func(at micros) error { *now = at; return nil },
		declare: func(eventType string) error { m.DeclareDormant(eventType); return nil },
		change: func(to row) error {
			m.Update(to.id, func(r *outboxtest.Row) {
				r.Status, r.Attempts, r.AvailableAt = to.status, to.attempts, timeOf(to.available)
			})
			return nil
		},
	}
}

func insertMemory(m *outboxtest.Memory, rows []row) []row {
	made := make([]outboxtest.Row, 0, len(rows))
	for _, r := range rows {
		metadata := "{}"
		if r.meta.Kept > 0 {
			metadata = fmt.Sprintf(`{"kept": %d}`, r.meta.Kept)
		}
		made = append(made, outboxtest.Row{
			ID: r.id, AggregateType: r.aggregate.Type, AggregateID: r.aggregate.ID, Type: r.eventType, Status: r.status,
			Attempts: r.attempts, CreatedAt: timeOf(r.created), AvailableAt: timeOf(r.available), IdempotencyKey: r.id,
			Metadata: json.RawMessage(metadata),
		})
	}
	m.Insert(made...)
	for i := range rows {
		rows[i].position = m.Row(rows[i].id).Position
	}
	return rows
}

// memorySeen is the metadata of a row as it was last read.
type memorySeen struct {
	text string
	meta meta
}

func readMemory(m *outboxtest.Memory, known map[string]*memorySeen) ([]row, error) {
	stored := m.Rows()
	rows := make([]row, 0, len(stored))
	for _, r := range stored {
		seen := known[r.ID]
		if seen == nil || seen.text != string(r.Metadata) {
			seen = &memorySeen{text: string(r.Metadata)}
			if err := json.Unmarshal(r.Metadata, &seen.meta); err != nil {
				return nil, err
			}
			known[r.ID] = seen
		}
		got := row{
			id: r.ID, position: r.Position, aggregate: outbox.Aggregate{Type: r.AggregateType, ID: r.AggregateID},
			eventType: r.Type, status: r.Status, attempts: r.Attempts, created: microsOf(r.CreatedAt),
			available: microsOf(r.AvailableAt), reason: r.Error, meta: seen.meta,
		}
		if !r.ProcessedAt.IsZero() {
			got.processed = microsOf(r.ProcessedAt)
		}
		rows = append(rows, got)
	}
	return rows, nil
}

// longAgo stands for -infinity in Go.
func longAgo() time.Time { return time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC) }

func timeOf(at micros) time.Time {
	if at == math.MinInt64 {
		return longAgo()
	}
	return time.UnixMicro(at)
}

func microsOf(at time.Time) micros {
	if at.Equal(longAgo()) {
		return math.MinInt64
	}
	return at.UnixMicro()
}

// playMemory plays one history on an in-memory store; at a fault it answers the step.
func playMemory(steps []uint64, wrap func(*outboxtest.Memory) outbox.Store, script *[]string) (failed int, err error) {
	now := start
	d := newDice(steps[0])
	h := &history{
		target: memoryTarget(&now, wrap), model: newModel(start), script: script,
		shape: shape{lanes: 1 + d.IntN(4), types: 1 + d.IntN(4), rows: 10},
	}
	for i, seed := range steps {
		if err := h.step(seed); err != nil {
			return i, err
		}
	}
	if d.chance(25) {
		if err := h.drain(d); err != nil {
			return len(steps) - 1, err
		}
	}
	return 0, nil
}

func stepsOf(seed uint64, n int) []uint64 {
	source := rand.New(rand.NewPCG(seed, 5))
	steps := make([]uint64, n)
	for i := range steps {
		steps[i] = source.Uint64()
	}
	return steps
}

// memorySteps is how long a history on the in-memory store is: many short ones see more than few long ones.
func memorySteps(seed uint64) []uint64 { return stepsOf(seed, 3+int(seed%8)) }

func TestMemoryAgreesWithThePlainModel(t *testing.T) {
	t.Parallel()
	first, total := firstSeed(t), uint64(schedules**timesFlag)
	plain := func(m *outboxtest.Memory) outbox.Store { return m }
	var next atomic.Uint64
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for n := next.Add(1) - 1; n < total && !t.Failed(); n = next.Add(1) - 1 {
				steps := memorySteps(first + n)
				if failed, err := playMemory(steps, plain, nil); err != nil {
					play := func(steps []uint64, script *[]string) (int, error) { return playMemory(steps, plain, script) }
					t.Errorf("seed %d:\n%s", first+n, report(play, steps[:failed+1], err))
				}
			}
		})
	}
	group.Wait()
}

// player plays the steps and writes down what it does.
type player func(steps []uint64, script *[]string) (failed int, err error)

// report makes a failing history as short as it can, and tells it.
func report(play player, steps []uint64, err error) string {
	first := steps[0] // it also decides the shape, so it stays
	budget := 400
	for size, before := len(steps)/2, 0; size >= 1; {
		before = len(steps)
		for at := 1; at+size <= len(steps) && budget > 0; budget-- {
			shorter := append(append([]uint64{first}, steps[1:at]...), steps[at+size:]...)
			if failed, shortErr := play(shorter, nil); shortErr != nil {
				steps, err = shorter[:failed+1], shortErr
			} else {
				at += size
			}
		}
		if size > 1 || len(steps) == before { // one by one until nothing more goes
			size /= 2
		}
	}
	var script []string
	if _, again := play(steps, &script); again != nil {
		err = again
	}
	return fmt.Sprintf("%v\n\nafter these %d steps:\n%s", err, len(steps), strings.Join(script, "\n"))
}
