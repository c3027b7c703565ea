package outboxtest

import (
	"encoding/json"
	"strings"
	"time"
)

// spentCases: rows that have no attempt left.
func spentCases() []testCase {
	return []testCase{
		{"spent/discarded_at_claim", "a row that its process took along eight times must end", checkSpentDiscardedAtClaim},
		{"spent/error_text", "the note follows the old error, even none, and is cut with it", checkSpentErrorText},
		{"spent/every_unfinished_status", "pending rows and leases that ran out are spent alike", checkSpentEveryUnfinishedStatus},
		{"spent/first_attempts_of_a_ceiling_of_one", "with one attempt allowed, a first lease that ran out is the end", checkSpentFirstAttemptsOfACeilingOfOne},
		{"spent/frees_followers_at_once", "the call that discards a row may claim the next of its aggregate", checkSpentFreesFollowersAtOnce},
		{"spent/only_when_due", "a spent row that is leased or delayed stays, is not claimed, and blocks", checkSpentOnlyWhenDue},
		{"spent/blocked_or_not", "a spent row is discarded behind a blocking one too", checkSpentBlockedOrNot},
		{"spent/only_own_types", "nobody discards what is left to others", checkSpentOnlyOwnTypes},
		{"spent/the_100_oldest", "a claim discards 100 at most, whatever its batch; what is left still blocks", checkSpentThe100Oldest},
	}
}

func checkSpentDiscardedAtClaim(s *suite) {
	s.insertRow("a/1", Row{
		Status: StatusFailed, Attempts: 9, Error: "refused", Metadata: json.RawMessage(`{"mine": 1, "claimToken": "t"}`),
	})
	was := s.row("a/1")
	at := s.during(func() { s.wantClaim(request(), "") })
	row := s.wantRow("a/1", StatusDiscarded, 9)
	if want := "refused | max_attempts_exhausted_at_claim"; row.Error != want {
		s.Errorf("error is %q, want %q", row.Error, want)
	}
	s.wantTime("available_at", row.AvailableAt, stamp{was.AvailableAt, was.AvailableAt}, 0, 0)
	s.wantMetadata("a/1", map[string]string{
		"mine": "1", "claimToken": `"t"`, "discardReason": `"max_attempts"`, "finalAttempts": "9",
	})
	s.wantTimestamp("a/1", "discardedAt", at)
}

func checkSpentErrorText(s *suite) {
	s.insertRow("none/1", spentRow())
	s.insertRow("long/1", Row{Status: StatusFailed, Attempts: 8, Error: strings.Repeat("ż", 1990)})
	s.claim(request())
	const note = " | max_attempts_exhausted_at_claim"
	if got := s.row("none/1").Error; got != note {
		s.Errorf("error is %q, want %q", got, note)
	}
	if got, want := s.row("long/1").Error, strings.Repeat("ż", 1990)+note[:10]; got != want {
		s.Errorf("error has %d characters and ends in %q, want 2000 and %q", len([]rune(got)), tail(got), tail(want))
	}
}

func checkSpentEveryUnfinishedStatus(s *suite) {
	for _, status := range []string{StatusPending, StatusFailed, StatusProcessing} {
		s.insertRow(status+"/1", Row{Status: status, Attempts: 8})
	}
	s.wantClaim(request(), "")
	for _, status := range []string{StatusPending, StatusFailed, StatusProcessing} {
		s.wantRow(status+"/1", StatusDiscarded, 8)
	}
}

func checkSpentFirstAttemptsOfACeilingOfOne(s *suite) {
	s.insertRow("a/1", Row{Status: StatusProcessing, Attempts: 1})
	s.insert("b/1")
	req := request()
	req.MaxAttempts = 1
	s.wantClaim(req, "b/1")
	s.wantRow("a/1", StatusDiscarded, 1)
}

func checkSpentFreesFollowersAtOnce(s *suite) {
	s.insertRow("a/1", spentRow())
	s.insert("a/2")
	s.wantClaim(request(), "a/2")
}

func checkSpentOnlyWhenDue(s *suite) {
	later := s.Now().Add(time.Hour)
	s.insertRow("a/1", Row{Status: StatusProcessing, Attempts: 8, AvailableAt: later})
	s.insertRow("b/1", Row{Status: StatusFailed, Attempts: 8, AvailableAt: later})
	s.insert("a/2", "b/2")
	s.wantClaim(request(), "")
	s.wantRow("a/1", StatusProcessing, 8)
	s.wantRow("b/1", StatusFailed, 8)
}

func checkSpentBlockedOrNot(s *suite) {
	s.insertRow("a/1", Row{AvailableAt: s.Now().Add(time.Hour)})
	s.insertRow("a/2", spentRow())
	s.wantClaim(request(), "")
	s.wantRow("a/2", StatusDiscarded, 8)
}

func checkSpentOnlyOwnTypes(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther, Attempts: 20})
	req := request()
	req.KnownTypes = []string{typeOther}
	s.wantClaim(req, "")
	s.wantRow("a/1", StatusPending, 20)
}

func checkSpentThe100Oldest(s *suite) {
	s.insertMany(101, "spent", spentRow())
	s.insert("101/follower", "100/follower")
	req := request()
	req.BatchSize = 1
	s.wantClaim(req, "100/follower")
	s.wantRow("1/spent", StatusDiscarded, 8)
	s.wantRow("100/spent", StatusDiscarded, 8)
	s.wantRow("101/spent", StatusFailed, 8)
	s.wantClaim(req, "101/follower")
	s.wantRow("101/spent", StatusDiscarded, 8)
}

func tail(text string) string {
	runes := []rune(text)
	return string(runes[max(0, len(runes)-20):])
}

// spentRow is due and has no attempt left.
func spentRow() Row { return Row{Status: StatusFailed, Attempts: 8} }
