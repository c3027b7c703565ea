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

// Times are read as microseconds: their text follows the session's DateStyle, and infinity is no time in Go.
const claimColumns = `
select id::text, position, case when isfinite(created_at) then (extract(epoch from created_at) * 1000000)::bigint end,
       aggregate_type, aggregate_id::text, event_type, idempotency_key, attempts, recovered, `

const claimFrom = `
from public.outbox_claim_events($1::text[], $2::text[], $3::text[], $4::int, $5::int, $6::int, $7::boolean)`

const (
	claimSQL = claimColumns + `payload::text, metadata::text` + claimFrom
	// claimBareSQL reads of the metadata only what a pass needs, and no payload.
	claimBareSQL = claimColumns + `null::text,
       jsonb_build_object('claimToken', metadata->'claimToken', 'snoozeCount', left(metadata->>'snoozeCount', 20))::text` + claimFrom
	payloadSQL = `select payload::text from public.outbox_events where id = $1::text::uuid`
)

// Claim implements [outbox.Store]. An event whose JSON PostgreSQL cannot print (a small jsonb may stand for a gigabyte of
// text) must not hold up all others: when a claim fails for that, the next one reads payloads one by one, and such an
// event is settled as a retry with the reason payload_unreadable. A [outbox.Event.CreatedAt] of infinity reads as zero.
func (s *Store) Claim(ctx context.Context, req outbox.ClaimRequest) ([]outbox.Event, error) {
	events, err := s.claim(ctx, claimSQL, req)
	if refused(err) {
		events, err = s.claimOneByOne(ctx, req)
	}
	if err != nil {
		return nil, fmt.Errorf("claim batch: %w", err)
	}
	return events, nil
}

func (s *Store) claim(ctx context.Context, sql string, req outbox.ClaimRequest) ([]outbox.Event, error) {
	var events []outbox.Event
	err := again(ctx, func() error {
		rows, err := s.Pool.Query(ctx, sql, req.EventTypes, orEmpty(req.KnownTypes), orEmpty(req.HeldTypes),
			orNull(req.BatchSize), orNull(seconds(req.Visibility)), orNull(req.MaxAttempts), req.PreferRecovered)
		if err != nil {
			return err
		}
		events, err = pgx.CollectRows(rows, scanEvent)
		return err
	})
	return events, err
}

func scanEvent(row pgx.CollectableRow) (outbox.Event, error) {
	var e outbox.Event
	var created *int64
	err := row.Scan(&e.ID, &e.Position, &created, &e.AggregateType, &e.AggregateID, &e.Type,
		&e.IdempotencyKey, &e.Attempts, &e.Recovered, (*rawText)(&e.Payload), (*rawText)(&e.Metadata))
	if created != nil {
		e.CreatedAt = time.UnixMicro(*created)
	}
	return e, err
}

func (s *Store) claimOneByOne(ctx context.Context, req outbox.ClaimRequest) ([]outbox.Event, error) {
	claimed, err := s.claim(ctx, claimBareSQL, req)
	if err != nil {
		return nil, err
	}
	events := make([]outbox.Event, 0, len(claimed))
	for _, e := range claimed {
		err := s.Pool.QueryRow(ctx, payloadSQL, e.ID).Scan((*rawText)(&e.Payload))
		if refused(err) {
			unreadable := outbox.Settlement{EventID: e.ID, ClaimToken: e.ClaimToken(), Outcome: outbox.Retry, Reason: "payload_unreadable"}
			_, err = s.settle(ctx, []outbox.Settlement{unreadable}, outbox.Backoff{MaxAttempts: req.MaxAttempts})
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err // the leases of what was claimed end by themselves
		}
		events = append(events, e)
	}
	return events, nil
}

// again runs a call up to five times while PostgreSQL rolls it back for a conflict with another transaction, as it does
// where the database's default isolation is stricter than read committed. Nothing of such a call was written.
func again(ctx context.Context, call func() error) error {
	for try := 1; ; try++ {
		err := call()
		var pgErr *pgconn.PgError
		if try == 5 || !errors.As(err, &pgErr) || (pgErr.Code != "40001" && pgErr.Code != "40P01") ||
			!pause(ctx, time.Duration(try)*10*time.Millisecond) {
			return err
		}
	}
}

// pause waits, and tells whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
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

// refused tells that PostgreSQL refused the statement's data (class 22; 54, program limits; 53200, memory), so that nothing of
// it was written and other data may pass.
func refused(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (strings.HasPrefix(pgErr.Code, "22") || strings.HasPrefix(pgErr.Code, "54") ||
		pgErr.Code == "53200")
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

// ScanText implements pgtype.TextScanner; null is nil.
func (r *rawText) ScanText(v pgtype.Text) error {
	*r = nil
	if v.Valid {
		*r = rawText(v.String)
	}
	return nil
}
