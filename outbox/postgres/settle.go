package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openlup/outbox-dispatch/outbox"
)

const settleSQL = `
select coalesce(string_agg(answer, ',' order by ordinal), '')
from public.outbox_settle(
  $1::text[]::uuid[], $2::text[], coalesce($3::text[], array_fill('processed'::text, array[cardinality($2::text[])])),
  coalesce($4::text[], array_fill(''::text, array[cardinality($2::text[])])),
  coalesce($5::text[]::jsonb[], array_fill(null::jsonb, array[cardinality($2::text[])])),
  coalesce($6::int[], array_fill(0, array[cardinality($2::text[])])),
  $7::int, $8::int, $9::int, p_wait => false)`

// noDetail adds nothing to an event's metadata.
const noDetail = "{}"

// A row that somebody else has locked is asked for again a few times while the others are settled already; then its
// acknowledgement is given up, as missed, and its lease ends by itself.
const (
	lockedAnswer = outbox.Answer("locked")
	lockedTries  = 8
	lockedPause  = 200 * time.Millisecond
)

// Settle implements [outbox.Store]. Data that PostgreSQL refuses is not worth an acknowledgement: when the batch
// is refused for its data, each entry is tried by itself, and a refused one is settled with a plain reason and no
// detail.
func (s *Store) Settle(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
	answers, err := s.settle(ctx, batch, backoff)
	if refused(err) {
		answers, err = s.settleOneByOne(ctx, batch, backoff)
	}
	if err != nil {
		return nil, fmt.Errorf("settle batch of %d: %w", len(batch), err)
	}
	s.settleLocked(ctx, batch, answers, backoff)
	return answers, nil
}

// settleLocked tries the locked entries again, and fills in their answers. It has no error: the others are written.
func (s *Store) settleLocked(ctx context.Context, batch []outbox.Settlement, answers []outbox.Answer, backoff outbox.Backoff) {
	for range lockedTries {
		var places []int
		var entries []outbox.Settlement
		for i, answer := range answers {
			if answer == lockedAnswer {
				places, entries = append(places, i), append(entries, batch[i])
			}
		}
		if len(places) == 0 || !pause(ctx, lockedPause) {
			break
		}
		if retried, err := s.settle(ctx, entries, backoff); err == nil {
			for i, place := range places {
				answers[place] = retried[i]
			}
		}
	}
	for i, answer := range answers {
		if answer == lockedAnswer {
			answers[i] = outbox.Missed
		}
	}
}

func (s *Store) settleOneByOne(
	ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff,
) ([]outbox.Answer, error) {
	answers := make([]outbox.Answer, 0, len(batch))
	for _, entry := range batch {
		one, err := s.settle(ctx, []outbox.Settlement{entry}, backoff)
		if refused(err) {
			entry.Detail = nil
			if entry.Reason != "" {
				entry.Reason = "reason_refused_by_database"
			}
			one, err = s.settle(ctx, []outbox.Settlement{entry}, backoff)
		}
		if refused(err) { // the id or the token: such a row does not exist
			one, err = []outbox.Answer{outbox.Missed}, nil
		}
		if err != nil {
			return nil, err
		}
		answers = append(answers, one...)
	}
	return answers, nil
}

func (s *Store) settle(
	ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff,
) (answers []outbox.Answer, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	n := len(batch)
	ids, tokens, outcomes := make([]string, n), make([]string, n), make([]string, n)
	reasons, details, delays := make([]string, n), make([]string, n), make([]int32, n)
	for i, entry := range batch {
		ids[i], tokens[i], outcomes[i] = clean(entry.EventID), clean(entry.ClaimToken), string(entry.Outcome)
		if entry.Outcome == outbox.Snoozed && entry.Uncharged {
			outcomes[i] = "snooze_uncharged"
		}
		reasons[i] = clean(entry.Reason)
		details[i], delays[i] = noDetail, seconds(entry.Delay)
		if entry.Detail != nil {
			details[i] = clean(string(entry.Detail))
		}
		if entry.Outcome == outbox.Snoozed && entry.Delay == 0 {
			delays[i] = seconds(outbox.DefaultSnooze)
		}
	}
	var list string // one row of a thousand words costs both sides less than a thousand rows
	err = again(ctx, func() error {
		return s.Pool.QueryRow(ctx, settleSQL, ids, tokens, unlessAll(outcomes, string(outbox.Processed)),
			unlessAll(reasons, ""), unlessAll(details, noDetail), unlessAll(delays, 0),
			orNull(seconds(backoff.Base)), orNull(seconds(backoff.Cap)), orNull(backoff.MaxAttempts)).Scan(&list)
	})
	if err != nil {
		return nil, err
	}
	for answer := range strings.SplitSeq(list, ",") {
		answers = append(answers, outbox.Answer(answer))
	}
	return answers, nil
}

// unlessAll returns nil for a list that holds nothing but the given value: most batches have neither reasons nor details.
func unlessAll[T comparable](list []T, value T) []T {
	if slices.ContainsFunc(list, func(item T) bool { return item != value }) {
		return list
	}
	return nil
}

// clean makes a text of the program's storable.
func clean(text string) string {
	if utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 {
		return text
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
