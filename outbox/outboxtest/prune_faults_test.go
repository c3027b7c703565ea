package outboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

type pruneFunc = func(ctx context.Context, m *Memory, retention outbox.Retention, limit int) (int, error)

// pruning prunes something else than asked.
func pruning(change func(retention *outbox.Retention, limit *int)) pruneFunc {
	return func(ctx context.Context, m *Memory, retention outbox.Retention, limit int) (int, error) {
		change(&retention, &limit)
		return m.Prune(ctx, retention, limit)
	}
}

// pruningOthers changes each row, for good, and then prunes.
func pruningOthers(change func(row *Row)) pruneFunc {
	return func(ctx context.Context, m *Memory, retention outbox.Retention, limit int) (int, error) {
		for _, row := range m.rows {
			change(row)
		}
		return m.Prune(ctx, retention, limit)
	}
}

func pruneFaults() []fault {
	return []fault{
		{
			name:   "prunes nothing",
			breaks: "prune/processed prune/discarded prune/defaults prune/at_once prune/limit prune/key_is_free prune/unreadable_time prune/together prune/any_rows",
			prune:  func(context.Context, *Memory, outbox.Retention, int) (int, error) { return 0, nil },
		},
		{name: "prunes at any age", breaks: "prune/processed prune/discarded prune/defaults prune/any_rows", prune: pruning(func(r *outbox.Retention, _ *int) {
			*r = outbox.Retention{Processed: outbox.PruneAtOnce, Discarded: outbox.PruneAtOnce}
		})},
		{name: "mistakes one age for the other", breaks: "prune/processed prune/discarded prune/never prune/any_rows", prune: pruning(func(r *outbox.Retention, _ *int) {
			r.Processed, r.Discarded = r.Discarded, r.Processed
		})},
		{name: "keeps rows of both kinds equally long", breaks: "prune/defaults prune/any_rows", prune: pruning(func(r *outbox.Retention, _ *int) {
			r.Discarded = r.WithDefaults().Processed
		})},
		{name: "takes never for the default", breaks: "prune/never", prune: pruning(func(r *outbox.Retention, _ *int) {
			r.Processed, r.Discarded = max(r.Processed, 0), max(r.Discarded, 0)
		})},
		{name: "takes at once for the default", breaks: "prune/at_once", prune: pruning(func(r *outbox.Retention, _ *int) {
			r.Processed, r.Discarded = r.Processed.Truncate(time.Second), r.Discarded.Truncate(time.Second)
		})},
		{name: "prunes unfinished rows that ended before", breaks: "prune/unfinished prune/any_rows", prune: pruningOthers(func(row *Row) {
			if row.unfinished() && !row.ProcessedAt.IsZero() {
				row.Status = StatusProcessed
			}
		})},
		{name: "prunes unfinished rows that were given up before", breaks: "prune/unfinished prune/any_rows", prune: pruningOthers(func(row *Row) {
			if row.unfinished() && string(row.Metadata) != "{}" {
				row.Status = StatusDiscarded
			}
		})},
		{name: "ignores the limit", breaks: "prune/limit", prune: pruning(func(_ *outbox.Retention, limit *int) { *limit = 0 })},
		{name: "does not clamp the limit", breaks: "prune/limit", prune: func(ctx context.Context, m *Memory, r outbox.Retention, limit int) (int, error) {
			if limit < 0 {
				return 0, nil
			}
			return m.Prune(ctx, r, limit)
		}},
		{name: "prunes processed rows in order of position", breaks: "prune/limit", prune: func(ctx context.Context, m *Memory, r outbox.Retention, limit int) (int, error) {
			times := map[*Row]time.Time{}
			for _, row := range m.rows {
				if times[row] = row.ProcessedAt; !row.ProcessedAt.IsZero() {
					row.ProcessedAt = row.CreatedAt.Truncate(1000 * day)
				}
			}
			defer func() {
				for row, at := range times {
					row.ProcessedAt = at
				}
			}()
			return m.Prune(ctx, r, limit)
		}},
		{name: "prunes the discarded rows that came last first", breaks: "prune/limit", prune: func(ctx context.Context, m *Memory, r outbox.Retention, limit int) (int, error) {
			slices.Reverse(m.rows)
			defer func() { slices.Reverse(m.rows) }()
			return m.Prune(ctx, r, limit)
		}},
		{name: "prunes nothing that does not say when it ended", breaks: "prune/unreadable_time", prune: pruningOthers(func(row *Row) {
			if row.discardedAt().Equal(row.AvailableAt) || row.discardedAt().Equal(row.CreatedAt) {
				row.CreatedAt = time.Now()
			}
		})},
		{name: "goes by created_at where nothing says when it ended", breaks: "prune/unreadable_time", prune: pruningOthers(func(row *Row) {
			row.AvailableAt = row.CreatedAt
		})},
		{name: "prunes rows that were just created", breaks: "prune/young_row prune/any_rows", prune: pruningOthers(func(row *Row) {
			row.AvailableAt, row.CreatedAt = row.discardedAt(), time.Time{}
		})},
		{name: "forgets that a discarded row was processed", breaks: "prune/redriven", prune: pruningOthers(func(row *Row) {
			if row.Status == StatusDiscarded {
				row.ProcessedAt = time.Time{}
			}
		})},
		{name: "counts what it looked for", breaks: "prune/together prune/processed", prune: func(ctx context.Context, m *Memory, r outbox.Retention, limit int) (int, error) {
			_, err := m.Prune(ctx, r, limit)
			return limit, err
		}},
	}
}
