package outboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openlup/outbox-dispatch/outbox"
)

// maxError is how many characters of a reason are kept.
const maxError = 2000

// Settle implements [outbox.Store].
func (m *Memory) Settle(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	answers := make([]outbox.Answer, 0, len(batch))
	for _, s := range batch {
		answers = append(answers, m.settle(s, backoff, now))
	}
	return answers, nil
}

func (m *Memory) settle(s outbox.Settlement, backoff outbox.Backoff, now time.Time) outbox.Answer {
	row := m.find(s.EventID)
	if row == nil || row.Status != StatusProcessing || s.ClaimToken == "" || row.event().ClaimToken() != s.ClaimToken {
		return outbox.Missed
	}
	switch s.Outcome {
	case outbox.Processed:
		row.Status, row.ProcessedAt, row.Error = StatusProcessed, now, ""
		merge(row, detailKeys(s.Detail))
		return outbox.AnswerProcessed
	case outbox.Released:
		row.Status, row.Attempts = StatusPending, max(row.Attempts-1, 0)
		row.AvailableAt = now.Add(clamp(wholeSeconds(s.Delay), 0, time.Hour))
		return outbox.AnswerReleased
	case outbox.Snoozed:
		row.Status, row.Attempts, row.Error = StatusFailed, max(row.Attempts-1, 0), cut(s.Reason)
		row.AvailableAt = now.Add(clamp(wholeSeconds(orDefault(s.Delay, 5*time.Minute)), time.Minute, time.Hour))
		count := row.event().SnoozeCount()
		if !s.Uncharged {
			count++
		}
		merge(row, map[string]json.RawMessage{"snoozeCount": json.RawMessage(strconv.Itoa(count)), "lastSnoozedAt": timestamp(now)})
		return outbox.AnswerSnoozed
	case outbox.Discarded:
		row.Error = cut(s.Reason)
		discard(row, now, "permanent_error")
		return outbox.AnswerDiscarded
	case outbox.Retry:
		row.Error = cut(s.Reason)
		if row.Attempts >= clamp(orDefault(backoff.MaxAttempts, 8), 1, 20) {
			discard(row, now, "max_attempts")
			return outbox.AnswerDiscarded
		}
		row.Status = StatusFailed
		row.AvailableAt = now.Add(retryDelay(row.Attempts, backoff)).Truncate(time.Microsecond)
		return outbox.AnswerFailed
	default:
		return outbox.Missed
	}
}

// retryDelay doubles the base per attempt up to the cap, and takes a random part of it, half of it or more.
func retryDelay(attempts int, backoff outbox.Backoff) time.Duration {
	base := clamp(wholeSeconds(orDefault(backoff.Base, time.Minute)), 5*time.Second, time.Hour)
	limit := min(max(base, wholeSeconds(orDefault(backoff.Cap, time.Hour))), 24*time.Hour)
	delay := base
	for range attempts - 1 {
		delay = min(2*delay, limit) // bounded at every step: no overflow
	}
	return time.Duration(float64(delay) * (0.5 + rand.Float64()/2))
}

func discard(row *Row, now time.Time, reason string) {
	row.Status = StatusDiscarded
	merge(row, map[string]json.RawMessage{
		"discardReason": quote(reason), "discardedAt": timestamp(now), "finalAttempts": json.RawMessage(strconv.Itoa(row.Attempts)),
	})
}

// merge adds keys to the metadata; metadata that is no object counts as empty.
func merge(row *Row, keys map[string]json.RawMessage) {
	merged := map[string]json.RawMessage{}
	if json.Unmarshal(row.Metadata, &merged) != nil || merged == nil {
		merged = map[string]json.RawMessage{}
	}
	maps.Copy(merged, keys)
	row.Metadata, _ = json.Marshal(merged) // every value was parsed or built here
}

// detailKeys returns what of a detail goes into the metadata: nothing when it is not JSON, the value under "detail"
// when it is no object, else its keys without those by which the rail works.
func detailKeys(detail json.RawMessage) map[string]json.RawMessage {
	if !json.Valid(detail) {
		return nil
	}
	keys := map[string]json.RawMessage{}
	if json.Unmarshal(detail, &keys) != nil || keys == nil {
		return map[string]json.RawMessage{"detail": detail}
	}
	for _, reserved := range reservedKeys() {
		delete(keys, reserved)
	}
	return keys
}

func reservedKeys() []string {
	return []string{
		"claimToken", "lastClaimedAt", "snoozeCount", "lastSnoozedAt",
		"discardReason", "discardedAt", "finalAttempts", "traceparent",
	}
}

// cut keeps what PostgreSQL's text can hold, and the first 2,000 characters of that.
func cut(reason string) string {
	reason = strings.ReplaceAll(strings.ToValidUTF8(reason, string(utf8.RuneError)), "\x00", string(utf8.RuneError))
	if runes := []rune(reason); len(runes) > maxError {
		return string(runes[:maxError])
	}
	return reason
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) time.Duration {
	rounded := d.Truncate(time.Second)
	if rounded < d {
		rounded += time.Second
	}
	return rounded
}

// timestamp writes a time as jsonb writes a timestamptz.
func timestamp(at time.Time) json.RawMessage {
	return quote(at.Format("2006-01-02T15:04:05.999999-07:00"))
}

// quote makes a JSON string of text that needs no escapes.
func quote(text string) json.RawMessage { return json.RawMessage(`"` + text + `"`) }
