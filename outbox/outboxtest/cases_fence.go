package outboxtest

import (
	"encoding/json"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// fenceCases: who may settle.
func fenceCases() []testCase {
	return []testCase{
		{"fence/wrong_token", "only the holder of the token settles, whatever the outcome", checkFenceWrongToken},
		{"fence/unknown_event", "a row that is not there was lost, which is no error", checkFenceUnknownEvent},
		{"fence/no_token_in_the_row", "an empty token does not match a row that has none", checkFenceNoTokenInTheRow},
		{"fence/works_once", "a token is used up by settling, whatever the outcome", checkFenceWorksOnce},
		{"fence/twice_in_a_batch", "a second outcome for one event is missed", checkFenceTwiceInABatch},
		{"fence/first_that_holds", "of several entries for one event the first with its token counts", checkFenceFirstThatHolds},
		{"fence/late_but_not_overtaken", "a lease that ran out still settles while nobody else claimed the row", checkFenceLateButNotOvertaken},
		{"fence/overtaken", "who claimed last holds the row", checkFenceOvertaken},
		{"fence/operators_win", "a row that somebody took out of processing is not settled", checkFenceOperatorsWin},
		{"fence/unknown_outcome", "an outcome that is none is never taken for another", checkFenceUnknownOutcome},
	}
}

func checkFenceWrongToken(s *suite) {
	s.insert("a/1")
	event := s.claimOne("a/1")
	was := s.row("a/1")
	for _, outcome := range everyOutcome() {
		for _, token := range []string{"", "wrong", newUUID(), "a\x00b", "\xff", event.ClaimToken() + " "} {
			entry := settlement(event, outcome)
			entry.ClaimToken = token
			s.wantAnswers([]outbox.Settlement{entry}, outbox.Missed)
		}
	}
	s.wantUnchanged("a/1", was)
}

func checkFenceUnknownEvent(s *suite) {
	s.insert("a/1")
	event := s.claimOne("a/1")
	for _, id := range []string{newUUID(), "", "no-uuid", "\x00"} {
		entry := settlement(event, outbox.Processed)
		entry.EventID = id
		s.wantAnswers([]outbox.Settlement{entry}, outbox.Missed)
	}
	s.wantRow("a/1", StatusProcessing, 1)
}

func checkFenceNoTokenInTheRow(s *suite) {
	s.insertRow("a/1", Row{Status: StatusProcessing, Attempts: 1, AvailableAt: s.Now().Add(time.Hour)})
	s.insertRow("b/1", Row{
		Status: StatusProcessing, Attempts: 1, AvailableAt: s.Now().Add(time.Hour), Metadata: json.RawMessage(`[]`),
	})
	for _, key := range []string{"a/1", "b/1"} {
		s.wantAnswers([]outbox.Settlement{{EventID: s.ids[key], Outcome: outbox.Processed}}, outbox.Missed)
		s.wantRow(key, StatusProcessing, 1)
	}
}

func checkFenceWorksOnce(s *suite) {
	for _, first := range everyOutcome() {
		key := string(first) + "/1"
		s.insert(key)
		event := s.claimOne(key)
		if _, err := s.Store.Settle(s.Context(), []outbox.Settlement{settlement(event, first)}, outbox.Backoff{}); err != nil {
			s.Fatalf("Settle: %v", err)
		}
		was := s.row(key)
		for _, second := range everyOutcome() {
			s.wantAnswers([]outbox.Settlement{settlement(event, second)}, outbox.Missed)
		}
		s.wantUnchanged(key, was)
		s.update(key, func(row *Row) { row.Status = StatusDiscarded })
	}
}

func checkFenceTwiceInABatch(s *suite) {
	s.insert("a/1")
	event := s.claimOne("a/1")
	s.wantAnswers([]outbox.Settlement{
		settlement(event, outbox.Snoozed), settlement(event, outbox.Processed),
		settlement(event, outbox.Snoozed),
	}, outbox.AnswerSnoozed, outbox.Missed, outbox.Missed)
	s.wantRow("a/1", StatusFailed, 0)
	s.wantMetadata("a/1", map[string]string{"snoozeCount": "1"})
}

func checkFenceFirstThatHolds(s *suite) {
	s.insert("a/1")
	event := s.claimOne("a/1")
	stale := settlement(event, outbox.Discarded)
	stale.ClaimToken = newUUID()
	s.wantAnswers([]outbox.Settlement{stale, settlement(event, outbox.Processed), settlement(event, outbox.Retry)},
		outbox.Missed, outbox.AnswerProcessed, outbox.Missed)
	s.wantRow("a/1", StatusProcessed, 1)
}

func checkFenceLateButNotOvertaken(s *suite) {
	s.insert("a/1")
	event := s.claimOne("a/1")
	s.expire("a/1")
	s.wantAnswers([]outbox.Settlement{settlement(event, outbox.Processed)}, outbox.AnswerProcessed)
}

func checkFenceOvertaken(s *suite) {
	s.insert("a/1")
	old := s.claimOne("a/1")
	s.expire("a/1")
	recovered := s.wantClaim(s.recovering("a/1"), "a/1")
	if len(recovered) != 1 {
		s.Fatalf("claimed %d rows, want one", len(recovered))
	}
	current := recovered[0]
	was := s.row("a/1")
	for _, outcome := range everyOutcome() {
		s.wantAnswers([]outbox.Settlement{settlement(old, outcome)}, outbox.Missed)
	}
	s.wantUnchanged("a/1", was)
	s.wantAnswers([]outbox.Settlement{settlement(current, outbox.Processed)}, outbox.AnswerProcessed)
}

func checkFenceOperatorsWin(s *suite) {
	for _, status := range []string{StatusPending, StatusFailed, StatusProcessed, StatusDiscarded} {
		key := status + "/1"
		s.insert(key)
		event := s.claimOne(key)
		s.update(key, func(row *Row) { row.Status = status })
		was := s.row(key)
		s.wantAnswers([]outbox.Settlement{settlement(event, outbox.Retry)}, outbox.Missed)
		s.wantUnchanged(key, was)
	}
}

func checkFenceUnknownOutcome(s *suite) {
	s.insert("a/1")
	event := s.claimOne("a/1")
	was := s.row("a/1")
	for _, outcome := range []outbox.Outcome{"", "Processed", "delivered"} {
		// Missed and an error are both fine.
		answers, err := s.Store.Settle(s.Context(), []outbox.Settlement{settlement(event, outcome)}, outbox.Backoff{})
		if err == nil && (len(answers) != 1 || answers[0] != outbox.Missed) {
			s.Errorf("outcome %q was answered %q, want an error or missed", outcome, answers)
		}
	}
	s.wantUnchanged("a/1", was)
}

func everyOutcome() []outbox.Outcome {
	return []outbox.Outcome{outbox.Processed, outbox.Retry, outbox.Snoozed, outbox.Discarded, outbox.Released}
}
