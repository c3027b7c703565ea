package outboxtest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// openMemory is how a store is handed to the suite.
func openMemory(t *testing.T) outboxtest.Harness {
	t.Helper()
	t.Parallel()
	store := &outboxtest.Memory{}
	return outboxtest.Harness{
		Store:  store,
		Insert: func(row outboxtest.Row) string { return store.Insert(row)[0] },
		Row:    store.Row,
		Update: func(row outboxtest.Row) {
			store.Update(row.ID, func(r *outboxtest.Row) { *r = row })
		},
		DeclareDormant: func(eventType string) { store.DeclareDormant(eventType) },
		Now:            time.Now,
		AgeCircuits:    store.Advance,
		Exists:         store.Exists,
	}
}

func TestMemoryPassesTheSuite(t *testing.T) {
	t.Parallel()
	outboxtest.TestStore(t, openMemory)
}

// claimOne claims the only claimable event of order.placed.
func claimOne(t *testing.T, store outbox.Store) outbox.Event {
	t.Helper()
	events := claimAll(t, store)
	if len(events) != 1 {
		t.Fatalf("claimed %d events, want 1", len(events))
	}
	return events[0]
}

// claimAll claims what can be claimed, or else one event whose lease ran out.
func claimAll(t *testing.T, store outbox.Store) []outbox.Event {
	t.Helper()
	req := outbox.ClaimRequest{EventTypes: []string{"order.placed"}}
	claim, err := store.Claim(t.Context(), req)
	if err == nil && len(claim.Events) == 0 && len(claim.Lost) > 0 {
		req.Recover, req.Lanes = true, claim.Lost
		claim, err = store.Claim(t.Context(), req)
	}
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	return claim.Events
}

func TestMemoryInsertFillsInWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	store := &outboxtest.Memory{Clock: func() time.Time { return at }}
	ids := store.Insert(outboxtest.Row{Type: "order.placed"}, outboxtest.Row{Type: "order.placed", Attempts: 3})
	rows := store.Rows()
	if len(rows) != 2 || rows[0].ID != ids[0] || rows[1].ID != ids[1] {
		t.Fatalf("rows are %+v, want those with the ids %q in that order", rows, ids)
	}
	got := rows[0]
	if got.Position != 1 || rows[1].Position != 2 {
		t.Errorf("positions are %d and %d, want 1 and 2", got.Position, rows[1].Position)
	}
	if got.Status != outboxtest.StatusPending || got.Attempts != 0 || rows[1].Attempts != 3 {
		t.Errorf("row is %s after %d attempts, want pending after 0", got.Status, got.Attempts)
	}
	if !got.CreatedAt.Equal(at) || !got.AvailableAt.Equal(at) || !got.ProcessedAt.IsZero() {
		t.Errorf("times are %v, %v and %v, want now, now and none", got.CreatedAt, got.AvailableAt, got.ProcessedAt)
	}
	if got.AggregateType != "test" || got.AggregateID == "" || got.AggregateID == rows[1].AggregateID || got.IdempotencyKey == "" {
		t.Errorf("row is %+v, want an aggregate of its own and a key", got)
	}
	if string(got.Payload) != "{}" || string(got.Metadata) != "{}" {
		t.Errorf("payload and metadata are %s and %s, want {} and {}", got.Payload, got.Metadata)
	}
}

func TestMemoryInsertPanicsOnWhatPostgreSQLRefuses(t *testing.T) {
	t.Parallel()
	taken := outboxtest.Row{ID: "1", Type: "order.placed", IdempotencyKey: "k"}
	for name, row := range map[string]outboxtest.Row{
		"no type":           {},
		"blank type":        {Type: "  "},
		"blank key":         {Type: "order.placed", IdempotencyKey: " "},
		"blank aggregate":   {Type: "order.placed", AggregateType: " "},
		"unknown status":    {Type: "order.placed", Status: "done"},
		"negative attempts": {Type: "order.placed", Attempts: -1},
		"malformed payload": {Type: "order.placed", Payload: json.RawMessage(`{`)},
		"malformed meta":    {Type: "order.placed", Metadata: json.RawMessage(``)},
		"id taken":          {Type: "order.placed", ID: "1"},
		"key taken":         {Type: "order.placed", IdempotencyKey: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &outboxtest.Memory{}
			store.Insert(taken)
			defer func() {
				if recover() == nil {
					t.Errorf("Insert(%+v) returned, want a panic", row)
				}
				if got := len(store.Rows()); got != 1 {
					t.Errorf("the store has %d rows, want 1", got)
				}
			}()
			store.Insert(row)
		})
	}
}

func TestMemoryLetsEqualKeysOfOtherTypesIn(t *testing.T) {
	t.Parallel()
	store := &outboxtest.Memory{}
	store.Insert(outboxtest.Row{Type: "order.placed", IdempotencyKey: "k"}, outboxtest.Row{Type: "order.paid", IdempotencyKey: "k"})
	if got := len(store.Rows()); got != 2 {
		t.Errorf("the store has %d rows, want 2", got)
	}
}

func TestMemoryCopiesWhatItIsGivenAndGives(t *testing.T) {
	t.Parallel()
	store := &outboxtest.Memory{}
	payload := json.RawMessage(`{"n":1}`)
	id := store.Insert(outboxtest.Row{Type: "order.placed", Payload: payload})[0]
	payload[5] = '9'
	store.Row(id).Payload[5] = '9'
	store.Rows()[0].Payload[5] = '9'
	claimOne(t, store).Payload[5] = '9'
	store.Update(id, func(row *outboxtest.Row) { row.ID, row.Position = "other", 77 })
	if got := store.Row(id); string(got.Payload) != `{"n":1}` || got.Position != 1 {
		t.Errorf("row is %+v, want it as inserted", got)
	}
}

func TestMemoryAdvanceEndsDelays(t *testing.T) {
	t.Parallel()
	store := &outboxtest.Memory{}
	store.Insert(outboxtest.Row{Type: "order.placed", AvailableAt: time.Now().Add(time.Hour)})
	if got := len(claimAll(t, store)); got != 0 {
		t.Fatalf("claimed %d events before they were due, want 0", got)
	}
	store.Advance(59 * time.Minute)
	store.Advance(2 * time.Minute)
	if claimOne(t, store).Recovered {
		t.Errorf("the event is recovered, want so only after a lease ran out")
	}
	store.Advance(6 * time.Minute)
	if !claimOne(t, store).Recovered {
		t.Errorf("the event is not recovered after its lease ran out, want it so")
	}
}

func TestMemoryExpireLeasesActsAsAKilledProcess(t *testing.T) {
	t.Parallel()
	store := &outboxtest.Memory{}
	store.Insert(outboxtest.Row{Type: "order.placed"}, outboxtest.Row{Type: "order.placed"})
	if got := len(claimAll(t, store)); got != 2 {
		t.Fatalf("claimed %d events, want 2", got)
	}
	if got := store.ExpireLeases(); got != 2 {
		t.Errorf("ended %d leases, want 2", got)
	}
	for range 2 {
		if event := claimOne(t, store); !event.Recovered || event.Attempts != 2 {
			t.Errorf("claimed %+v, want a recovered event on its second attempt", event)
		}
	}
}

func TestMemoryStatsCountUnfinishedRows(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	store := &outboxtest.Memory{Clock: func() time.Time { return at }}
	store.Insert(
		outboxtest.Row{Type: "a", AvailableAt: at.Add(-time.Minute)},
		outboxtest.Row{Type: "a", AvailableAt: at.Add(-time.Hour), Status: outboxtest.StatusProcessing},
		outboxtest.Row{Type: "b", AvailableAt: at.Add(time.Hour)},
		outboxtest.Row{Type: "b", Status: outboxtest.StatusProcessed},
		outboxtest.Row{Type: "c", Status: outboxtest.StatusDiscarded},
	)
	got, err := store.QueueStats(t.Context())
	if err != nil {
		t.Fatalf("QueueStats: %v", err)
	}
	want := `{"unfinished":3,"capped":false,"oldestDueSeconds":60,"byEventType":` +
		`{"a":{"unfinished":2,"oldestDueSeconds":60},"b":{"unfinished":1,"oldestDueSeconds":0}}}`
	if string(got) != want {
		t.Errorf("statistics are\n%s, want\n%s", got, want)
	}
}
