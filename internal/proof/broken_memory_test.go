package proof_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// bent is an in-memory store with one fault.
type bent struct {
	*outboxtest.Memory
	claim  func(context.Context, outbox.ClaimRequest) (outbox.Claim, error)
	settle func(context.Context, []outbox.Settlement, outbox.Backoff) ([]outbox.Answer, error)
}

func (b bent) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	if b.claim == nil {
		return b.Memory.Claim(ctx, req)
	}
	return b.claim(ctx, req)
}

func (b bent) Settle(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
	if b.settle == nil {
		return b.Memory.Settle(ctx, batch, backoff)
	}
	return b.settle(ctx, batch, backoff)
}

type fault func(*outboxtest.Memory) outbox.Store

// asked changes what a claim is asked for.
func asked(change func(*outbox.ClaimRequest)) fault {
	return func(m *outboxtest.Memory) outbox.Store {
		return bent{Memory: m, claim: func(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
			change(&req)
			return m.Claim(ctx, req)
		}}
	}
}

// answered changes what a claim answers.
func answered(change func(*outboxtest.Memory, outbox.ClaimRequest, *outbox.Claim)) fault {
	return func(m *outboxtest.Memory) outbox.Store {
		return bent{Memory: m, claim: func(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
			claim, err := m.Claim(ctx, req)
			change(m, req, &claim)
			return claim, err
		}}
	}
}

// before does something to the store before a claim.
func before(do func(*outboxtest.Memory)) fault {
	return func(m *outboxtest.Memory) outbox.Store {
		return bent{Memory: m, claim: func(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
			do(m)
			return m.Claim(ctx, req)
		}}
	}
}

// settled changes entries on their way into the store.
func settled(change func(*outboxtest.Memory, *outbox.Settlement)) fault {
	return func(m *outboxtest.Memory) outbox.Store {
		return bent{Memory: m, settle: func(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
			batch = slices.Clone(batch)
			for i := range batch {
				change(m, &batch[i])
			}
			return m.Settle(ctx, batch, backoff)
		}}
	}
}

// after does something to the rows of outcomes that took effect.
func after(outcome outbox.Outcome, change func(*outboxtest.Row)) fault {
	return func(m *outboxtest.Memory) outbox.Store {
		return bent{Memory: m, settle: func(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
			answers, err := m.Settle(ctx, batch, backoff)
			for i, s := range batch {
				if err == nil && s.Outcome == outcome && answers[i] != outbox.Missed {
					m.Update(s.EventID, change)
				}
			}
			return answers, err
		}}
	}
}

// headOfRun is the first of an answer's events that has others of its aggregate behind it.
func headOfRun(events []outbox.Event) int {
	for i, e := range events {
		for _, other := range events {
			if other.Aggregate() == e.Aggregate() && other.Position > e.Position {
				return i
			}
		}
	}
	return -1
}

func claimFaults() map[string]fault {
	return map[string]fault{
		"the depth is one more": asked(func(r *outbox.ClaimRequest) { r.LaneDepth = clamped(r.LaneDepth, 25, 1, 1000) + 1 }),
		"the batch is one more": asked(func(r *outbox.ClaimRequest) { r.BatchSize = clamped(r.BatchSize, 25, 1, 1000) + 1 }),
		"held types pass": asked(func(r *outbox.ClaimRequest) {
			r.KnownTypes = slices.Concat(r.KnownTypes, r.HeldTypes)
			r.HeldTypes = nil
		}),
		"known types block":             asked(func(r *outbox.ClaimRequest) { r.KnownTypes = nil }),
		"unknown types pass":            asked(func(r *outbox.ClaimRequest) { r.KnownTypes = eventTypes() }),
		"named lanes are not looked at": asked(func(r *outbox.ClaimRequest) { r.Lanes = nil }),
		"the lease is a second short": answered(func(m *outboxtest.Memory, _ outbox.ClaimRequest, c *outbox.Claim) {
			for _, e := range c.Events {
				m.Update(e.ID, func(r *outboxtest.Row) { r.AvailableAt = r.AvailableAt.Add(-time.Second) })
			}
		}),
		"the ceiling is one more": asked(func(r *outbox.ClaimRequest) { r.MaxAttempts = clamped(r.MaxAttempts, 8, 1, 20) + 1 }),
		"the start is forgotten":  asked(func(r *outbox.ClaimRequest) { r.Cursor = cmp.Or(r.Cursor, "1") }),
		"the cursor is one too far": answered(func(_ *outboxtest.Memory, _ outbox.ClaimRequest, c *outbox.Claim) {
			if c.Cursor != "" && !c.End {
				c.Cursor += "0"
			}
		}),
		"the end comes early":     answered(func(_ *outboxtest.Memory, _ outbox.ClaimRequest, c *outbox.Claim) { c.End = true }),
		"lost lanes are not told": answered(func(_ *outboxtest.Memory, _ outbox.ClaimRequest, c *outbox.Claim) { c.Lost = nil }),
		"an event is leased and not answered": answered(func(_ *outboxtest.Memory, _ outbox.ClaimRequest, c *outbox.Claim) {
			if len(c.Events) > 2 {
				c.Events = c.Events[:len(c.Events)-1]
			}
		}),
		"a run begins at its second row": answered(func(m *outboxtest.Memory, _ outbox.ClaimRequest, c *outbox.Claim) {
			if at := headOfRun(c.Events); at >= 0 {
				m.Update(c.Events[at].ID, func(r *outboxtest.Row) { r.Status, r.Attempts = outboxtest.StatusPending, r.Attempts-1 })
				c.Events = slices.Delete(c.Events, at, at+1)
			}
		}),
		"recovered rows are not told apart": answered(func(_ *outboxtest.Memory, _ outbox.ClaimRequest, c *outbox.Claim) {
			for i := range c.Events {
				c.Events[i].Recovered = false
			}
		}),
		"leases don't hold": before(func(m *outboxtest.Memory) { m.ExpireLeases() }),
		"finished rows come back": before(func(m *outboxtest.Memory) {
			for _, row := range m.Rows() {
				if row.Status == outboxtest.StatusDiscarded {
					m.Update(row.ID, func(r *outboxtest.Row) { r.Status, r.Attempts = outboxtest.StatusPending, 0 })
					return
				}
			}
		}),
		"a delay is cut short": before(func(m *outboxtest.Memory) {
			for _, row := range m.Rows() {
				if row.Status == outboxtest.StatusFailed {
					m.Update(row.ID, func(r *outboxtest.Row) { r.AvailableAt = r.CreatedAt })
				}
			}
		}),
	}
}

func settleFaults() map[string]fault {
	return map[string]fault{
		"the token does not matter": settled(func(m *outboxtest.Memory, s *outbox.Settlement) {
			for _, row := range m.Rows() {
				if row.ID == s.EventID {
					event := outbox.Event{Metadata: row.Metadata}
					s.ClaimToken = event.ClaimToken()
				}
			}
		}),
		"a release charges": after(outbox.Released, func(r *outboxtest.Row) { r.Attempts++ }),
		"a snooze charges":  after(outbox.Snoozed, func(r *outboxtest.Row) { r.Attempts++ }),
		"a retry is free":   after(outbox.Retry, func(r *outboxtest.Row) { r.Attempts = max(r.Attempts-1, 0) }),
		"a retry does not wait": after(outbox.Retry, func(r *outboxtest.Row) {
			if r.Status == outboxtest.StatusFailed {
				r.AvailableAt = r.CreatedAt
			}
		}),
		"a success keeps the error": after(outbox.Processed, func(r *outboxtest.Row) { r.Error = "refused" }),
		"a discard is not dated":    after(outbox.Discarded, func(r *outboxtest.Row) { r.Metadata = []byte("{}") }),
		"a release is delayed": settled(func(_ *outboxtest.Memory, s *outbox.Settlement) {
			if s.Outcome == outbox.Released {
				s.Delay += time.Second
			}
		}),
		"a snooze is a retry": settled(func(_ *outboxtest.Memory, s *outbox.Settlement) {
			if s.Outcome == outbox.Snoozed {
				s.Outcome = outbox.Retry
			}
		}),
		"the second outcome counts too": func(m *outboxtest.Memory) outbox.Store {
			return bent{Memory: m, settle: func(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
				batch = slices.Clone(batch)
				slices.Reverse(batch)
				answers, err := m.Settle(ctx, batch, backoff)
				slices.Reverse(answers)
				return answers, err
			}}
		},
		"the ceiling of a retry is one more": func(m *outboxtest.Memory) outbox.Store {
			return bent{Memory: m, settle: func(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
				backoff.MaxAttempts = clamped(backoff.MaxAttempts, 8, 1, 20) + 1
				return m.Settle(ctx, batch, backoff)
			}}
		},
	}
}

// TestBrokenStoresAreCaught proves that the histories see what they are to see: each fault shows soon.
func TestBrokenStoresAreCaught(t *testing.T) {
	t.Parallel()
	for kind, faults := range map[string]map[string]fault{"claim": claimFaults(), "settle": settleFaults()} {
		for name, wrap := range faults {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				first := firstSeed(t)
				for n := range uint64(schedules / 5) {
					if _, err := playMemory(memorySteps(first+n), wrap, nil); err != nil {
						t.Logf("caught by schedule %d: %v", n, err)
						return
					}
				}
				t.Errorf("%d schedules found nothing wrong", schedules/5)
			})
		}
	}
}

// TestWhatFailsIsMadeShort looks at a report: a fault that few steps show is told in few.
func TestWhatFailsIsMadeShort(t *testing.T) {
	t.Parallel()
	wrap := settleFaults()["a release charges"]
	play := func(steps []uint64, script *[]string) (int, error) { return playMemory(steps, wrap, script) }
	first := firstSeed(t)
	for n := range uint64(schedules) {
		steps := stepsOf(first+n, 40)
		failed, err := play(steps, nil)
		if err == nil || failed < 20 {
			continue
		}
		var short int
		text := report(play, steps[:failed+1], err)
		if _, err := fmt.Sscanf(text[strings.Index(text, "after these "):], "after these %d steps", &short); err != nil {
			t.Fatalf("report: %v\n%s", err, text)
		}
		if short > (failed+1)/2 || !strings.Contains(text, "rows differ") || !strings.Contains(text, "insert [") {
			t.Errorf("%d of %d steps are left, want at most half, and what happened:\n%s", short, failed+1, text)
		}
		return
	}
	t.Error("no long history fails, want one to make short")
}
