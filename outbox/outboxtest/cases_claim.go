package outboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// claimCases: what a claim may take, and what it leaves behind.
func claimCases() []testCase {
	return []testCase{
		{"claim/needs_types", "a missing filter must never widen into everything", checkClaimNeedsTypes},
		{"claim/blank_types_claim_nothing", "types are counted before blanks are dropped", checkClaimBlankTypesClaimNothing},
		{"claim/types_compare_exactly", "a type is neither trimmed nor folded", checkClaimTypesCompareExactly},
		{"claim/empty_queue", "an empty answer is no error", checkClaimEmptyQueue},
		{"claim/not_before_due", "a row is not claimable before available_at", checkClaimNotBeforeDue},
		{"claim/never_finished_rows", "processed and discarded are final", checkClaimNeverFinishedRows},
		{"claim/leased_rows_are_taken", "a lease keeps everybody else away until it ends", checkClaimLeasedRowsAreTaken},
		{"claim/oldest_first", "order is position, which neither created_at nor the id follows", checkOldestFirst},
		{
			"claim/insert_order_of_an_aggregate", "events of one transaction share created_at: only position orders them",
			checkInsertOrder,
		},
		{"claim/writes_the_lease", "a claim charges an attempt, and leaves a token and its time", checkLease},
		{"claim/returns_the_row", "an event is the row as it is after the claim", checkEvent},
		{"claim/keeps_the_rest", "what a claim does not name keeps its value", checkClaimKeeps},
		{"claim/payload_untouched", "a payload is the producer's, whatever JSON it is", checkPayloads},
		{"claim/cancelled", "a call under a cancelled context fails and leases nothing", checkClaimCancelled},
		{"stats/are_json", "statistics, where a store has them, are one JSON value or nil", checkStats},
	}
}

func checkClaimNeedsTypes(s *suite) {
	s.insert("a/1")
	if claim, err := s.Store.Claim(s.Context(), outbox.ClaimRequest{}); err == nil {
		s.Errorf("a claim without event types returned %q and no error", keysOf(claim.Events))
	}
	s.wantRow("a/1", StatusPending, 0)
}

func checkClaimBlankTypesClaimNothing(s *suite) {
	s.insert("a/1")
	s.wantClaim(request("", "  "), "")
}

func checkClaimTypesCompareExactly(s *suite) {
	s.insertRow("a/1", Row{Type: typeMine + " "})
	s.insertRow("b/1", Row{Type: strings.ToUpper(typeMine)})
	s.insertRow("c/1", Row{Type: typeOther})
	s.insert("d/1")
	s.wantClaim(request(), "d/1")
}

func checkClaimEmptyQueue(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.wantClaim(request(), "")
}

func checkClaimNotBeforeDue(s *suite) {
	s.insertRow("a/1", Row{AvailableAt: s.Now().Add(time.Hour)})
	s.insertRow("b/1", Row{AvailableAt: s.Now().Add(time.Hour), Status: StatusFailed, Attempts: 1})
	s.insertRow("c/1", Row{AvailableAt: s.Now().Add(-time.Hour), Status: StatusFailed, Attempts: 1})
	s.wantClaim(request(), "c/1")
	s.expire("a/1", "b/1")
	s.wantClaim(request(), "a/1 b/1")
}

func checkClaimNeverFinishedRows(s *suite) {
	s.insertRow("a/1", Row{Status: StatusProcessed})
	s.insertRow("b/1", Row{Status: StatusDiscarded})
	s.wantClaim(request(), "")
}

func checkClaimLeasedRowsAreTaken(s *suite) {
	s.insert("a/1", "b/1")
	s.wantClaim(request(), "a/1 b/1")
	s.wantLost(request(), "", "")
}

func checkClaimCancelled(s *suite) {
	s.insert("a/1")
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.Store.Claim(ctx, request()); err == nil {
		s.Errorf("a claim under a cancelled context returned no error")
	}
	s.wantRow("a/1", StatusPending, 0)
}

func checkOldestFirst(s *suite) {
	now := s.Now()
	for i, key := range []string{"a/1", "b/1", "c/1", "d/1"} {
		// The later the insert, the earlier everything else that could be taken for an order.
		s.insertRow(key, Row{
			ID:          fmt.Sprintf("%d0000000-0000-4000-8000-000000000000", 9-i),
			CreatedAt:   now.Add(-time.Duration(i+1) * time.Hour),
			AvailableAt: now.Add(-time.Duration(i+1) * time.Minute),
		})
	}
	req := request()
	req.BatchSize = 2
	s.wantClaim(req, "a/1 b/1")
	s.wantClaim(req, "c/1 d/1")
}

func checkInsertOrder(s *suite) {
	began := s.Now().Add(-time.Minute)
	for i := range 10 {
		// The second has the smaller id, and in every other pair the earlier created_at.
		for n, key := range []string{"first", "second"} {
			s.insertRow(fmt.Sprintf("%d/%s", i, key), Row{
				ID:        fmt.Sprintf("%d0000000-0000-4000-8000-%012d", 2-n, i),
				CreatedAt: began.Add(-time.Duration(n*(i%2)) * time.Second),
			})
		}
	}
	for _, want := range []string{"first", "second"} {
		events := s.claim(request())
		if len(events) != 10 {
			s.Fatalf("claimed %q, want the %s event of each of 10 aggregates", keysOf(events), want)
		}
		for _, event := range events {
			if !strings.HasSuffix(event.IdempotencyKey, "/"+want) {
				s.Errorf("claimed %s, want the %s event of its aggregate", event.IdempotencyKey, want)
			}
			s.wantAnswers([]outbox.Settlement{settlement(event, outbox.Processed)}, outbox.AnswerProcessed)
		}
	}
}

func checkLease(s *suite) {
	s.insert("a/1")
	s.insertRow("b/1", Row{Status: StatusFailed, Attempts: 3})
	var events []outbox.Event
	at := s.during(func() { events = s.wantClaim(request(), "a/1 b/1") })
	tokens := map[string]bool{}
	for _, event := range events {
		tokens[event.ClaimToken()] = true
		if v4 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`); !v4.MatchString(event.ClaimToken()) {
			s.Errorf("token of %s is %q, want a random UUID (version 4) in text", event.IdempotencyKey, event.ClaimToken())
		}
	}
	if len(tokens) != 2 {
		s.Errorf("2 rows have %d different tokens, want 2", len(tokens))
	}
	for key, attempts := range map[string]int{"a/1": 1, "b/1": 4} {
		row := s.wantRow(key, StatusProcessing, attempts)
		s.wantTime("available_at of "+key, row.AvailableAt, at, 5*time.Minute, 5*time.Minute)
		s.wantTimestamp(key, "lastClaimedAt", at)
	}
}

func checkEvent(s *suite) {
	s.insertRow("a/1", Row{
		AggregateType: "suite.aggregate", CreatedAt: s.Now().Add(-time.Hour), Payload: json.RawMessage(`{"total": 12}`),
		Metadata: json.RawMessage(`{"traceparent": "00-abc", "snoozeCount": 2}`), Attempts: 2,
	})
	s.insert("b/1")
	events := s.wantClaim(request(), "a/1 b/1")
	if len(events) != 2 {
		return
	}
	if events[0].Position >= events[1].Position {
		s.Errorf("positions are %d and %d, want them to grow", events[0].Position, events[1].Position)
	}
	row, e := s.row("a/1"), events[0]
	got := Row{
		ID: e.ID, Position: e.Position, CreatedAt: e.CreatedAt, AggregateType: e.AggregateType, AggregateID: e.AggregateID,
		Type: e.Type, IdempotencyKey: e.IdempotencyKey, Attempts: e.Attempts, Payload: e.Payload, Metadata: e.Metadata,
		// An event does not carry these.
		Status: row.Status, AvailableAt: row.AvailableAt, ProcessedAt: row.ProcessedAt, Error: row.Error,
	}
	if !sameRow(got, row) {
		s.Errorf("the event is %+v, want it as the row, %+v", e, row)
	}
	if e.Age < time.Hour || e.Age > time.Hour+time.Minute {
		s.Errorf("the event's age is %v, want the hour since its creation", e.Age)
	}
	if e.Recovered {
		s.Errorf("the event is recovered, want so only after a lease ran out")
	}
}

func checkClaimKeeps(s *suite) {
	processed := s.Now().Add(-time.Hour)
	s.insertRow("a/1", Row{
		Status: StatusFailed, Attempts: 1, Error: "refused", ProcessedAt: processed,
		Metadata: json.RawMessage(`{"mine": {"deep": [1]}, "claimToken": "old", "discardReason": "x", "snoozeCount": 3}`),
	})
	s.claimOne("a/1")
	row := s.row("a/1")
	if row.Error != "refused" {
		s.Errorf("error is %q, want it kept", row.Error)
	}
	s.wantTime("processed_at", row.ProcessedAt, stamp{processed, processed}, 0, 0)
	s.wantMetadata("a/1", map[string]string{"mine": `{"deep": [1]}`, "discardReason": `"x"`, "snoozeCount": "3"})
}

func checkPayloads(s *suite) {
	payloads := []string{
		`null`, `{}`, `[]`, `"text"`, `0`, `{"n": 123456789012345678901234567890, "a": null, "u": "zażółć \u2028 <&>"}`,
		strings.Repeat("[", 200) + strings.Repeat("]", 200),
	}
	for i, payload := range payloads {
		s.insertRow(fmt.Sprintf("%d/1", i), Row{Payload: json.RawMessage(payload)})
	}
	events := s.claim(request())
	if len(events) != len(payloads) {
		s.Fatalf("claimed %d rows, want %d", len(events), len(payloads))
	}
	for i, event := range events {
		if !sameJSON(event.Payload, json.RawMessage(payloads[i])) {
			s.Errorf("payload is %s, want %s", event.Payload, payloads[i])
		}
	}
}

func checkStats(s *suite) {
	stats, ok := s.Store.(outbox.Stats)
	if !ok {
		return
	}
	s.insert("a/1", "b/1")
	s.insertRow("c/1", Row{Type: typeOther})
	s.claim(request())
	got, err := stats.QueueStats(s.Context())
	if err != nil {
		s.Errorf("QueueStats: %v", err)
	}
	if got != nil && !json.Valid(got) {
		s.Errorf("QueueStats returned %q, want JSON", got)
	}
}

// clampCases: the numbers of a request, each with its default and its bounds.
func clampCases() []testCase {
	return []testCase{
		{"claim/batch_size_clamps", "a batch is 1 to 1,000 rows, 25 unless said", checkClaimBatchSizeClamps},
		{"claim/visibility_clamps", "a lease is 5 minutes to an hour, 5 minutes unless said", checkClaimVisibilityClamps},
		{"claim/max_attempts_clamps", "the ceiling is 1 to 20, 8 unless said", checkClaimMaxAttemptsClamps},
	}
}

func checkClaimBatchSizeClamps(s *suite) {
	s.insertMany(1030, "x", Row{})
	for _, c := range []struct{ size, want int }{{0, 25}, {-5, 1}, {3, 3}, {5000, 1000}} {
		req := request()
		req.BatchSize = c.size
		if got := len(s.claim(req)); got != c.want {
			s.Errorf("batch size %d claimed %d rows, want %d", c.size, got, c.want)
		}
	}
}

func checkClaimVisibilityClamps(s *suite) {
	for i, c := range []struct{ visibility, want time.Duration }{
		{0, 5 * time.Minute},
		{time.Second, 5 * time.Minute},
		{-time.Hour, 5 * time.Minute},
		{1000 * time.Second, 1000 * time.Second},
		{48 * time.Hour, time.Hour},
	} {
		key := fmt.Sprintf("%d/1", i)
		s.insert(key)
		req := request()
		req.Visibility = c.visibility
		at := s.during(func() { s.wantClaim(req, key) })
		s.wantTime(fmt.Sprintf("the end of a lease of %v", c.visibility), s.row(key).AvailableAt, at, c.want, c.want)
	}
}

func checkClaimMaxAttemptsClamps(s *suite) {
	for i, c := range []struct{ ceiling, want int }{{0, 8}, {-3, 1}, {5, 5}, {50, 20}} {
		below, at := fmt.Sprintf("below%d/1", i), fmt.Sprintf("at%d/1", i)
		s.insertRow(below, Row{Attempts: c.want - 1})
		s.insertRow(at, Row{Attempts: c.want})
		req := request()
		req.MaxAttempts = c.ceiling
		s.wantClaim(req, below)
		s.wantRow(at, StatusDiscarded, c.want)
	}
}
