package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
)

// Store is the outbox in PostgreSQL. It holds no state of its own and is safe for concurrent use; each method is one
// round trip, in any pgx query mode, through a transaction pooler too. Every call needs a deadline on its context:
// the store sets none on the session.
type Store struct {
	// Pool must not be nil. The caller owns and closes it.
	Pool *pgxpool.Pool
}

var (
	_ outbox.Store = (*Store)(nil)
	_ outbox.Stats = (*Store)(nil)
)

const claimSQL = `
select id::text, position, created_at, aggregate_type, aggregate_id::text, event_type, idempotency_key, attempts,
       payload::text, metadata::text, recovered
from public.outbox_claim_events($1::text[], $2::text[], $3::text[], $4::int, $5::int, $6::int, $7::boolean)`

// Claim implements [outbox.Store].
func (s *Store) Claim(ctx context.Context, req outbox.ClaimRequest) ([]outbox.Event, error) {
	rows, err := s.Pool.Query(ctx, claimSQL, req.EventTypes, orEmpty(req.KnownTypes), orEmpty(req.HeldTypes),
		orNull(req.BatchSize), orNull(seconds(req.Visibility)), orNull(req.MaxAttempts), req.PreferRecovered)
	if err != nil {
		return nil, fmt.Errorf("claim batch: %w", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (outbox.Event, error) {
		var e outbox.Event
		err := row.Scan(&e.ID, &e.Position, &e.CreatedAt, &e.AggregateType, &e.AggregateID, &e.Type,
			&e.IdempotencyKey, &e.Attempts, (*rawText)(&e.Payload), (*rawText)(&e.Metadata), &e.Recovered)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim batch: %w", err)
	}
	return events, nil
}

const settleSQL = `
select answer
from public.outbox_settle($1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[]::jsonb[], $6::int[],
                          $7::int, $8::int, $9::int)
order by ordinal`

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
	return answers, nil
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

func (s *Store) settle(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	n := len(batch)
	ids, tokens, outcomes := make([]string, n), make([]string, n), make([]string, n)
	reasons, details, delays := make([]*string, n), make([]*string, n), make([]*int32, n)
	for i, entry := range batch {
		ids[i], tokens[i], outcomes[i] = entry.EventID, entry.ClaimToken, string(entry.Outcome)
		reason := strings.ReplaceAll(strings.ToValidUTF8(entry.Reason, "\uFFFD"), "\x00", "\uFFFD")
		reasons[i] = &reason
		if entry.Detail != nil {
			detail := string(entry.Detail)
			details[i] = &detail
		}
		if entry.Outcome == outbox.Released || entry.Delay != 0 {
			delay := seconds(entry.Delay)
			delays[i] = &delay
		}
	}
	rows, err := s.Pool.Query(ctx, settleSQL, ids, tokens, outcomes, reasons, details, delays,
		orNull(seconds(backoff.Base)), orNull(seconds(backoff.Cap)), orNull(backoff.MaxAttempts))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[outbox.Answer])
}

const statsSQL = `select public.outbox_queue_stats()::text`

// QueueStats implements [outbox.Stats]: how many events are unfinished and how long the longest-waiting due one has
// waited, in all and by type. Its cost does not follow the backlog; counts stop at 10,000 a type.
func (s *Store) QueueStats(ctx context.Context) (json.RawMessage, error) {
	var stats rawText
	if err := s.Pool.QueryRow(ctx, statsSQL).Scan(&stats); err != nil {
		return nil, fmt.Errorf("queue statistics: %w", err)
	}
	return json.RawMessage(stats), nil
}

// refused tells that PostgreSQL refused the statement's data (class 22, or 54, program limits), so that nothing of
// it was written and other data may pass.
func refused(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (strings.HasPrefix(pgErr.Code, "22") || strings.HasPrefix(pgErr.Code, "54"))
}

// seconds rounds up to whole seconds, within what an SQL integer holds.
func seconds(d time.Duration) int32 {
	return int32(min(max(math.Ceil(d.Seconds()), math.MinInt32), math.MaxInt32))
}

// orNull passes zero as null, which SQL reads as its default.
func orNull[T int | int32](n T) *int32 {
	if n == 0 {
		return nil
	}
	clamped := int32(min(max(int64(n), math.MinInt32), math.MaxInt32))
	return &clamped
}

// orEmpty passes nil as the empty array.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// rawText scans a text column into bytes of its own.
type rawText []byte

// ScanText implements pgtype.TextScanner.
func (r *rawText) ScanText(v pgtype.Text) error {
	*r = rawText(v.String)
	return nil
}
