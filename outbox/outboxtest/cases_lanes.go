package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// laneCases: several rows of an aggregate in one claim, and claims that go on where the last one came to.
func laneCases() []testCase {
	return []testCase{
		{"lanes/a_run", "a lane is an aggregate's oldest rows, without a gap", checkLanesARun},
		{"lanes/depth", "a lane has no more rows than asked for", checkLanesDepth},
		{"lanes/depth_clamps", "a lane has 1 to 1,000 rows, 25 by default", checkLanesDepthClamps},
		{"lanes/end_where_a_row_waits", "nothing behind a row that must wait is taken", checkLanesEndWhereARowWaits},
		{"lanes/pass_over_others_types", "rows that don't block don't end a lane", checkLanesPassOverOthersTypes},
		{"lanes/breadth_first", "a full batch holds every aggregate's oldest row before any second one", checkLanesBreadthFirst},
		{"lanes/leased_as_one", "whoever holds a lane's first rows keeps the rest", checkLanesLeasedAsOne},
		{"lanes/leased_are_reported", "an aggregate is reported when rows wait there behind one that is held", checkLanesLeasedAreReported},
		{"cursor/goes_on", "a claim goes on where the last one came to", checkCursorGoesOn},
		{"cursor/leaves_what_it_passed", "what a cursor passed is looked at again from the start only", checkCursorLeavesWhatItPassed},
		{"cursor/named_lanes", "lanes that are named are looked at wherever the cursor stands", checkCursorNamedLanes},
		{"cursor/finds_new_rows", "behind a cursor new rows are found", checkCursorFindsNewRows},
		{"cursor/begins_again", "beside a cursor, a claim may begin at the start again", checkCursorBeginsAgain},
		{"cursor/begins_again_at_what_is_due", "what became due is found from the start, whatever the cursor saw", checkCursorBeginsAgainAtWhatIsDue},
		{"cursor/reaches_every_row", "from the start to the end every free row is claimed", checkCursorReachesEveryRow},
	}
}

// runs claims whole lanes.
func runs(depth int) outbox.ClaimRequest {
	req := request()
	req.LaneDepth = depth
	return req
}

func checkLanesARun(s *suite) {
	s.insert("a/1", "b/1", "a/2", "a/3")
	for _, event := range s.wantClaim(runs(10), "a/1 b/1 a/2 a/3") {
		if event.Attempts != 1 || event.ClaimToken() == "" {
			s.Errorf("%s has %d attempts and token %q, want 1 and some", event.IdempotencyKey, event.Attempts, event.ClaimToken())
		}
	}
}

func checkLanesDepth(s *suite) {
	s.insert("a/1", "a/2", "a/3", "b/1")
	s.wantClaim(runs(2), "a/1 a/2 b/1")
}

func checkLanesDepthClamps(s *suite) {
	for i := range 30 {
		s.insert(fmt.Sprintf("a/%d", i))
	}
	for depth, want := range map[int]int{0: 25, -1: 1, 5000: 30} {
		req := runs(depth)
		req.BatchSize = 1000
		events := s.claim(req)
		if len(events) != want {
			s.Errorf("a claim of depth %d took %d rows, want %d", depth, len(events), want)
		}
		s.settleAll(events, outbox.Released)
	}
}

func checkLanesEndWhereARowWaits(s *suite) {
	later := s.Now().Add(time.Hour)
	s.insert("future/1", "failed/1", "leased/1", "foreign/1", "spent/1")
	s.insertRow("future/2", Row{AvailableAt: later})
	s.insertRow("failed/2", Row{AvailableAt: later, Status: StatusFailed, Attempts: 1})
	s.insertRow("leased/2", Row{AvailableAt: later, Status: StatusProcessing, Attempts: 1})
	s.insertRow("foreign/2", Row{Type: typeOther})
	s.insertRow("spent/2", Row{AvailableAt: later, Status: StatusFailed, Attempts: 8})
	s.insert("future/3", "failed/3", "leased/3", "foreign/3", "spent/3")
	s.wantClaim(runs(10), "future/1 failed/1 leased/1 foreign/1 spent/1")
}

func checkLanesPassOverOthersTypes(s *suite) {
	s.insert("a/1")
	s.insertRow("a/2", Row{Type: typeOther})
	s.insert("a/3")
	req := runs(2)
	req.KnownTypes = []string{typeOther}
	s.wantClaim(req, "a/1 a/3")
}

func checkLanesBreadthFirst(s *suite) {
	s.insert("a/1", "a/2", "a/3", "b/1", "b/2", "c/1")
	req := runs(10)
	req.BatchSize = 4
	s.wantClaim(req, "a/1 a/2 b/1 c/1")
}

func checkLanesLeasedAsOne(s *suite) {
	s.insert("a/1", "a/2", "a/3")
	events := s.wantClaim(runs(2), "a/1 a/2")
	s.wantClaim(runs(2), "")
	s.settleAll(events[:1], outbox.Processed)
	s.wantClaim(runs(2), "")
	s.settleAll(events[1:], outbox.Processed)
	s.wantClaim(runs(2), "a/3")
}

func checkLanesLeasedAreReported(s *suite) {
	later := s.Now().Add(time.Hour)
	s.insertRow("leased/1", Row{AvailableAt: later, Status: StatusProcessing, Attempts: 1})
	s.insertRow("failed/1", Row{AvailableAt: later, Status: StatusFailed, Attempts: 1})
	s.insertRow("lost/1", expiredRow())
	s.insert("leased/2", "failed/2", "lost/2", "free/1")
	claim := s.wantLost(request(), "lost/1", "free/1")
	if want := s.lanes("leased/2"); !slices.Equal(claim.Leased, want) {
		s.Errorf("reported %v as leased, want %v", claim.Leased, want)
	}
}

func checkCursorBeginsAgain(s *suite) {
	s.insert("a/1", "a/2", "b/1")
	req := runs(1)
	s.settleAll(s.wantClaimAt(&req, "a/1 b/1", true).Events, outbox.Processed)
	s.wantClaimAt(&req, "", true)
	req.Again = true
	s.wantClaimAt(&req, "a/2", true)
}

func checkCursorBeginsAgainAtWhatIsDue(s *suite) {
	s.insertRow("a/1", Row{Status: StatusFailed, Attempts: 1, AvailableAt: s.Now().Add(time.Hour)})
	s.insert("a/2", "b/1")
	req := runs(1)
	s.wantClaimAt(&req, "b/1", true)
	s.expire("a/1")
	req.Again = true
	claim := s.wantClaimAt(&req, "a/1", true)
	s.settleAll(claim.Events, outbox.Processed)
	req.Lanes = s.lanes("a/1") // whoever settles a lane's row looks there again
	s.wantClaimAt(&req, "a/2", true)
}

func checkCursorGoesOn(s *suite) {
	s.insert("a/1", "b/1", "c/1")
	req := runs(1)
	req.BatchSize = 2
	claim := s.wantClaimAt(&req, "a/1 b/1", false)
	if claim.Cursor == "" {
		s.Errorf("the cursor is empty, want one behind the rows taken")
	}
	s.wantClaimAt(&req, "c/1", true)
	s.wantClaimAt(&req, "", true)
}

func checkCursorLeavesWhatItPassed(s *suite) {
	s.insert("a/1", "a/2", "b/1")
	req := runs(1)
	events := s.wantClaimAt(&req, "a/1 b/1", true).Events
	s.settleAll(events, outbox.Processed)
	s.wantClaimAt(&req, "", true)
	req.Cursor = ""
	s.wantClaimAt(&req, "a/2", true)
}

func checkCursorNamedLanes(s *suite) {
	s.insert("a/1", "a/2", "a/3", "b/1", "b/2")
	req := runs(1)
	events := s.wantClaimAt(&req, "a/1 b/1", true).Events
	s.settleAll(events, outbox.Processed)
	req.LaneDepth, req.Lanes = 5, s.lanes("a/1")
	s.wantClaimAt(&req, "a/2 a/3", true)
}

func checkCursorFindsNewRows(s *suite) {
	s.insert("a/1")
	s.insertRow("b/1", Row{AvailableAt: s.Now().Add(time.Hour)})
	req := runs(1)
	s.wantClaimAt(&req, "a/1", true)
	s.insert("c/1")
	s.wantClaimAt(&req, "c/1", true)
	s.expire("b/1")
	req.Cursor = ""
	s.wantClaimAt(&req, "b/1", true)
}

func checkCursorReachesEveryRow(s *suite) {
	const aggregates, depth = 30, 4
	later := s.Now().Add(time.Hour)
	for n := range depth {
		for a := range aggregates {
			row := Row{}
			switch {
			case a%5 == 0 && n == 0: // blocks what follows
				row = Row{Status: StatusFailed, Attempts: 1, AvailableAt: later}
			case a%7 == 3: // due after a delay
				row = Row{Status: StatusFailed, Attempts: 1, AvailableAt: s.Now().Add(-time.Minute)}
			}
			s.insertRow(fmt.Sprintf("%d/%d", a, n), row)
		}
	}
	req := runs(2)
	req.BatchSize = 7
	claimed := map[string]int{}
	for cycle := 0; cycle < 6; { // four rows of an aggregate, two at a time
		claim := s.claimAt(req)
		for _, event := range claim.Events {
			claimed[event.IdempotencyKey]++
		}
		s.settleAll(claim.Events, outbox.Processed)
		req.Cursor = claim.Cursor
		if claim.End {
			cycle++
			req.Cursor = ""
		}
	}
	for n := range depth {
		for a := range aggregates {
			key, want := fmt.Sprintf("%d/%d", a, n), 1
			if a%5 == 0 {
				want = 0
			}
			if claimed[key] != want {
				s.Errorf("%s was claimed %d times, want %d", key, claimed[key], want)
			}
		}
	}
}

// wantClaimAt claims, wants just these keys and to be at the end or not, and moves the request's cursor on.
func (s *suite) wantClaimAt(req *outbox.ClaimRequest, want string, end bool) outbox.Claim {
	s.Helper()
	claim := s.claimAt(*req)
	if got := keysOf(claim.Events); got != want {
		s.Errorf("claimed %q, want %q", got, want)
	}
	if claim.End != end {
		s.Errorf("the claim of %q came to the end: %v, want %v", want, claim.End, end)
	}
	req.Cursor = claim.Cursor
	return claim
}

// settleAll gives all events one outcome.
func (s *suite) settleAll(events []outbox.Event, outcome outbox.Outcome) {
	s.Helper()
	var batch []outbox.Settlement
	for _, event := range events {
		batch = append(batch, settlement(event, outcome))
	}
	answers, err := s.Store.Settle(s.Context(), batch, outbox.Backoff{})
	if err != nil || slices.Contains(answers, outbox.Missed) {
		s.Fatalf("Settle(%s) answered %q, %v, want no event missed", outcome, answers, err)
	}
}
