package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/outbox"
)

var _ outbox.Discards = (*Store)(nil)

const (
	untoldSQL = `
select id::text, position, created_at, aggregate_type, aggregate_id::text, event_type, idempotency_key, attempts,
  coalesce(error, ''), coalesce(discard_reason, ''), discarded_at, mark
from public.outbox_discards_untold($1::text[], $2::int)`
	toldSQL = `select public.outbox_discards_told($1::text[]::uuid[], $2::text[])`
)

// Untold implements [outbox.Discards]. Its cost does not follow the history.
func (s *Store) Untold(ctx context.Context, eventTypes []string, limit int) ([]outbox.Notice, error) {
	var untold []outbox.Notice
	err := again(ctx, func() error {
		rows, err := s.Pool.Query(ctx, untoldSQL, orEmpty(eventTypes), orNull(limit))
		if err != nil {
			return err
		}
		untold, err = pgx.CollectRows(rows, scanNotice)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("untold discards: %w", err)
	}
	return untold, nil
}

// Told implements [outbox.Discards].
func (s *Store) Told(ctx context.Context, notices []outbox.Notice) error {
	ids, marks := make([]string, len(notices)), make([]string, len(notices))
	for i, notice := range notices {
		ids[i], marks[i] = notice.EventID, notice.Mark
	}
	err := again(ctx, func() error {
		_, err := s.Pool.Exec(ctx, toldSQL, ids, marks)
		return err
	})
	if err != nil {
		return fmt.Errorf("tell of discards: %w", err)
	}
	return nil
}

func scanNotice(row pgx.CollectableRow) (n outbox.Notice, err error) {
	err = row.Scan(&n.EventID, &n.Position, &n.CreatedAt, &n.AggregateType, &n.AggregateID, &n.Type, &n.IdempotencyKey,
		&n.Attempts, &n.Reason, &n.DiscardReason, &n.DiscardedAt, &n.Mark)
	return n, err
}
