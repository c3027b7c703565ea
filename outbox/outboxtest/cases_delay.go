package outboxtest

import (
	"fmt"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// delayCases: when a row comes back.
func delayCases() []testCase {
	return []testCase{
		{"delay/retry", "base doubled per attempt up to the cap, and a random part of it, half or more", checkDelayRetry},
		{"delay/retries_scatter", "rows that fail together do not come back together", checkDelayRetriesScatter},
		{"delay/snooze_clamps", "a minute to an hour, 5 minutes unless said, whole seconds rounded up", checkDelaySnoozeClamps},
		{"delay/release_clamps", "nothing to an hour, whole seconds rounded up", checkDelayReleaseClamps},
	}
}

func checkDelayRetry(s *suite) {
	const minute = time.Minute
	for i, c := range []struct {
		attempts  int
		base, cap time.Duration
		want      time.Duration
	}{
		{1, 0, 0, minute},
		{2, 0, 0, 2 * minute},
		{5, 0, 0, 16 * minute},
		{7, 0, 0, time.Hour},
		{1, time.Second, 0, 5 * time.Second},
		{1, 100 * time.Hour, 0, time.Hour},
		{3, 10 * time.Second, 0, 40 * time.Second},
		{3, 10 * time.Second, 25 * time.Second, 25 * time.Second},
		{3, 10 * minute, time.Second, 10 * minute},
		{7, time.Hour, 100 * time.Hour, 24 * time.Hour},
		{0, 0, 0, minute},
	} {
		key := fmt.Sprintf("%d/1", i)
		s.insert(key)
		event := s.claimOne(key)
		s.update(key, func(row *Row) { row.Attempts = c.attempts })
		backoff := outbox.Backoff{Base: c.base, Cap: c.cap}
		at := s.during(func() {
			s.wantAnswersUnder(backoff, []outbox.Settlement{settlement(event, outbox.Retry)}, outbox.AnswerFailed)
		})
		s.wantTime(fmt.Sprintf("available_at after %d attempts, base %v, cap %v", c.attempts, c.base, c.cap),
			s.row(key).AvailableAt, at, c.want/2, c.want)
		s.update(key, func(row *Row) { row.Status = StatusDiscarded }) // short delays end during a slow test
	}
}

func checkDelayRetriesScatter(s *suite) {
	s.insertMany(20, "x", Row{})
	var batch []outbox.Settlement
	for _, event := range s.claim(request()) {
		batch = append(batch, settlement(event, outbox.Retry))
	}
	at := s.during(func() {
		if _, err := s.Store.Settle(s.Context(), batch, outbox.Backoff{Base: time.Hour}); err != nil {
			s.Fatalf("Settle: %v", err)
		}
	})
	first, last := time.Duration(1<<62), time.Duration(0)
	for i := range 20 {
		delay := s.row(fmt.Sprintf("%d/x", i+1)).AvailableAt.Sub(at.from)
		first, last = min(first, delay), max(last, delay)
	}
	// Twenty of thirty minutes' range lie within one minute by chance once in some 10^26 runs.
	if last-first < time.Minute {
		s.Errorf("20 retries come back within %v, want them scattered over half an hour", last-first)
	}
}

func checkDelaySnoozeClamps(s *suite) {
	checkDelays(s, outbox.Snoozed, []delayCase{
		{0, 5 * time.Minute},
		{10 * time.Second, time.Minute},
		{48 * time.Hour, time.Hour},
		{90*time.Second + time.Millisecond, 91 * time.Second},
		{600 * time.Second, 600 * time.Second},
	})
}

func checkDelayReleaseClamps(s *suite) {
	checkDelays(s, outbox.Released, []delayCase{
		{0, 0},
		{-time.Hour, 0},
		{48 * time.Hour, time.Hour},
		{10*time.Second + time.Millisecond, 11 * time.Second},
		{600 * time.Second, 600 * time.Second},
	})
}

type delayCase struct{ asked, want time.Duration }

func checkDelays(s *suite, outcome outbox.Outcome, cases []delayCase) {
	answer := map[outbox.Outcome]outbox.Answer{
		outbox.Snoozed: outbox.AnswerSnoozed, outbox.Released: outbox.AnswerReleased,
	}[outcome]
	for i, c := range cases {
		key := fmt.Sprintf("%d/1", i)
		s.insert(key)
		entry := settlement(s.claimOne(key), outcome)
		entry.Delay = c.asked
		at := s.during(func() { s.wantAnswers([]outbox.Settlement{entry}, answer) })
		s.wantTime(fmt.Sprintf("available_at after %s of %v", outcome, c.asked), s.row(key).AvailableAt, at, c.want, c.want)
		s.update(key, func(row *Row) { row.Status = StatusDiscarded }) // out of the next claim's way
	}
}
