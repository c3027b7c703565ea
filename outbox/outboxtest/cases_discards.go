package outboxtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// discardCases: which discards somebody is to be told of, where a store offers that.
func discardCases() []testCase {
	return []testCase{
		{"discards/any", "whoever discarded it, by whatever way, a discarded row is untold, and no other is", checkDiscardsAny},
		{"discards/notice", "a notice says what became of the event and why", checkDiscardsNotice},
		{"discards/types", "only discards of the types asked for are answered", checkDiscardsTypes},
		{"discards/told", "what was told of is not answered again, and all else is", checkDiscardsTold},
		{"discards/anew", "an event that is delivered again and discarded again is told of again", checkDiscardsAnew},
		{"discards/stale", "telling of one discard does not count for the next one", checkDiscardsStale},
		{"discards/limit", "the oldest events of a type come first, and no more than asked for", checkDiscardsLimit},
		{"discards/metadata", "whatever a row's metadata holds, its discard is told of once, and what it held stays", checkDiscardsMetadata},
	}
}

// tellerOf calls do when the store knows of which discards somebody was told.
func tellerOf(s *suite, do func(d outbox.Discards)) {
	if d, ok := s.Store.(outbox.Discards); ok {
		do(d)
	}
}

// wantUntold wants just these rows, in this order and separated by spaces, and returns their notices.
func (s *suite) wantUntold(d outbox.Discards, limit int, want string, types ...string) []outbox.Notice {
	s.Helper()
	if len(types) == 0 {
		types = []string{typeMine}
	}
	untold, err := d.Untold(s.Context(), types, limit)
	if err != nil {
		s.Fatalf("Untold(%q, %d): %v", types, limit, err)
	}
	keys := make([]string, len(untold))
	for i, notice := range untold {
		if keys[i] = notice.IdempotencyKey; s.ids[keys[i]] != notice.EventID {
			s.Errorf("the notice of %s has another event's id", keys[i])
		}
	}
	if got := strings.Join(keys, " "); got != want {
		s.Errorf("untold are %q, want %q", got, want)
	}
	return untold
}

func (s *suite) tell(d outbox.Discards, notices ...outbox.Notice) {
	s.Helper()
	if err := d.Told(s.Context(), notices); err != nil {
		s.Fatalf("Told: %v", err)
	}
}

func checkDiscardsAny(s *suite) {
	tellerOf(s, func(d outbox.Discards) {
		s.insert("settled", "delivered", "released", "snoozed", "retried")
		s.insertRow("last_retry", Row{Attempts: 7})
		events := map[string]outbox.Event{}
		for _, event := range s.claim(request()) {
			events[event.IdempotencyKey] = event
		}
		s.insertRow("spent", Row{Status: StatusFailed, Attempts: 8})
		s.insertRow("crashed", Row{Status: StatusProcessing, Attempts: 8})
		s.insert("by_hand", "waiting")
		s.wantUntold(d, 0, "")
		s.wantAnswers([]outbox.Settlement{
			settlement(events["settled"], outbox.Discarded), settlement(events["delivered"], outbox.Processed),
			settlement(events["released"], outbox.Released), settlement(events["snoozed"], outbox.Snoozed),
			settlement(events["retried"], outbox.Retry), settlement(events["last_retry"], outbox.Retry),
		}, outbox.AnswerDiscarded, outbox.AnswerProcessed, outbox.AnswerReleased, outbox.AnswerSnoozed, outbox.AnswerFailed, outbox.AnswerDiscarded)
		s.claim(request()) // which discards what is spent
		s.update("by_hand", func(row *Row) { row.Status = StatusDiscarded })
		s.wantUntold(d, 0, "settled last_retry spent crashed by_hand")
	})
}

func checkDiscardsNotice(s *suite) {
	tellerOf(s, func(d outbox.Discards) {
		created := s.Now().Add(-time.Hour)
		s.insertRow("a/1", Row{Attempts: 2, CreatedAt: created, AvailableAt: created})
		s.insertRow("b/1", Row{Attempts: 7, CreatedAt: created, AvailableAt: created})
		events := s.wantClaim(request(), "a/1 b/1")
		s.insert("c/1")
		first, second := settlement(events[0], outbox.Discarded), settlement(events[1], outbox.Retry)
		first.Reason, second.Reason = "no such customer", "refused"
		at := s.during(func() {
			s.wantAnswers([]outbox.Settlement{first, second}, outbox.AnswerDiscarded, outbox.AnswerDiscarded)
		})
		s.update("c/1", func(row *Row) { row.Status = StatusDiscarded })
		untold := s.wantUntold(d, 0, "a/1 b/1 c/1")
		if len(untold) != 3 {
			return
		}
		for i, want := range []outbox.Notice{
			{Attempts: 3, Reason: "no such customer", DiscardReason: "permanent_error"},
			{Attempts: 8, Reason: "refused", DiscardReason: "max_attempts"},
			{},
		} {
			got, row := untold[i], s.row([]string{"a/1", "b/1", "c/1"}[i])
			want.EventID, want.Position, want.AggregateType, want.AggregateID = row.ID, row.Position, row.AggregateType, row.AggregateID
			want.Type, want.IdempotencyKey = typeMine, row.IdempotencyKey
			want.CreatedAt, want.DiscardedAt, want.Mark = got.CreatedAt, got.DiscardedAt, got.Mark
			if got != want || !got.CreatedAt.Equal(row.CreatedAt) {
				s.Errorf("notice is %+v, want %+v, created at %v", got, want, row.CreatedAt)
			}
		}
		for _, notice := range untold[:2] {
			s.wantTime("discarded at", notice.DiscardedAt, at, 0, 0)
		}
	})
}

func checkDiscardsTypes(s *suite) {
	tellerOf(s, func(d outbox.Discards) {
		s.insertRow("mine", Row{Status: StatusDiscarded})
		s.insertRow("other", Row{Status: StatusDiscarded, Type: typeOther})
		s.wantUntold(d, 0, "mine")
		s.wantUntold(d, 0, "other", typeOther)
		s.wantUntold(d, 0, "mine", typeMine, typeMine, "")
		s.wantUntold(d, 0, "", "suite")
		if untold, err := d.Untold(s.Context(), nil, 0); err != nil || len(untold) != 0 {
			s.Errorf("Untold of no types: %+v, %v, want none", untold, err)
		}
		if n := len(s.wantUntold(d, 0, "mine other", typeMine, typeOther)); n != 2 {
			s.Errorf("%d of both types, want 2", n)
		}
	})
}

func checkDiscardsTold(s *suite) {
	tellerOf(s, func(d outbox.Discards) {
		for _, key := range []string{"a", "b", "c"} {
			s.insertDiscarded(key, time.Hour)
		}
		untold := s.wantUntold(d, 0, "a b c")
		s.tell(d)
		s.tell(d, outbox.Notice{EventID: newUUID(), Mark: untold[0].Mark})
		s.wantUntold(d, 0, "a b c")
		s.tell(d, untold[1], untold[1])
		s.wantUntold(d, 0, "a c")
		s.tell(d, untold...)
		s.wantUntold(d, 0, "")
		for _, key := range []string{"a", "b", "c"} {
			s.wantRow(key, StatusDiscarded, 0)
		}
	})
}

func checkDiscardsAnew(s *suite) {
	tellerOf(s, func(d outbox.Discards) {
		s.insert("a/1")
		for range 3 {
			s.wantAnswers([]outbox.Settlement{settlement(s.claimOne("a/1"), outbox.Discarded)}, outbox.AnswerDiscarded)
			s.tell(d, s.wantUntold(d, 0, "a/1")...)
			s.wantUntold(d, 0, "")
			s.update("a/1", func(row *Row) { row.Status, row.AvailableAt = StatusPending, s.Now().Add(-time.Second) })
			s.wantUntold(d, 0, "")
		}
	})
}

func checkDiscardsStale(s *suite) {
	tellerOf(s, func(d outbox.Discards) {
		s.insert("a/1")
		s.wantAnswers([]outbox.Settlement{settlement(s.claimOne("a/1"), outbox.Discarded)}, outbox.AnswerDiscarded)
		first := s.wantUntold(d, 0, "a/1")
		s.update("a/1", func(row *Row) { row.Status, row.AvailableAt = StatusPending, s.Now().Add(-time.Second) })
		event := s.claimOne("a/1")
		s.tell(d, first...) // of the one before, while it is delivered again
		s.wantAnswers([]outbox.Settlement{settlement(event, outbox.Discarded)}, outbox.AnswerDiscarded)
		s.tell(d, first...)
		s.tell(d, s.wantUntold(d, 0, "a/1")...)
		s.wantUntold(d, 0, "")
	})
}

func checkDiscardsLimit(s *suite) {
	tellerOf(s, func(d outbox.Discards) {
		for _, hours := range []int{1, 3, 2} {
			s.insertDiscarded(fmt.Sprint(hours), time.Duration(hours)*time.Hour)
		}
		s.wantUntold(d, 2, "1 3")
		s.wantUntold(d, -1, "1") // clamped
		s.wantUntold(d, 1_000_000, "1 3 2")
		for i := range 100 {
			s.insertDiscarded(fmt.Sprint("more", i), time.Hour)
		}
		if untold, err := d.Untold(s.Context(), []string{typeMine}, 0); err != nil || len(untold) != 100 {
			s.Errorf("Untold of zero: %d, %v, want 100", len(untold), err)
		}
	})
}

func checkDiscardsMetadata(s *suite) {
	tellerOf(s, func(d outbox.Discards) {
		for i, metadata := range []string{
			`{}`, `[]`, `"text"`, `null`, `[1, "discardTold"]`, `{"mine": 1}`, `{"discardedAt": null}`, `{"discardedAt": ""}`,
			`{"discardedAt": "yesterday"}`, `{"discardedAt": 5}`, `{"discardTold": null}`, `{"discardTold": "x"}`, `{"discardTold": true}`,
		} {
			key := fmt.Sprintf("%d/1", i)
			s.insertRow(key, Row{Status: StatusDiscarded, Metadata: json.RawMessage(metadata)})
			s.tell(d, s.wantUntold(d, 0, key)...)
			s.wantUntold(d, 0, "")
		}
		s.wantMetadata("5/1", map[string]string{"mine": "1"})
		s.wantMetadata("8/1", map[string]string{"discardedAt": `"yesterday"`})
	})
}
