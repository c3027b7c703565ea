package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
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

// again runs a call up to five times while PostgreSQL rolls it back for a conflict with another transaction, as it does
// where the database's default isolation is stricter than read committed. Nothing of such a call was written. Nor was it sent
// when a login was refused: once, that is tried again, since whoever gives connections their password may have a newer one now.
func again(ctx context.Context, call func() error) error {
	refused := false
	for try := 1; ; try++ {
		err := call()
		var pgErr *pgconn.PgError
		if try == 5 || !errors.As(err, &pgErr) {
			return err
		}
		switch {
		case loginRefused(pgErr) && !refused:
			refused = true
		case pgErr.Code != "40001" && pgErr.Code != "40P01", !pause(ctx, time.Duration(try)*10*time.Millisecond):
			return err
		}
	}
}

// loginRefused tells whether the server refused the user or password. PgBouncer says so by words only, under the code of
// all its errors.
func loginRefused(err *pgconn.PgError) bool {
	return err.Code == "28P01" || err.Code == "28000" ||
		err.Code == "08P01" && strings.Contains(err.Message, "authentication failed")
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
	var stats []byte
	if err := s.Pool.QueryRow(ctx, statsSQL).Scan(&stats); err != nil {
		return nil, fmt.Errorf("queue statistics: %w", err)
	}
	return stats, nil
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
