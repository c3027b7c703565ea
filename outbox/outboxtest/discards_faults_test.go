package outboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/openlup/outbox-dispatch/outbox"
)

// answeringNotices changes what Untold answers; those for which change returns false are left out.
func answeringNotices(change func(notice *outbox.Notice) bool) func(context.Context, *Memory, []string, int) ([]outbox.Notice, error) {
	return func(ctx context.Context, m *Memory, types []string, limit int) ([]outbox.Notice, error) {
		all, err := m.Untold(ctx, types, limit)
		var kept []outbox.Notice
		for _, notice := range all {
			if change(&notice) {
				kept = append(kept, notice)
			}
		}
		return kept, err
	}
}

// telling changes what Told hears.
func telling(change func(m *Memory, notice *outbox.Notice)) func(context.Context, *Memory, []outbox.Notice) error {
	return func(ctx context.Context, m *Memory, notices []outbox.Notice) error {
		notices = slices.Clone(notices)
		for i := range notices {
			change(m, &notices[i])
		}
		return m.Told(ctx, notices)
	}
}

func discardFaults() []fault {
	var mu sync.Mutex
	told := map[string]bool{} // by event
	return []fault{
		{
			name:   "tells of settled discards only",
			breaks: "discards/any",
			untold: answeringNotices(func(n *outbox.Notice) bool { return n.DiscardReason == "permanent_error" }),
		},
		{
			name: "tells of every finished row", breaks: "discards/any",
			untold: func(ctx context.Context, m *Memory, types []string, limit int) ([]outbox.Notice, error) {
				for _, row := range m.rows {
					if row.Status == StatusProcessed {
						row.Status = StatusDiscarded
					}
				}
				return m.Untold(ctx, types, limit)
			},
		},
		{name: "forgets why", breaks: "discards/notice", untold: answeringNotices(func(n *outbox.Notice) bool {
			n.Reason = ""
			return true
		})},
		{name: "takes the creation for the discard", breaks: "discards/notice", untold: answeringNotices(func(n *outbox.Notice) bool {
			n.DiscardedAt = n.CreatedAt
			return true
		})},
		{
			name: "tells of all types", breaks: "discards/types",
			untold: func(ctx context.Context, m *Memory, _ []string, limit int) ([]outbox.Notice, error) {
				return m.Untold(ctx, allTypes(m), limit)
			},
		},
		{
			name: "tells of a type named twice twice", breaks: "discards/types",
			untold: func(ctx context.Context, m *Memory, types []string, limit int) (all []outbox.Notice, err error) {
				for _, name := range types {
					some, err := m.Untold(ctx, []string{name}, limit)
					if err != nil {
						return nil, err
					}
					all = append(all, some...)
				}
				return all, nil
			},
		},
		{name: "never hears", breaks: "discards/told discards/anew discards/metadata", told: func(context.Context, *Memory, []outbox.Notice) error { return nil }},
		{
			name: "takes one for all", breaks: "discards/told",
			told: func(ctx context.Context, m *Memory, notices []outbox.Notice) error {
				if len(notices) == 0 {
					return nil
				}
				all, err := m.Untold(ctx, allTypes(m), 1000)
				if err != nil {
					return err
				}
				return m.Told(ctx, all)
			},
		},
		{
			name: "remembers events, not their discards", breaks: "discards/anew discards/stale",
			told: func(ctx context.Context, m *Memory, notices []outbox.Notice) error {
				for _, notice := range notices {
					if row := m.find(notice.EventID); row != nil {
						mu.Lock()
						told[row.ID] = true
						mu.Unlock()
					}
				}
				return m.Told(ctx, notices)
			},
			untold: func(ctx context.Context, m *Memory, types []string, limit int) ([]outbox.Notice, error) {
				mu.Lock()
				defer mu.Unlock()
				return answeringNotices(func(n *outbox.Notice) bool { return !told[n.EventID] })(ctx, m, types, limit)
			},
		},
		{name: "does not look at the mark", breaks: "discards/stale", told: telling(func(m *Memory, n *outbox.Notice) {
			if row := m.find(n.EventID); row != nil {
				n.Mark = row.mark()
			}
		})},
		{
			name: "answers the newest first", breaks: "discards/limit",
			untold: func(ctx context.Context, m *Memory, types []string, limit int) ([]outbox.Notice, error) {
				all, err := m.Untold(ctx, types, limit)
				slices.Reverse(all)
				return all, err
			},
		},
		{
			name: "does not clamp how many", breaks: "discards/limit",
			untold: func(ctx context.Context, m *Memory, types []string, limit int) ([]outbox.Notice, error) {
				if limit < 0 {
					return nil, nil
				}
				return m.Untold(ctx, types, limit)
			},
		},
		{
			name: "tells of rows with readable metadata only", breaks: "discards/metadata",
			untold: func(ctx context.Context, m *Memory, types []string, limit int) ([]outbox.Notice, error) {
				all, err := m.Untold(ctx, types, limit)
				return slices.DeleteFunc(all, func(n outbox.Notice) bool { return !isObject(m.find(n.EventID).Metadata) }), err
			},
		},
		{
			name: "writes over the metadata", breaks: "discards/metadata",
			told: func(ctx context.Context, m *Memory, notices []outbox.Notice) error {
				err := m.Told(ctx, notices)
				for _, notice := range notices {
					if row := m.find(notice.EventID); row != nil {
						row.Metadata = []byte(`{"discardedAt": "x", "discardTold": "x"}`)
					}
				}
				return err
			},
		},
	}
}
