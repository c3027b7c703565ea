package proof_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/openlup/outbox-dispatch/outbox"
)

// claim judges the answer of a claim, and gives the model its effects. It returns the lanes as they were before.
//
// What must hold: the events of an aggregate are its oldest free ones, at most the lane depth of them; all events are at most
// the batch; a claim that had room left leaves nothing free in the lanes it was to look at; the lost lanes are lost.
func (m *model) claim(req outbox.ClaimRequest, got outbox.Claim) (map[outbox.Aggregate]*lane, error) {
	c := callerOf(req)
	m.discardSpent(c)
	before := m.lanes(c, req.Recover)
	batch, depth := clamped(req.BatchSize, 25, 1, 1000), clamped(req.LaneDepth, 25, 1, 1000)
	if req.Recover {
		batch, depth = 1, 1
	}
	if len(got.Events) > batch {
		return nil, fmt.Errorf("%d events, want at most %d", len(got.Events), batch)
	}
	taken := map[outbox.Aggregate]int{}
	events := slices.SortedFunc(slices.Values(got.Events), func(a, b outbox.Event) int { return cmp.Compare(a.Position, b.Position) })
	for _, e := range events {
		of, n := e.Aggregate(), taken[e.Aggregate()]
		if taken[of]++; n >= depth {
			return nil, fmt.Errorf("%d events of %s, want at most %d", n+1, of.ID, depth)
		}
		if before[of] == nil || n >= len(before[of].free) || before[of].free[n].id != e.ID {
			return nil, fmt.Errorf("event %d of %s is %s at %d, want one of the free rows in their order: %s",
				n+1, of.ID, e.ID, e.Position, show(before[of]))
		}
	}
	if len(events) < batch { // there was room left
		for _, of := range req.Lanes {
			if before[of] != nil && taken[of] < min(depth, len(before[of].free)) {
				return nil, fmt.Errorf("%d events of the named lane %s, which has %s", taken[of], of.ID, show(before[of]))
			}
		}
	}
	for _, of := range got.Lost {
		if req.Recover || before[of] == nil || before[of].lost == nil {
			return nil, fmt.Errorf("lane %s is reported lost: %s", of.ID, show(before[of]))
		}
	}
	for _, of := range got.Leased {
		if before[of] == nil || (before[of].leased == nil && taken[of] == 0) { // what this call took is leased, too
			return nil, fmt.Errorf("lane %s is reported leased: %s", of.ID, show(before[of]))
		}
	}
	if req.Recover {
		if err := m.recovered(req, events, before); err != nil {
			return nil, err
		}
	}
	visibility := clamped(int(req.Visibility.Seconds()), 300, 300, 3600)
	for _, e := range events {
		if err := m.take(e, visibility, req.Recover); err != nil {
			return nil, err
		}
	}
	return before, nil
}

// recovered judges a claim of one lost row: the oldest free one of the named lanes.
func (m *model) recovered(req outbox.ClaimRequest, events []outbox.Event, lanes map[outbox.Aggregate]*lane) error {
	var want *row
	for _, of := range req.Lanes {
		if l := lanes[of]; l != nil && len(l.free) > 0 && (want == nil || l.free[0].position < want.position) {
			want = l.free[0]
		}
	}
	if (want == nil) != (len(events) == 0) || (want != nil && events[0].ID != want.id) {
		return fmt.Errorf("recovered %d events, want the oldest free one: %+v", len(events), want)
	}
	return nil
}

// take leases the row of an event, and compares the two.
func (m *model) take(e outbox.Event, visibility int, recovered bool) error {
	var md meta
	if err := json.Unmarshal(e.Metadata, &md); err != nil {
		return fmt.Errorf("metadata of event %s: %w", e.ID, err)
	}
	if len(md.Token) != 36 || m.tokens[md.Token] {
		return fmt.Errorf("event %s has the token %q, want a fresh one", e.ID, md.Token)
	}
	r := m.find(e.ID)
	m.lease(r, visibility, md.Token)
	if e.Position != r.position || e.Type != r.eventType || e.Attempts != r.attempts || e.CreatedAt.UnixMicro() != r.created ||
		md != r.meta || e.Recovered != recovered || string(e.Payload) != "{}" {
		return fmt.Errorf("event %+v, want it as its row: %+v", e, *r)
	}
	return nil
}

// claimOne is the contract's claim: of each aggregate its oldest row, if that is free, oldest first.
func (m *model) claimOne(c caller, batch, visibility int, tokens map[string]string) error {
	m.discardSpent(c)
	var want []*row
	for _, l := range m.lanes(c, true) {
		if len(l.free) > 0 {
			want = append(want, l.free[0])
		}
	}
	slices.SortFunc(want, func(a, b *row) int { return cmp.Compare(a.position, b.position) })
	want = want[:min(len(want), batch)]
	for _, r := range want {
		token, found := tokens[r.id]
		if !found || token == "" || m.tokens[token] {
			return fmt.Errorf("row %+v is not among the %d claimed under a fresh token, want it: it is free", *r, len(tokens))
		}
		m.lease(r, visibility, token)
	}
	if len(tokens) != len(want) {
		return fmt.Errorf("%d rows claimed, want the %d oldest free ones", len(tokens), len(want))
	}
	return nil
}

func show(l *lane) string {
	if l == nil {
		return "no row that blocks"
	}
	text := ""
	for _, r := range l.free {
		text += fmt.Sprintf("%s at %d; ", r.id, r.position)
	}
	return fmt.Sprintf("free %q, lost %t, leased %t", text, l.lost != nil, l.leased != nil)
}
