package outboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// settleCases: what each outcome writes.
func settleCases() []testCase {
	return []testCase{
		{"settle/processed", "delivered: final, with the time, without the last error", checkSettleProcessed},
		{"settle/detail_is_merged", "what the destination answered stands beside the rest, one level deep", checkSettleDetailIsMerged},
		{"settle/retry", "failed: the attempt counts, the reason stays, the row comes back", checkSettleRetry},
		{"settle/retry_of_a_spent_row", "the last attempt ends as a discard, by the ceiling of this call", checkSettleRetryOfASpentRow},
		{"settle/discard", "never deliverable: final, with the reason", checkSettleDiscard},
		{"settle/snooze", "an outage costs the event nothing, however many attempts it has", checkSettleSnooze},
		{"settle/snoozes_count", "the count goes over the event's whole life", checkSettleSnoozesCount},
		{"settle/release", "never tried: nothing spent, nothing noted", checkSettleRelease},
		{"settle/attempts_never_below_zero", "an attempt is given back only if there is one", checkSettleAttemptsNeverBelowZero},
		{"settle/nothing", "an empty batch has no answers and is no error", checkSettleNothing},
		{"settle/cancelled", "a call under a cancelled context fails and settles nothing", checkSettleCancelled},
		{"settle/a_mixed_batch", "each entry has its own outcome and its answer in its place", checkMixedBatch},
	}
}

func checkSettleProcessed(s *suite) {
	s.insertRow("a/1", Row{Status: StatusFailed, Attempts: 1, Error: "refused", Metadata: json.RawMessage(`{"mine": 1}`)})
	event := s.claimOne("a/1")
	was := s.row("a/1")
	at := s.during(func() {
		s.wantAnswers([]outbox.Settlement{settlement(event, outbox.Processed)}, outbox.AnswerProcessed)
	})
	row := s.wantRow("a/1", StatusProcessed, 2)
	s.wantTime("processed_at", row.ProcessedAt, at, 0, 0)
	was.Status, was.ProcessedAt, was.Error = StatusProcessed, row.ProcessedAt, ""
	s.wantUnchanged("a/1", was) // the rest, the old token included
}

func checkSettleDetailIsMerged(s *suite) {
	s.insertRow("a/1", Row{Metadata: json.RawMessage(`{"kept": 1, "deep": {"old": 1}, "twice": 1}`)})
	entry := settlement(s.claimOne("a/1"), outbox.Processed)
	entry.Detail = json.RawMessage(`{"twice": 2, "deep": {"new": 123456789012345678901234567890}, "messageId": "m"}`)
	s.wantAnswers([]outbox.Settlement{entry}, outbox.AnswerProcessed)
	s.wantMetadata("a/1", map[string]string{
		"kept": "1", "twice": "2", "deep": `{"new": 123456789012345678901234567890}`, "messageId": `"m"`,
	})
}

func checkSettleRetry(s *suite) {
	s.insertRow("a/1", Row{Metadata: json.RawMessage(`{"mine": 1}`)})
	entry := settlement(s.claimOne("a/1"), outbox.Retry)
	entry.Reason = "connection refused"
	was := s.row("a/1")
	at := s.during(func() { s.wantAnswers([]outbox.Settlement{entry}, outbox.AnswerFailed) })
	row := s.wantRow("a/1", StatusFailed, 1)
	s.wantTime("available_at", row.AvailableAt, at, 30*time.Second, time.Minute)
	was.Status, was.Error, was.AvailableAt = StatusFailed, "connection refused", row.AvailableAt
	s.wantUnchanged("a/1", was)
	s.expire("a/1")
	s.claimOne("a/1")
	s.wantRow("a/1", StatusProcessing, 2)
}

func checkSettleRetryOfASpentRow(s *suite) {
	for i, c := range []struct{ attempts, ceiling int }{{8, 0}, {3, 3}, {1, -1}, {20, 90}} {
		for _, spent := range []bool{true, false} {
			key := fmt.Sprintf("%d%v/1", i, spent)
			s.insert(key)
			entry := settlement(s.claimOne(key), outbox.Retry)
			entry.Reason = "refused"
			want, status, attempts := outbox.AnswerDiscarded, StatusDiscarded, c.attempts
			if !spent {
				want, status, attempts = outbox.AnswerFailed, StatusFailed, c.attempts-1
			}
			s.update(key, func(row *Row) { row.Attempts = attempts })
			s.wantAnswersUnder(outbox.Backoff{MaxAttempts: c.ceiling}, []outbox.Settlement{entry}, want)
			s.wantRow(key, status, attempts)
			if spent {
				s.wantMetadata(key, map[string]string{
					"discardReason": `"max_attempts"`, "finalAttempts": fmt.Sprint(attempts),
				})
			}
		}
	}
}

func checkSettleDiscard(s *suite) {
	s.insertRow("a/1", Row{Metadata: json.RawMessage(`{"mine": 1}`)})
	entry := settlement(s.claimOne("a/1"), outbox.Discarded)
	entry.Reason = "no such address"
	was := s.row("a/1")
	at := s.during(func() { s.wantAnswers([]outbox.Settlement{entry}, outbox.AnswerDiscarded) })
	row := s.wantRow("a/1", StatusDiscarded, 1)
	if row.Error != "no such address" {
		s.Errorf("error is %q, want the reason", row.Error)
	}
	s.wantTime("available_at", row.AvailableAt, stamp{was.AvailableAt, was.AvailableAt}, 0, 0)
	s.wantMetadata("a/1", map[string]string{
		"mine": "1", "discardReason": `"permanent_error"`, "finalAttempts": "1",
		"claimToken": fmt.Sprintf("%q", entry.ClaimToken),
	})
	s.wantTimestamp("a/1", "discardedAt", at)
}

func checkSettleSnooze(s *suite) {
	s.insertRow("a/1", Row{Metadata: json.RawMessage(`{"mine": 1}`)})
	entry := settlement(s.claimOne("a/1"), outbox.Snoozed)
	entry.Reason = "throttled"
	s.update("a/1", func(row *Row) { row.Attempts = 8 })
	at := s.during(func() { s.wantAnswers([]outbox.Settlement{entry}, outbox.AnswerSnoozed) })
	row := s.wantRow("a/1", StatusFailed, 7)
	if row.Error != "throttled" {
		s.Errorf("error is %q, want the reason", row.Error)
	}
	s.wantTime("available_at", row.AvailableAt, at, 5*time.Minute, 5*time.Minute)
	s.wantMetadata("a/1", map[string]string{"mine": "1", "snoozeCount": "1"})
	s.wantTimestamp("a/1", "lastSnoozedAt", at)
}

func checkSettleSnoozesCount(s *suite) {
	s.insert("a/1")
	for i := range 3 {
		event := s.claimOne("a/1")
		s.wantAnswers([]outbox.Settlement{settlement(event, outbox.Snoozed)}, outbox.AnswerSnoozed)
		s.wantMetadata("a/1", map[string]string{"snoozeCount": fmt.Sprint(i + 1)})
		s.expire("a/1")
	}
	if got := s.claimOne("a/1").SnoozeCount(); got != 3 {
		s.Errorf("the claimed event counts %d snoozes, want 3", got)
	}
}

func checkSettleRelease(s *suite) {
	s.insertRow("a/1", Row{Status: StatusFailed, Attempts: 2, Error: "refused", Metadata: json.RawMessage(`{"mine": 1}`)})
	entry := settlement(s.claimOne("a/1"), outbox.Released)
	entry.Reason = "not stored"
	was := s.row("a/1")
	at := s.during(func() { s.wantAnswers([]outbox.Settlement{entry}, outbox.AnswerReleased) })
	row := s.wantRow("a/1", StatusPending, 2)
	s.wantTime("available_at", row.AvailableAt, at, 0, 0)
	was.Status, was.Attempts, was.AvailableAt = StatusPending, 2, row.AvailableAt
	s.wantUnchanged("a/1", was)
	s.claimOne("a/1")
}

func checkSettleAttemptsNeverBelowZero(s *suite) {
	s.insert("a/1", "b/1")
	events := s.wantClaim(request(), "a/1 b/1")
	if len(events) != 2 {
		return
	}
	for _, key := range []string{"a/1", "b/1"} {
		s.update(key, func(row *Row) { row.Attempts = 0 })
	}
	s.wantAnswers([]outbox.Settlement{settlement(events[0], outbox.Snoozed), settlement(events[1], outbox.Released)},
		outbox.AnswerSnoozed, outbox.AnswerReleased)
	s.wantRow("a/1", StatusFailed, 0)
	s.wantRow("b/1", StatusPending, 0)
}

func checkSettleNothing(s *suite) {
	s.wantAnswers(nil)
}

func checkSettleCancelled(s *suite) {
	s.insert("a/1")
	event := s.claimOne("a/1")
	was := s.row("a/1")
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.Store.Settle(ctx, []outbox.Settlement{settlement(event, outbox.Processed)}, outbox.Backoff{}); err == nil {
		s.Errorf("a settle under a cancelled context returned no error")
	}
	s.wantUnchanged("a/1", was)
}

func checkMixedBatch(s *suite) {
	s.insert("a/1", "b/1", "c/1", "d/1", "e/1", "f/1")
	events := s.wantClaim(request(), "a/1 b/1 c/1 d/1 e/1 f/1")
	if len(events) != 6 {
		return
	}
	outcomes := []outbox.Outcome{outbox.Released, outbox.Discarded, outbox.Processed, outbox.Snoozed, outbox.Retry}
	var batch []outbox.Settlement
	for i, outcome := range outcomes {
		entry := settlement(events[4-i], outcome) // not in order of position
		entry.Reason, entry.Delay = fmt.Sprintf("reason %d", i), time.Duration(i+1)*100*time.Second
		entry.Detail = json.RawMessage(fmt.Sprintf(`{"n": %d}`, i))
		batch = append(batch, entry)
	}
	untouched := s.row("f/1")
	at := s.during(func() {
		s.wantAnswers(batch, outbox.AnswerReleased, outbox.AnswerDiscarded, outbox.AnswerProcessed, outbox.AnswerSnoozed,
			outbox.AnswerFailed)
	})
	released := s.wantRow("e/1", StatusPending, 0)
	s.wantTime("available_at of the released row", released.AvailableAt, at, 100*time.Second, 100*time.Second)
	if got := s.wantRow("d/1", StatusDiscarded, 1).Error; got != "reason 1" {
		s.Errorf("error of the discarded row is %q, want its own reason", got)
	}
	s.wantRow("c/1", StatusProcessed, 1)
	s.wantMetadata("c/1", map[string]string{"n": "2"})
	snoozed := s.wantRow("b/1", StatusFailed, 0)
	s.wantTime("available_at of the snoozed row", snoozed.AvailableAt, at, 400*time.Second, 400*time.Second)
	if got := s.wantRow("a/1", StatusFailed, 1).Error; got != "reason 4" {
		s.Errorf("error of the failed row is %q, want its own reason", got)
	}
	s.wantMetadata("a/1", map[string]string{"n": ""})
	s.wantUnchanged("f/1", untouched)
}
