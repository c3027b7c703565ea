package outboxtest

import (
	"encoding/json"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// crashCases: rows whose process died.
func crashCases() []testCase {
	return []testCase{
		{"crash/never_beside_others", "a row that may kill its process must not take healthy rows along", checkCrashNeverBesideOthers},
		{"crash/alone_when_nothing_else", "rows whose lease ran out come one at a time, the oldest first", checkCrashAloneWhenNothingElse},
		{"crash/preferred", "a caller may ask for such a row first", checkCrashPreferred},
		{"crash/preferred_but_none", "asking for such a row first keeps nothing back", checkCrashPreferredButNone},
		{"crash/preferred_keeps_order", "such a row waits for older ones of its aggregate as any other", checkCrashPreferredKeepsOrder},
		{"crash/blocks_its_aggregate", "such a row keeps its place in the order", checkCrashBlocksItsAggregate},
		{"crash/a_live_lease_is_not_one", "a row is recovered only once its lease ran out", checkCrashALiveLeaseIsNotOne},
		{"crash/given_back_is_not_one", "a row that was settled comes back as an ordinary one", checkCrashGivenBackIsNotOne},
	}
}

func checkCrashNeverBesideOthers(s *suite) {
	s.insertRow("a/1", expiredRow())
	s.insertRow("b/1", expiredRow())
	s.insert("c/1", "d/1")
	for _, event := range s.wantClaim(request(), "c/1 d/1") {
		if event.Recovered {
			s.Errorf("%s is recovered, want so only after a lease ran out", event.IdempotencyKey)
		}
	}
}

func checkCrashAloneWhenNothingElse(s *suite) {
	s.insertRow("a/1", expiredRow())
	s.insertRow("b/1", expiredRow())
	for _, key := range []string{"a/1", "b/1"} {
		event := s.claimOne(key)
		if !event.Recovered {
			s.Errorf("%s is not recovered, want it so", key)
		}
		s.wantRow(key, StatusProcessing, 2)
	}
	s.wantClaim(request(), "")
}

func checkCrashPreferred(s *suite) {
	s.insert("a/1")
	s.insertRow("b/1", expiredRow())
	s.insert("c/1")
	for _, event := range s.wantClaim(preferring(), "b/1") {
		if !event.Recovered {
			s.Errorf("%s is not recovered, want it so", event.IdempotencyKey)
		}
	}
	s.wantClaim(preferring(), "a/1 c/1")
}

func checkCrashPreferredButNone(s *suite) {
	s.insert("a/1", "b/1")
	s.wantClaim(preferring(), "a/1 b/1")
}

func checkCrashPreferredKeepsOrder(s *suite) {
	s.insertRow("a/1", Row{AvailableAt: s.Now().Add(time.Hour)})
	s.insertRow("a/2", expiredRow())
	s.insert("b/1")
	s.wantClaim(preferring(), "b/1")
}

func checkCrashBlocksItsAggregate(s *suite) {
	s.insertRow("a/1", expiredRow())
	s.insert("a/2", "b/1")
	s.wantClaim(request(), "b/1")
}

func checkCrashALiveLeaseIsNotOne(s *suite) {
	s.insertRow("a/1", Row{Status: StatusProcessing, Attempts: 1, AvailableAt: s.Now().Add(time.Minute)})
	s.wantClaim(preferring(), "")
}

func checkCrashGivenBackIsNotOne(s *suite) {
	outcomes := []outbox.Outcome{outbox.Retry, outbox.Snoozed, outbox.Released}
	for _, outcome := range outcomes {
		s.insert(string(outcome) + "/1")
	}
	for i, event := range s.claim(request()) {
		if _, err := s.Store.Settle(s.Context(), []outbox.Settlement{settlement(event, outcomes[i])}, outbox.Backoff{}); err != nil {
			s.Fatalf("Settle: %v", err)
		}
		s.expire(event.IdempotencyKey)
	}
	for _, event := range s.wantClaim(request(), "retry/1 snooze/1 release/1") {
		if event.Recovered {
			s.Errorf("%s is recovered, want so only after a lease ran out", event.IdempotencyKey)
		}
	}
}

// expiredRow is a row whose process died during its first attempt.
func expiredRow() Row {
	return Row{Status: StatusProcessing, Attempts: 1, Metadata: json.RawMessage(`{"claimToken": "dead"}`)}
}

// preferring asks for a recovered row first.
func preferring() outbox.ClaimRequest {
	req := request()
	req.PreferRecovered = true
	return req
}
