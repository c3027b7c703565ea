package outboxtest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// crashCases: rows whose process died.
func crashCases() []testCase {
	return []testCase{
		{"crash/never_beside_others", "a row that may kill its process must not take healthy rows along, and is reported", checkCrashNeverBesideOthers},
		{"crash/recovered_alone", "rows whose lease ran out come one at a time, the oldest first", checkCrashRecoveredAlone},
		{"crash/recovers_named_lanes_only", "who recovers gets nothing else", checkCrashRecoversNamedLanesOnly},
		{"crash/recovers_a_row_given_back", "a row that was given back meanwhile is as good", checkCrashRecoversARowGivenBack},
		{"crash/recovers_in_order", "such a row waits for older ones of its aggregate as any other", checkCrashRecoversInOrder},
		{"crash/ends_a_run", "such a row in a run ends it", checkCrashEndsARun},
		{"crash/blocks_its_aggregate", "such a row keeps its place in the order", checkCrashBlocksItsAggregate},
		{"crash/a_live_lease_is_not_one", "a row is recovered only once its lease ran out", checkCrashALiveLeaseIsNotOne},
		{"crash/given_back_is_not_one", "a row that was settled comes back as an ordinary one", checkCrashGivenBackIsNotOne},
	}
}

func checkCrashNeverBesideOthers(s *suite) {
	s.insertRow("a/1", expiredRow())
	s.insertRow("b/1", expiredRow())
	s.insert("c/1", "d/1")
	for _, event := range s.wantLost(request(), "a/1 b/1", "c/1 d/1").Events {
		if event.Recovered {
			s.Errorf("%s is recovered, want so only after a lease ran out", event.IdempotencyKey)
		}
	}
}

func checkCrashRecoveredAlone(s *suite) {
	s.insert("c/1")
	s.insertRow("a/1", expiredRow())
	s.insertRow("b/1", expiredRow())
	for _, key := range []string{"a/1", "b/1"} {
		for _, event := range s.wantClaim(s.recovering("b/1", "a/1"), key) {
			if !event.Recovered {
				s.Errorf("%s is not recovered, want it so", key)
			}
		}
		s.wantRow(key, StatusProcessing, 2)
	}
	s.wantClaim(s.recovering("b/1", "a/1"), "")
}

func checkCrashRecoversNamedLanesOnly(s *suite) {
	s.insert("a/1")
	s.insertRow("b/1", expiredRow())
	s.insertRow("c/1", expiredRow())
	s.wantClaim(s.recovering("c/1"), "c/1")
	s.wantClaim(s.recovering("c/1"), "")
	s.wantClaim(s.recovering(), "")
}

func checkCrashRecoversARowGivenBack(s *suite) {
	s.insert("a/1", "a/2")
	s.wantClaim(s.recovering("a/1"), "a/1")
}

func checkCrashRecoversInOrder(s *suite) {
	s.insertRow("a/1", Row{AvailableAt: s.Now().Add(time.Hour)})
	s.insertRow("a/2", expiredRow())
	s.insert("b/1")
	s.wantClaim(s.recovering("a/2"), "")
	s.wantLost(request(), "", "b/1")
}

func checkCrashEndsARun(s *suite) {
	s.insert("a/1")
	s.insertRow("a/2", expiredRow())
	s.insert("a/3")
	req := request()
	req.LaneDepth = 3
	s.wantLost(req, "", "a/1")
}

func checkCrashBlocksItsAggregate(s *suite) {
	s.insertRow("a/1", expiredRow())
	s.insert("a/2", "b/1")
	s.wantClaim(request(), "b/1")
}

func checkCrashALiveLeaseIsNotOne(s *suite) {
	s.insertRow("a/1", Row{Status: StatusProcessing, Attempts: 1, AvailableAt: s.Now().Add(time.Minute)})
	s.wantLost(request(), "", "")
	s.wantClaim(s.recovering("a/1"), "")
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

// recovering asks for one row of these rows' aggregates, also when its lease ran out.
func (s *suite) recovering(keys ...string) outbox.ClaimRequest {
	req := request()
	req.Recover, req.Lanes = true, s.lanes(keys...)
	return req
}

// lanes names the aggregates of rows.
func (s *suite) lanes(keys ...string) []outbox.Aggregate {
	var lanes []outbox.Aggregate
	for _, key := range keys {
		row := s.row(key)
		lanes = append(lanes, outbox.Aggregate{Type: row.AggregateType, ID: row.AggregateID})
	}
	return lanes
}

// wantLost claims, and wants these rows' aggregates to be reported, in any order, and these keys to be claimed.
func (s *suite) wantLost(req outbox.ClaimRequest, lost, claimed string) outbox.Claim {
	s.Helper()
	claim := s.claimAt(req)
	if got := keysOf(claim.Events); got != claimed {
		s.Errorf("claimed %q, want %q", got, claimed)
	}
	want := s.lanes(strings.Fields(lost)...)
	byID := func(a, b outbox.Aggregate) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(want, byID)
	if got := slices.SortedFunc(slices.Values(claim.Lost), byID); !slices.Equal(got, want) {
		s.Errorf("reported %v as lost, want %v, of %q", got, want, lost)
	}
	return claim
}
