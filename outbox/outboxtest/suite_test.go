package outboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// A suite is worth what it catches. Each fault below is one way to get the contract wrong; the cases that it names
// must fail on it, and no case may be without a fault that it catches.

// fault is a mistake in a store. Nil functions are Memory's own.
type fault struct {
	name   string
	breaks string // the cases that must fail, separated by spaces
	claim  func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error)
	settle func(ctx context.Context, m *Memory, batch []outbox.Settlement, b outbox.Backoff) ([]outbox.Answer, error)
	stats  string
	load   func(ctx context.Context, m *Memory, destinations []string, lease time.Duration) ([]outbox.Circuit, error)
	report func(ctx context.Context, m *Memory, report outbox.CircuitReport) (outbox.Circuit, error)
	prune  func(ctx context.Context, m *Memory, retention outbox.Retention, limit int) (int, error)
	untold func(ctx context.Context, m *Memory, types []string, limit int) ([]outbox.Notice, error)
	told   func(ctx context.Context, m *Memory, notices []outbox.Notice) error
	// ignoresDormant makes a declaration have no effect.
	ignoresDormant bool
}

// broken is a Memory with a fault. Its calls run one at a time.
type broken struct {
	*Memory
	fault fault
	mu    sync.Mutex
}

func (b *broken) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault.claim == nil {
		return b.Memory.Claim(ctx, req)
	}
	return b.fault.claim(ctx, b.Memory, req)
}

func (b *broken) Settle(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault.settle == nil {
		return b.Memory.Settle(ctx, batch, backoff)
	}
	return b.fault.settle(ctx, b.Memory, batch, backoff)
}

func (b *broken) Load(ctx context.Context, destinations []string, lease time.Duration) ([]outbox.Circuit, error) {
	if b.fault.load == nil {
		return b.Memory.Load(ctx, destinations, lease)
	}
	return b.fault.load(ctx, b.Memory, destinations, lease)
}

func (b *broken) Report(ctx context.Context, report outbox.CircuitReport) (outbox.Circuit, error) {
	if b.fault.report == nil {
		return b.Memory.Report(ctx, report)
	}
	return b.fault.report(ctx, b.Memory, report)
}

func (b *broken) Prune(ctx context.Context, retention outbox.Retention, limit int) (int, error) {
	if b.fault.prune == nil {
		return b.Memory.Prune(ctx, retention, limit)
	}
	return b.fault.prune(ctx, b.Memory, retention, limit)
}

func (b *broken) Untold(ctx context.Context, types []string, limit int) ([]outbox.Notice, error) {
	if b.fault.untold == nil {
		return b.Memory.Untold(ctx, types, limit)
	}
	return b.fault.untold(ctx, b.Memory, types, limit)
}

func (b *broken) Told(ctx context.Context, notices []outbox.Notice) error {
	if b.fault.told == nil {
		return b.Memory.Told(ctx, notices)
	}
	return b.fault.told(ctx, b.Memory, notices)
}

func (b *broken) QueueStats(ctx context.Context) (json.RawMessage, error) {
	if b.fault.stats == "" {
		return b.Memory.QueueStats(ctx)
	}
	return json.RawMessage(b.fault.stats), nil
}

func (f fault) harness() Harness {
	m := &Memory{}
	h := Harness{
		Store:          &broken{Memory: m, fault: f},
		Insert:         func(row Row) string { return m.Insert(row)[0] },
		Row:            m.Row,
		Update:         func(row Row) { m.Update(row.ID, func(r *Row) { *r = row }) },
		DeclareDormant: func(eventType string) { m.DeclareDormant(eventType) },
		Now:            time.Now,
		AgeCircuits:    m.Advance,
		Exists:         m.Exists,
	}
	if f.ignoresDormant {
		h.DeclareDormant = func(string) {}
	}
	return h
}

// trial is a testing.TB that keeps a case's failure to itself.
type trial struct {
	testing.TB // for its context

	mu       sync.Mutex
	messages []string
}

func (t *trial) Helper()                           {}
func (t *trial) Cleanup(func())                    {}
func (t *trial) Errorf(format string, args ...any) { t.fail(fmt.Sprintf(format, args...)) }
func (t *trial) Fatalf(format string, args ...any) {
	t.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (t *trial) fail(message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.messages = append(t.messages, message)
}

// try runs a case and returns how it failed.
func try(t *testing.T, c testCase, h Harness) []string {
	t.Helper()
	tr := &trial{TB: t}
	var group sync.WaitGroup
	group.Go(func() { runCase(tr, c, h) })
	group.Wait()
	return tr.messages
}

func TestTheSuiteAcceptsAStoreWithoutFaults(t *testing.T) {
	t.Parallel()
	for _, c := range testCases() {
		if messages := try(t, c, fault{}.harness()); len(messages) > 0 {
			t.Errorf("%s: %s", c.name, messages)
		}
	}
}

func TestTheSuiteCatchesFaults(t *testing.T) {
	t.Parallel()
	for _, f := range faults() {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for _, c := range testCases() {
				if !slices.Contains(strings.Fields(f.breaks), c.name) {
					continue
				}
				messages := try(t, c, f.harness())
				if len(messages) == 0 {
					t.Errorf("%s passed, want it to fail on a store that %s", c.name, f.name)
					continue
				}
				t.Logf("%s: %s", c.name, messages[0])
			}
		})
	}
}

func TestEveryCaseCatchesAFault(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, c := range testCases() {
		if known[c.name] {
			t.Errorf("two cases are named %s", c.name)
		}
		known[c.name] = true
		if c.explanation == "" {
			t.Errorf("%s has no explanation", c.name)
		}
	}
	caught := map[string]bool{}
	for _, f := range faults() {
		for name := range strings.FieldsSeq(f.breaks) {
			caught[name] = true
			if !known[name] {
				t.Errorf("the store that %s is to break %s, which is no case", f.name, name)
			}
		}
	}
	for name := range known {
		if !caught[name] {
			t.Errorf("no fault breaks %s: it may be a case that cannot fail", name)
		}
	}
}
