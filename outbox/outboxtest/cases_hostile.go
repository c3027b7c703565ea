package outboxtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openlup/outbox-dispatch/outbox"
)

// hostileCases: data that breaks a naive store.
func hostileCases() []testCase {
	return []testCase{
		{"hostile/metadata_is_no_object", "such metadata counts as {}: the token must be readable", checkHostileMetadataIsNoObject},
		{"hostile/metadata_of_a_spent_row", "such metadata does not keep a row from its end", checkHostileMetadataOfASpentRow},
		{"hostile/token_is_no_text", "what stands under claimToken is replaced", checkHostileTokenIsNoText},
		{"hostile/snooze_count", "an integer or a text that holds one counts, anything else is 0", checkHostileSnoozeCount},
		{"hostile/detail_is_no_object", "such a detail is stored under the key detail", checkHostileDetailIsNoObject},
		{"hostile/detail_has_reserved_keys", "a destination cannot write the keys by which the rail works", checkHostileDetailHasReservedKeys},
		{"hostile/refused_detail", "an acknowledgement does not fail for what the destination answered", checkHostileRefusedDetail},
		{"hostile/reason_is_cut", "2,000 characters, not bytes, of a reason are kept", checkHostileReasonIsCut},
		{"hostile/reason_is_no_text", "a NUL or invalid UTF-8 in a reason costs that character at most", checkHostileReasonIsNoText},
		{
			"hostile/one_never_spoils_others", "a bad entry of a batch leaves the others as they would be alone",
			checkHostileBatch,
		},
	}
}

func checkHostileMetadataIsNoObject(s *suite) {
	for i, metadata := range []string{`[]`, `[1, {"claimToken": "x"}]`, `"text"`, `1`, `null`, `true`} {
		key := fmt.Sprintf("%d/1", i)
		s.insertRow(key, Row{Metadata: json.RawMessage(metadata)})
		event := s.claimOne(key)
		if event.ClaimToken() == "" {
			s.Errorf("metadata %s became %s at the claim, want a token in it", metadata, event.Metadata)
		}
		s.wantAnswers([]outbox.Settlement{settlement(event, outbox.Processed)}, outbox.AnswerProcessed)
	}
}

func checkHostileMetadataOfASpentRow(s *suite) {
	s.insertRow("a/1", Row{Attempts: 8, Metadata: json.RawMessage(`[]`)})
	s.wantClaim(request(), "")
	s.wantRow("a/1", StatusDiscarded, 8)
	s.wantMetadata("a/1", map[string]string{"discardReason": `"max_attempts"`})
}

func checkHostileTokenIsNoText(s *suite) {
	s.insertRow("a/1", Row{Metadata: json.RawMessage(`{"claimToken": {"a": 1}, "lastClaimedAt": []}`)})
	s.wantAnswers([]outbox.Settlement{settlement(s.claimOne("a/1"), outbox.Released)}, outbox.AnswerReleased)
}

func checkHostileSnoozeCount(s *suite) {
	for i, c := range []struct {
		count string
		want  int
	}{
		{`null`, 1},
		{`4`, 5},
		{`"4"`, 5},
		{`" 4 "`, 5},
		{`"many"`, 1},
		{`""`, 1},
		{`4.5`, 1},
		{`true`, 1},
		{`[4]`, 1},
		{`{}`, 1},
		{`"99999999999999999999999999"`, 1},
	} {
		key := fmt.Sprintf("%d/1", i)
		s.insertRow(key, Row{Metadata: json.RawMessage(`{"snoozeCount": ` + c.count + `}`)})
		event := s.claimOne(key)
		s.wantAnswers([]outbox.Settlement{settlement(event, outbox.Snoozed)}, outbox.AnswerSnoozed)
		s.wantMetadata(key, map[string]string{"snoozeCount": fmt.Sprint(c.want)})
	}
}

func checkHostileDetailIsNoObject(s *suite) {
	for i, detail := range []string{`[1]`, `"text"`, `7`, `false`} {
		key := fmt.Sprintf("%d/1", i)
		s.insertRow(key, Row{Metadata: json.RawMessage(`{"mine": 1}`)})
		entry := settlement(s.claimOne(key), outbox.Processed)
		entry.Detail = json.RawMessage(detail)
		s.wantAnswers([]outbox.Settlement{entry}, outbox.AnswerProcessed)
		s.wantMetadata(key, map[string]string{"mine": "1", "detail": detail})
	}
}

func checkHostileDetailHasReservedKeys(s *suite) {
	s.insertRow("a/1", Row{Metadata: json.RawMessage(`{"traceparent": "00-abc", "snoozeCount": 2}`)})
	entry := settlement(s.claimOne("a/1"), outbox.Processed)
	entry.Detail = json.RawMessage(`{"claimToken": 1, "lastClaimedAt": 1, "snoozeCount": 1, "lastSnoozedAt": 1,
		"discardReason": 1, "discardedAt": 1, "finalAttempts": 1, "traceparent": 1, "messageId": "m"}`)
	s.wantAnswers([]outbox.Settlement{entry}, outbox.AnswerProcessed)
	s.wantMetadata("a/1", map[string]string{
		"traceparent": `"00-abc"`, "snoozeCount": "2", "claimToken": fmt.Sprintf("%q", entry.ClaimToken),
		"lastSnoozedAt": "", "discardReason": "", "discardedAt": "", "finalAttempts": "", "messageId": `"m"`,
	})
}

func checkHostileRefusedDetail(s *suite) {
	for i, detail := range refusedDetails() {
		key := fmt.Sprintf("%d/1", i)
		s.insert(key)
		entry := settlement(s.claimOne(key), outbox.Processed)
		entry.Detail = json.RawMessage(detail)
		s.wantAnswers([]outbox.Settlement{entry}, outbox.AnswerProcessed)
		s.wantRow(key, StatusProcessed, 1)
	}
}

func checkHostileReasonIsCut(s *suite) {
	long := strings.Repeat("ż", 2500)
	for _, outcome := range []outbox.Outcome{outbox.Retry, outbox.Snoozed, outbox.Discarded} {
		key := string(outcome) + "/1"
		s.insert(key)
		entry := settlement(s.claimOne(key), outcome)
		entry.Reason = long
		if _, err := s.Store.Settle(s.Context(), []outbox.Settlement{entry}, outbox.Backoff{}); err != nil {
			s.Fatalf("Settle: %v", err)
		}
		if got := s.row(key).Error; got != strings.Repeat("ż", 2000) {
			s.Errorf("a reason of 2500 characters was kept as %d, want the first 2000", utf8.RuneCountInString(got))
		}
	}
}

func checkHostileReasonIsNoText(s *suite) {
	for _, outcome := range []outbox.Outcome{outbox.Retry, outbox.Snoozed, outbox.Discarded} {
		key := string(outcome) + "/1"
		s.insert(key)
		entry := settlement(s.claimOne(key), outcome)
		entry.Reason = "before\x00between\xff\xfeafter"
		if _, err := s.Store.Settle(s.Context(), []outbox.Settlement{entry}, outbox.Backoff{}); err != nil {
			s.Fatalf("Settle: %v", err)
		}
		got := s.row(key).Error
		for _, part := range []string{"before", "between", "after"} {
			if !strings.Contains(got, part) {
				s.Errorf("error is %q, want %q in it", got, part)
			}
		}
		if !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			s.Errorf("error is %q, want valid text without NUL", got)
		}
	}
}

// refusedDetails are details that are not JSON, or JSON that jsonb refuses.
func refusedDetails() []string {
	return []string{
		`{"a": "\u0000"}`, `{"\u0000": 1}`, `{"a": "\ud800"}`, `{"a": 1e200000}`, `{"a": -1e200000}`,
		`{"a": `, `not json`, ``, "{\"a\": \"\xff\"}", "{\"a\": \"\x00\"}", "[\"\\u0000\"]",
		`{"a": ` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`,
	}
}

func checkHostileBatch(s *suite) {
	details := refusedDetails()
	s.insertMany(len(details), "bad", Row{})
	s.insert("good/1", "retried/1", "released/1")
	events := s.claim(request())
	if len(events) != len(details)+3 {
		s.Fatalf("claimed %d rows, want %d", len(events), len(details)+3)
	}
	var batch []outbox.Settlement
	var want []outbox.Answer
	for i, detail := range details {
		entry := settlement(events[i], outbox.Processed)
		entry.Detail = json.RawMessage(detail)
		batch, want = append(batch, entry), append(want, outbox.AnswerProcessed)
	}
	rest := events[len(details):]
	good, retried, released := settlement(rest[0], outbox.Processed), settlement(rest[1], outbox.Retry), settlement(rest[2], outbox.Released)
	good.Detail = json.RawMessage(`{"messageId": "m"}`)
	retried.Reason = "refused \x00\xff"
	lost := settlement(rest[0], outbox.Processed)
	lost.EventID = "no-uuid"
	batch = append(batch, lost, good, retried, released)
	want = append(want, outbox.Missed, outbox.AnswerProcessed, outbox.AnswerFailed, outbox.AnswerReleased)

	s.wantAnswers(batch, want...)
	for i := range details {
		s.wantRow(fmt.Sprintf("%d/bad", i+1), StatusProcessed, 1)
	}
	s.wantRow("good/1", StatusProcessed, 1)
	s.wantMetadata("good/1", map[string]string{"messageId": `"m"`})
	row := s.wantRow("retried/1", StatusFailed, 1)
	if !strings.Contains(row.Error, "refused") {
		s.Errorf("error of the retried row is %q, want its reason", row.Error)
	}
	s.wantRow("released/1", StatusPending, 0)
	if s.row("retried/1").AvailableAt.Before(s.Now().Add(-time.Hour)) {
		s.Errorf("the retried row has no back-off")
	}
}
