package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

var _ outbox.Pruner = (*Store)(nil)

const pruneSQL = `select public.outbox_prune(make_interval(secs => $1::float8), make_interval(secs => $2::float8), $3::int)`

// Prune implements [outbox.Pruner]. Its cost does not follow the history; see outbox_prune in sql/0002_worker.sql for what
// that asks. The role needs the right to delete.
func (s *Store) Prune(ctx context.Context, retention outbox.Retention, limit int) (int, error) {
	retention = retention.WithDefaults()
	var pruned int
	err := again(ctx, func() error {
		return s.Pool.QueryRow(ctx, pruneSQL, orForever(retention.Processed), orForever(retention.Discarded), orNull(limit)).
			Scan(&pruned)
	})
	if err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	return pruned, nil
}

// orForever passes an age in seconds, and null for one that never comes.
func orForever(age time.Duration) *float64 {
	if age < 0 {
		return nil
	}
	seconds := age.Seconds()
	return &seconds
}
