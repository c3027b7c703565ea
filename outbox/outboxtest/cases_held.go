package outboxtest

import (
	"github.com/openlup/outbox-dispatch/outbox"
)

// heldCases: types of the caller's own that must wait.
func heldCases() []testCase {
	return []testCase{
		{"held/never_claimed", "a held type waits, also when it is listed among the types to claim", checkHeldNeverClaimed},
		{"held/always_blocks", "what waits keeps its place, listed to be claimed or not", checkHeldAlwaysBlocks},
		{"held/known_still_blocks", "holding is stronger than knowing", checkHeldKnownStillBlocks},
		{"held/dormant_still_blocks", "holding is stronger than a declaration", checkHeldDormantStillBlocks},
		{"held/all_types", "a claim of nothing but held types is no error and finds nothing", checkHeldAllTypes},
		{"held/not_discarded", "a held type is not touched, spent or not", checkHeldNotDiscarded},
		{"held/not_recovered", "a lease of a held type that ran out waits too", checkHeldNotRecovered},
	}
}

func checkHeldNeverClaimed(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insert("b/1")
	s.wantClaim(holding(typeOther), "b/1")
	s.wantRow("a/1", StatusPending, 0)
}

func checkHeldAlwaysBlocks(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insert("a/2", "b/1")
	s.wantClaim(holding(typeOther), "b/1")
	req := request()
	req.HeldTypes = []string{typeOther}
	s.wantClaim(req, "")
}

func checkHeldKnownStillBlocks(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insert("a/2", "b/1")
	req := request()
	req.HeldTypes, req.KnownTypes = []string{typeOther}, []string{typeOther}
	s.wantClaim(req, "b/1")
}

func checkHeldDormantStillBlocks(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insert("a/2", "b/1")
	s.DeclareDormant(typeOther)
	req := request()
	req.HeldTypes = []string{typeOther}
	s.wantClaim(req, "b/1")
}

func checkHeldAllTypes(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insert("b/1")
	s.wantClaim(holding(typeMine, typeOther), "")
}

func checkHeldNotDiscarded(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther, Attempts: 8})
	was := s.row("a/1")
	s.insert("a/2", "b/1")
	s.wantClaim(holding(typeOther), "b/1")
	s.wantUnchanged("a/1", was)
}

func checkHeldNotRecovered(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther, Attempts: 1, Status: StatusProcessing})
	s.wantLost(holding(typeOther), "", "")
	req := holding(typeOther)
	req.Recover, req.Lanes = true, s.lanes("a/1")
	s.wantClaim(req, "")
}

// holding claims both types, and holds these.
func holding(types ...string) outbox.ClaimRequest {
	req := request(typeMine, typeOther)
	req.HeldTypes = types
	return req
}
