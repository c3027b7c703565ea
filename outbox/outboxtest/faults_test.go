package outboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openlup/outbox-dispatch/outbox"
)

type (
	claimFunc  = func(context.Context, *Memory, outbox.ClaimRequest) (outbox.Claim, error)
	settleFunc = func(context.Context, *Memory, []outbox.Settlement, outbox.Backoff) ([]outbox.Answer, error)
)

// asking claims something else than asked.
func asking(change func(m *Memory, req *outbox.ClaimRequest)) claimFunc {
	return func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
		change(m, &req)
		return m.Claim(ctx, req)
	}
}

// before changes the rows, for good, and then claims.
func before(change func(m *Memory, req outbox.ClaimRequest, row *Row)) claimFunc {
	return func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
		for _, row := range m.rows {
			change(m, req, row)
		}
		return m.Claim(ctx, req)
	}
}

// after claims, and then changes each row from what it was before, and the events likewise.
func after(change func(req outbox.ClaimRequest, was Row, row *Row)) claimFunc {
	return func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
		was := m.Rows()
		claim, err := m.Claim(ctx, req)
		events := claim.Events
		for i, row := range m.rows {
			change(req, was[i], row)
		}
		for i := range events {
			events[i].Attempts, events[i].Metadata = m.find(events[i].ID).Attempts, m.find(events[i].ID).Metadata
		}
		return claim, err
	}
}

// answering claims and returns other events.
func answering(change func(req outbox.ClaimRequest, event *outbox.Event)) claimFunc {
	return func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
		claim, err := m.Claim(ctx, req)
		events := claim.Events
		for i := range events {
			change(req, &events[i])
		}
		return claim, err
	}
}

// seeing claims while the rows look different, or are not there when look returns false.
func seeing(look func(m *Memory, req outbox.ClaimRequest, row *Row) bool) claimFunc {
	return func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
		all, was := m.rows, m.Rows()
		var looks []Row
		var shown []*Row
		for _, row := range all {
			if look(m, req, row) {
				shown = append(shown, row)
			}
			looks = append(looks, row.clone())
		}
		m.rows = shown
		claim, err := m.Claim(ctx, req)
		events := claim.Events
		m.rows = all
		for i, row := range all {
			if sameRow(*row, looks[i]) {
				*row = was[i]
			}
			row.AggregateType, row.AggregateID = was[i].AggregateType, was[i].AggregateID
		}
		for i := range events {
			row := m.find(events[i].ID)
			events[i].AggregateType, events[i].AggregateID = row.AggregateType, row.AggregateID
		}
		return claim, err
	}
}

// ordering claims as if rows had been inserted in another order.
func ordering(compare func(a, b *Row) int) claimFunc {
	return func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
		all := slices.Clone(m.rows)
		slices.SortStableFunc(m.rows, compare)
		positions := map[string]int64{}
		for i, row := range m.rows {
			positions[row.ID], row.Position = row.Position, int64(i)+1
		}
		claim, err := m.Claim(ctx, req)
		m.rows = all
		for _, row := range m.rows {
			row.Position = positions[row.ID]
		}
		for i, event := range claim.Events {
			claim.Events[i].Position = positions[event.ID]
		}
		return claim, err
	}
}

// settling settles one by one, with each entry changed.
func settling(change func(m *Memory, entry *outbox.Settlement, b *outbox.Backoff) error) settleFunc {
	return func(ctx context.Context, m *Memory, batch []outbox.Settlement, b outbox.Backoff) ([]outbox.Answer, error) {
		var answers []outbox.Answer
		for _, entry := range batch {
			if err := change(m, &entry, &b); err != nil {
				return nil, err
			}
			answer, err := m.Settle(ctx, []outbox.Settlement{entry}, b)
			if err != nil {
				return nil, err
			}
			answers = append(answers, answer...)
		}
		return answers, nil
	}
}

// settled settles one by one, and then changes each settled row from what it was before.
func settled(change func(m *Memory, entry outbox.Settlement, was Row, row *Row)) settleFunc {
	return func(ctx context.Context, m *Memory, batch []outbox.Settlement, b outbox.Backoff) ([]outbox.Answer, error) {
		var answers []outbox.Answer
		for _, entry := range batch {
			row := m.find(entry.EventID)
			var was Row
			if row != nil {
				was = row.clone()
			}
			answer, err := m.Settle(ctx, []outbox.Settlement{entry}, b)
			if err != nil {
				return nil, err
			}
			if answer[0] != outbox.Missed {
				change(m, entry, was, row)
			}
			answers = append(answers, answer...)
		}
		return answers, nil
	}
}

func ceilingOf(req outbox.ClaimRequest) int { return clamp(orDefault(req.MaxAttempts, 8), 1, 20) }

func expiredLease(m *Memory, row *Row) bool {
	return row.Status == StatusProcessing && row.due(m.now())
}

func isObject(raw json.RawMessage) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(raw, &object) == nil && object != nil
}

func without(list []string, drop ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(drop, s) })
}

func allTypes(m *Memory) []string {
	var types []string
	for _, row := range m.rows {
		types = append(types, row.Type)
	}
	return types
}

func blockedBehind(m *Memory, row *Row) bool {
	return slices.ContainsFunc(m.rows, func(other *Row) bool {
		return other.unfinished() && other.Position < row.Position && other.AggregateID == row.AggregateID
	})
}

func faults() []fault {
	return slices.Concat(claimFaults(), orderFaults(), laneFaults(), heldFaults(), spentFaults(), crashFaults(), settleFaults(),
		fenceFaults(), hostileFaults(), circuitFaults(), pruneFaults(), discardFaults())
}

func claimFaults() []fault {
	handedOut := map[*Memory][]outbox.Event{}
	return []fault{
		{name: "claims everything without a filter", breaks: "claim/needs_types", claim: asking(func(m *Memory, req *outbox.ClaimRequest) {
			if len(req.EventTypes) == 0 {
				req.EventTypes = allTypes(m)
			}
		})},
		{name: "counts types after dropping blanks", breaks: "claim/blank_types_claim_nothing", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.EventTypes = without(req.EventTypes, "", "  ")
		})},
		{name: "trims types", breaks: "claim/types_compare_exactly", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.EventTypes = append(slices.Clone(req.EventTypes), typeMine+" ")
		})},
		{
			name: "fails on an empty queue", breaks: "claim/empty_queue",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				claim, err := m.Claim(ctx, req)
				if err == nil && len(claim.Events) == 0 {
					err = errors.New("no rows")
				}
				return claim, err
			},
		},
		{name: "claims rows before they are due", breaks: "claim/not_before_due", claim: before(func(_ *Memory, _ outbox.ClaimRequest, row *Row) {
			if row.Status == StatusPending || row.Status == StatusFailed {
				row.AvailableAt = time.Time{}
			}
		})},
		{name: "claims finished rows", breaks: "claim/never_finished_rows", claim: before(func(_ *Memory, _ outbox.ClaimRequest, row *Row) {
			if !row.unfinished() {
				row.Status = StatusPending
			}
		})},
		{name: "ignores leases", breaks: "claim/leased_rows_are_taken crash/a_live_lease_is_not_one", claim: before(func(_ *Memory, _ outbox.ClaimRequest, row *Row) {
			if row.Status == StatusProcessing {
				row.AvailableAt = time.Time{}
			}
		})},
		{
			name: "orders by created_at", breaks: "claim/oldest_first claim/insert_order_of_an_aggregate order/only_older_rows_block",
			claim: ordering(func(a, b *Row) int { return a.CreatedAt.Compare(b.CreatedAt) }),
		},
		{
			name: "orders by id", breaks: "claim/oldest_first claim/insert_order_of_an_aggregate",
			claim: ordering(func(a, b *Row) int { return strings.Compare(a.ID, b.ID) }),
		},
		{
			name: "orders by available_at", breaks: "claim/oldest_first",
			claim: ordering(func(a, b *Row) int { return a.AvailableAt.Compare(b.AvailableAt) }),
		},
		{name: "charges no attempt", breaks: "claim/writes_the_lease settle/retry", claim: after(func(_ outbox.ClaimRequest, was Row, row *Row) {
			row.Attempts = was.Attempts
		})},
		{name: "gives every row one token", breaks: "claim/writes_the_lease", claim: after(func(_ outbox.ClaimRequest, _ Row, row *Row) {
			merge(row, map[string]json.RawMessage{"claimToken": quote("11111111-1111-4111-8111-111111111111")})
		})},
		{name: "notes no claim time", breaks: "claim/writes_the_lease", claim: after(func(_ outbox.ClaimRequest, _ Row, row *Row) {
			merge(row, map[string]json.RawMessage{"lastClaimedAt": quote("yesterday")})
		})},
		{name: "returns the row as before the claim", breaks: "claim/returns_the_row", claim: answering(func(_ outbox.ClaimRequest, event *outbox.Event) {
			event.Attempts--
		})},
		{name: "returns no created_at", breaks: "claim/returns_the_row", claim: answering(func(_ outbox.ClaimRequest, event *outbox.Event) {
			event.CreatedAt = time.Time{}
		})},
		{name: "clears the error at claim", breaks: "claim/keeps_the_rest", claim: after(func(_ outbox.ClaimRequest, _ Row, row *Row) {
			row.Error = ""
		})},
		{name: "replaces the metadata at claim", breaks: "claim/keeps_the_rest settle/snoozes_count", claim: after(func(_ outbox.ClaimRequest, _ Row, row *Row) {
			token := row.event().ClaimToken()
			row.Metadata = nil
			merge(row, map[string]json.RawMessage{"claimToken": quote(token)})
		})},
		{name: "reads numbers as floats", breaks: "claim/payload_untouched", claim: answering(func(_ outbox.ClaimRequest, event *outbox.Event) {
			var value any
			_ = json.Unmarshal(event.Payload, &value)
			event.Payload, _ = json.Marshal(value)
		})},
		{
			name: "does not look at its context", breaks: "claim/cancelled settle/cancelled",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				return m.Claim(context.WithoutCancel(ctx), req)
			},
			settle: func(ctx context.Context, m *Memory, batch []outbox.Settlement, b outbox.Backoff) ([]outbox.Answer, error) {
				return m.Settle(context.WithoutCancel(ctx), batch, b)
			},
		},
		{name: "has broken statistics", breaks: "stats/are_json", stats: "{"},
		{name: "has another default batch", breaks: "claim/batch_size_clamps", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.BatchSize = orDefault(req.BatchSize, 100)
		})},
		{name: "has a fixed lease", breaks: "claim/visibility_clamps", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.Visibility = 0
		})},
		{name: "has a fixed ceiling", breaks: "claim/max_attempts_clamps spent/first_attempts_of_a_ceiling_of_one", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.MaxAttempts = 0
		})},
		{
			name: "hands rows out twice", breaks: "concurrency/claimers concurrency/one_queue",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				if again := handedOut[m]; len(again) > 0 {
					delete(handedOut, m)
					return outbox.Claim{Events: again}, nil
				}
				claim, err := m.Claim(ctx, req)
				handedOut[m] = claim.Events
				return claim, err
			},
		},
	}
}

func orderFaults() []fault {
	return []fault{
		{name: "ignores aggregates", breaks: "order/one_row_per_aggregate order/unfinished_rows_block order/dormant_lifts_nothing_else claim/insert_order_of_an_aggregate", claim: seeing(func(_ *Memory, _ outbox.ClaimRequest, row *Row) bool {
			row.AggregateID = row.ID
			return true
		})},
		{name: "takes the aggregate's id for its name", breaks: "order/aggregates_need_both_names", claim: seeing(func(_ *Memory, _ outbox.ClaimRequest, row *Row) bool {
			row.AggregateType = "any"
			return true
		})},
		{name: "lets only due rows block", breaks: "order/unfinished_rows_block order/dormant_lifts_nothing_else", claim: seeing(func(m *Memory, _ outbox.ClaimRequest, row *Row) bool {
			return row.due(m.now())
		})},
		{name: "lets finished rows block", breaks: "order/finished_rows_free", claim: seeing(func(m *Memory, _ outbox.ClaimRequest, row *Row) bool {
			if !row.unfinished() {
				row.Status, row.AvailableAt = StatusFailed, m.now().Add(time.Hour)
			}
			return true
		})},
		{name: "keeps an order for each type", breaks: "order/own_types_block_each_other order/unknown_types_block held/always_blocks", claim: seeing(func(_ *Memory, _ outbox.ClaimRequest, row *Row) bool {
			row.AggregateType += row.Type
			return true
		})},
		{name: "knows every type", breaks: "order/unknown_types_block", claim: asking(func(m *Memory, req *outbox.ClaimRequest) {
			req.KnownTypes = allTypes(m)
		})},
		{name: "knows no type", breaks: "order/known_types_do_not_block", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.KnownTypes = nil
		})},
		{name: "trims known types", breaks: "order/blank_known_types_mean_nothing", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			for _, known := range req.KnownTypes {
				req.KnownTypes = append(req.KnownTypes, strings.TrimSpace(known))
			}
		})},
		{name: "lifts the barrier for a blank known type", breaks: "order/blank_known_types_mean_nothing", claim: asking(func(m *Memory, req *outbox.ClaimRequest) {
			if slices.Contains(req.KnownTypes, "") {
				req.KnownTypes = allTypes(m)
			}
		})},
		{name: "ignores dormant types", breaks: "order/dormant_types_do_not_block", ignoresDormant: true},
		{name: "lets dormant types of its own pass", breaks: "order/dormant_lifts_nothing_else", claim: seeing(func(m *Memory, _ outbox.ClaimRequest, row *Row) bool {
			return row.due(m.now()) || !slices.Contains(m.dormant, row.Type)
		})},
		{name: "fills the batch with blocked rows", breaks: "order/blocked_rows_leave_the_batch_free", claim: seeing(func(_ *Memory, req outbox.ClaimRequest, row *Row) bool {
			return row.Position <= int64(orDefault(req.BatchSize, 25))
		})},
	}
}

func heldFaults() []fault {
	return []fault{
		{name: "claims held types", breaks: "held/never_claimed held/always_blocks held/not_recovered held/all_types held/not_discarded", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.HeldTypes = nil
		})},
		{name: "takes held types for known ones", breaks: "held/always_blocks held/dormant_still_blocks held/known_still_blocks", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.EventTypes = without(req.EventTypes, req.HeldTypes...)
			req.KnownTypes, req.HeldTypes = append(slices.Clone(req.KnownTypes), req.HeldTypes...), nil
		})},
		{name: "knows before it holds", breaks: "held/known_still_blocks", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.HeldTypes = without(req.HeldTypes, req.KnownTypes...)
		})},
		{name: "lets dormant before it holds", breaks: "held/dormant_still_blocks", claim: asking(func(m *Memory, req *outbox.ClaimRequest) {
			req.HeldTypes = without(req.HeldTypes, m.dormant...)
		})},
		{name: "fails when all types are held", breaks: "held/all_types", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			if left := without(req.EventTypes, req.HeldTypes...); len(left) == 0 {
				req.EventTypes = nil
			}
		})},
		{
			name: "discards held rows", breaks: "held/not_discarded",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				m.discardSpent(outbox.ClaimRequest{EventTypes: req.EventTypes}, m.now(), ceilingOf(req))
				return m.Claim(ctx, req)
			},
		},
	}
}

func spentFaults() []fault {
	spent := func(req outbox.ClaimRequest, row Row) bool {
		return row.unfinished() && row.Attempts >= ceilingOf(req)
	}
	return []fault{
		{name: "discards without a note", breaks: "spent/discarded_at_claim spent/error_text", claim: after(func(_ outbox.ClaimRequest, was Row, row *Row) {
			row.Error = was.Error
		})},
		{name: "replaces the error of a discarded row", breaks: "spent/discarded_at_claim spent/error_text", claim: after(func(_ outbox.ClaimRequest, was Row, row *Row) {
			if was.Status != row.Status && row.Status == StatusDiscarded {
				row.Error = " | max_attempts_exhausted_at_claim"
			}
		})},
		{name: "discards without a reason", breaks: "spent/discarded_at_claim hostile/metadata_of_a_spent_row", claim: after(func(_ outbox.ClaimRequest, was Row, row *Row) {
			if row.Status == StatusDiscarded {
				row.Metadata = was.Metadata
			}
		})},
		{name: "leaves spent leases", breaks: "spent/every_unfinished_status spent/first_attempts_of_a_ceiling_of_one", claim: seeing(func(m *Memory, req outbox.ClaimRequest, row *Row) bool {
			return !expiredLease(m, row) || !spent(req, *row)
		})},
		{
			name: "discards spent rows after looking for candidates", breaks: "spent/frees_followers_at_once",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				late := slices.DeleteFunc(slices.Clone(m.rows), func(row *Row) bool { return blockedBehind(m, row) })
				all := m.rows
				m.rows = late
				claim, err := m.Claim(ctx, req)
				m.rows = all
				return claim, err
			},
		},
		{name: "discards spent rows before they are due", breaks: "spent/only_when_due", claim: before(func(_ *Memory, req outbox.ClaimRequest, row *Row) {
			if spent(req, *row) {
				row.AvailableAt = time.Time{}
			}
		})},
		{name: "lets spent rows that are not due pass", breaks: "spent/only_when_due", claim: seeing(func(m *Memory, req outbox.ClaimRequest, row *Row) bool {
			return !spent(req, *row) || row.due(m.now())
		})},
		{name: "leaves blocked spent rows", breaks: "spent/blocked_or_not", claim: seeing(func(m *Memory, req outbox.ClaimRequest, row *Row) bool {
			return !spent(req, *row) || !blockedBehind(m, row)
		})},
		{
			name: "discards spent rows of every type", breaks: "spent/only_own_types",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				m.discardSpent(outbox.ClaimRequest{EventTypes: allTypes(m)}, m.now(), ceilingOf(req))
				return m.Claim(ctx, req)
			},
		},
		{
			name: "discards without a limit", breaks: "spent/the_100_oldest",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				for range 10 {
					m.discardSpent(req, m.now(), ceilingOf(req))
				}
				return m.Claim(ctx, req)
			},
		},
	}
}

func laneFaults() []fault {
	passed := map[*Memory]string{}
	return []fault{
		{
			name: "takes one row of an aggregate", breaks: "lanes/a_run lanes/depth lanes/pass_over_others_types lanes/breadth_first cursor/named_lanes",
			claim: asking(func(_ *Memory, req *outbox.ClaimRequest) { req.LaneDepth = 1 }),
		},
		{
			name: "takes lanes of any depth", breaks: "lanes/depth lanes/depth_clamps",
			claim: asking(func(_ *Memory, req *outbox.ClaimRequest) { req.LaneDepth = 1000 }),
		},
		{
			name: "takes the oldest rows, whole lanes first", breaks: "lanes/breadth_first",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				whole := req
				whole.BatchSize = 1000
				claim, err := m.Claim(ctx, whole)
				slices.SortFunc(claim.Events, func(a, b outbox.Event) int { return int(a.Position - b.Position) })
				claim.Events = claim.Events[:min(len(claim.Events), orDefault(req.BatchSize, 25))]
				return claim, err
			},
		},
		{
			name: "holds up to 100 rows", breaks: "claim/batch_size_clamps",
			claim: asking(func(_ *Memory, req *outbox.ClaimRequest) { req.BatchSize = min(req.BatchSize, 100) }),
		},
		{
			name: "does not see rows that wait in the middle of a lane", breaks: "lanes/end_where_a_row_waits",
			claim: seeing(func(m *Memory, _ outbox.ClaimRequest, row *Row) bool { return row.due(m.now()) }),
		},
		{
			name: "frees the rest of a lane at once", breaks: "lanes/leased_as_one",
			claim: seeing(func(_ *Memory, _ outbox.ClaimRequest, row *Row) bool { return row.Status != StatusProcessing }),
		},
		{
			name: "has no cursor", breaks: "cursor/goes_on cursor/leaves_what_it_passed",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				req.Cursor = ""
				claim, err := m.Claim(ctx, req)
				claim.Cursor = ""
				return claim, err
			},
		},
		{
			name: "ignores the lanes named", breaks: "cursor/named_lanes crash/recovered_alone",
			claim: asking(func(_ *Memory, req *outbox.ClaimRequest) { req.Lanes = nil }),
		},
		{
			name: "forgets what a cursor passed", breaks: "cursor/leaves_what_it_passed",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				req.Cursor = orDefault(req.Cursor, passed[m])
				claim, err := m.Claim(ctx, req)
				passed[m] = claim.Cursor
				return claim, err
			},
		},
		{
			name: "goes on when it is to begin again", breaks: "cursor/begins_again",
			claim: asking(func(_ *Memory, req *outbox.ClaimRequest) { req.Again = false }),
		},
		{
			name: "takes its cursor's word for what became due", breaks: "cursor/begins_again_at_what_is_due",
			claim: seeing(func(_ *Memory, req outbox.ClaimRequest, row *Row) bool {
				return !req.Again || row.Status != StatusFailed
			}),
		},
		{
			name: "reports nothing leased", breaks: "lanes/leased_are_reported",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				claim, err := m.Claim(ctx, req)
				claim.Leased = nil
				return claim, err
			},
		},
		{
			name: "ends before the end", breaks: "cursor/reaches_every_row cursor/goes_on",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				claim, err := m.Claim(ctx, req)
				claim.End, claim.Cursor = true, strconv.Itoa(len(m.rows))
				return claim, err
			},
		},
		{
			name: "never finds anything behind a cursor", breaks: "cursor/finds_new_rows cursor/goes_on",
			claim: func(ctx context.Context, m *Memory, req outbox.ClaimRequest) (outbox.Claim, error) {
				if req.Cursor != "" {
					return outbox.Claim{Cursor: req.Cursor, End: true}, ctx.Err()
				}
				return m.Claim(ctx, req)
			},
		},
	}
}

func crashFaults() []fault {
	return []fault{
		{name: "claims ended leases like any row", breaks: "crash/never_beside_others crash/ends_a_run", claim: before(func(m *Memory, _ outbox.ClaimRequest, row *Row) {
			if expiredLease(m, row) {
				row.Status = StatusFailed
			}
		})},
		{name: "never claims ended leases", breaks: "crash/never_beside_others crash/recovered_alone fence/overtaken", claim: seeing(func(m *Memory, _ outbox.ClaimRequest, row *Row) bool {
			return !expiredLease(m, row)
		})},
		{name: "does not tell a recovered row", breaks: "crash/recovered_alone", claim: answering(func(_ outbox.ClaimRequest, event *outbox.Event) {
			event.Recovered = false
		})},
		{name: "takes every later attempt for recovered", breaks: "crash/given_back_is_not_one", claim: answering(func(_ outbox.ClaimRequest, event *outbox.Event) {
			event.Recovered = event.Recovered || event.Attempts > 1
		})},
		{name: "takes every row for recovered", breaks: "crash/never_beside_others claim/returns_the_row", claim: answering(func(_ outbox.ClaimRequest, event *outbox.Event) {
			event.Recovered = true
		})},
		{name: "claims as ever when it is to recover", breaks: "crash/recovered_alone crash/recovers_named_lanes_only", claim: asking(func(_ *Memory, req *outbox.ClaimRequest) {
			req.Recover = false
		})},
		{name: "recovers any lane", breaks: "crash/recovers_named_lanes_only", claim: asking(func(m *Memory, req *outbox.ClaimRequest) {
			for _, row := range m.rows {
				req.Lanes = append(req.Lanes, outbox.Aggregate{Type: row.AggregateType, ID: row.AggregateID})
			}
		})},
		{name: "recovers ended leases only", breaks: "crash/recovers_a_row_given_back", claim: seeing(func(m *Memory, req outbox.ClaimRequest, row *Row) bool {
			return !req.Recover || expiredLease(m, row)
		})},
		{name: "recovers out of order", breaks: "crash/recovers_in_order", claim: seeing(func(m *Memory, req outbox.ClaimRequest, row *Row) bool {
			return !req.Recover || row.due(m.now())
		})},
		{name: "recovers live leases", breaks: "crash/a_live_lease_is_not_one", claim: before(func(_ *Memory, req outbox.ClaimRequest, row *Row) {
			if req.Recover && row.Status == StatusProcessing {
				row.AvailableAt = time.Time{}
			}
		})},
		{name: "lets ended leases pass", breaks: "crash/blocks_its_aggregate", claim: seeing(func(m *Memory, _ outbox.ClaimRequest, row *Row) bool {
			if expiredLease(m, row) {
				row.AggregateID = row.ID
			}
			return true
		})},
	}
}

func settleFaults() []fault {
	return []fault{
		{name: "keeps the error of a processed row", breaks: "settle/processed", settle: settled(func(_ *Memory, _ outbox.Settlement, was Row, row *Row) {
			if row.Status == StatusProcessed {
				row.Error = was.Error
			}
		})},
		{name: "notes no processing time", breaks: "settle/processed", settle: settled(func(_ *Memory, _ outbox.Settlement, _ Row, row *Row) {
			row.ProcessedAt = time.Time{}
		})},
		{name: "removes the token", breaks: "settle/processed settle/retry settle/discard settle/release", settle: settled(func(_ *Memory, _ outbox.Settlement, _ Row, row *Row) {
			merge(row, map[string]json.RawMessage{"claimToken": json.RawMessage("null")})
		})},
		{name: "replaces the metadata with the detail", breaks: "settle/detail_is_merged hostile/detail_is_no_object", settle: settled(func(_ *Memory, entry outbox.Settlement, _ Row, row *Row) {
			if json.Valid(entry.Detail) {
				row.Metadata = entry.Detail
			}
		})},
		{name: "drops the detail", breaks: "settle/detail_is_merged settle/a_mixed_batch hostile/one_never_spoils_others", settle: settling(func(_ *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			entry.Detail = nil
			return nil
		})},
		{name: "drops the reason", breaks: "settle/retry settle/discard settle/snooze hostile/one_never_spoils_others", settle: settling(func(_ *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			entry.Reason = ""
			return nil
		})},
		{name: "has a fixed ceiling for retries", breaks: "settle/retry_of_a_spent_row", settle: settling(func(_ *Memory, _ *outbox.Settlement, b *outbox.Backoff) error {
			b.MaxAttempts = 8
			return nil
		})},
		{name: "takes every discard for spent", breaks: "settle/discard", settle: settled(func(m *Memory, entry outbox.Settlement, _ Row, row *Row) {
			if entry.Outcome == outbox.Discarded {
				discard(row, m.now(), "max_attempts")
			}
		})},
		{name: "charges snoozes", breaks: "settle/snooze fence/twice_in_a_batch", settle: settled(func(_ *Memory, entry outbox.Settlement, was Row, row *Row) {
			if entry.Outcome == outbox.Snoozed {
				row.Attempts = was.Attempts
			}
		})},
		{name: "does not count snoozes", breaks: "settle/snooze settle/snoozes_count hostile/snooze_count", settle: settled(func(_ *Memory, entry outbox.Settlement, _ Row, row *Row) {
			if entry.Outcome == outbox.Snoozed {
				merge(row, map[string]json.RawMessage{"snoozeCount": json.RawMessage("9")})
			}
		})},
		{name: "keeps the reason of a release", breaks: "settle/release", settle: settled(func(_ *Memory, entry outbox.Settlement, _ Row, row *Row) {
			row.Error = entry.Reason
		})},
		{name: "charges releases", breaks: "settle/release settle/a_mixed_batch", settle: settled(func(_ *Memory, entry outbox.Settlement, was Row, row *Row) {
			if entry.Outcome == outbox.Released {
				row.Attempts = was.Attempts
			}
		})},
		{name: "goes below zero attempts", breaks: "settle/attempts_never_below_zero", settle: settled(func(_ *Memory, _ outbox.Settlement, was Row, row *Row) {
			if was.Attempts == 0 {
				row.Attempts = -1
			}
		})},
		{
			name: "fails on an empty batch", breaks: "settle/nothing",
			settle: func(ctx context.Context, m *Memory, batch []outbox.Settlement, b outbox.Backoff) ([]outbox.Answer, error) {
				if len(batch) == 0 {
					return nil, errors.New("empty batch")
				}
				return m.Settle(ctx, batch, b)
			},
		},
		{
			name: "answers in another order", breaks: "settle/a_mixed_batch hostile/one_never_spoils_others concurrency/settlers",
			settle: func(ctx context.Context, m *Memory, batch []outbox.Settlement, b outbox.Backoff) ([]outbox.Answer, error) {
				answers, err := m.Settle(ctx, batch, b)
				if len(answers) > 1 {
					return answers[1:], err
				}
				return answers, err
			},
		},
		{name: "does not double the back-off", breaks: "delay/retry", settle: settled(func(m *Memory, _ outbox.Settlement, _ Row, row *Row) {
			row.AvailableAt = m.now().Add(45 * time.Second)
		})},
		{name: "ignores the cap", breaks: "delay/retry", settle: settling(func(_ *Memory, _ *outbox.Settlement, b *outbox.Backoff) error {
			b.Cap = 0
			return nil
		})},
		{name: "has no jitter", breaks: "delay/retries_scatter", settle: settled(func(m *Memory, _ outbox.Settlement, _ Row, row *Row) {
			row.AvailableAt = m.now().Add(45 * time.Minute)
		})},
		{name: "does not clamp delays", breaks: "delay/snooze_clamps delay/release_clamps", settle: settled(func(m *Memory, entry outbox.Settlement, _ Row, row *Row) {
			row.AvailableAt = m.now().Add(entry.Delay)
		})},
		{name: "cuts delays to seconds", breaks: "delay/snooze_clamps delay/release_clamps", settle: settling(func(_ *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			entry.Delay = entry.Delay.Truncate(time.Second)
			return nil
		})},
	}
}

func fenceFaults() []fault {
	return []fault{
		{name: "ignores tokens", breaks: "fence/wrong_token fence/overtaken fence/first_that_holds", settle: settling(func(m *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if row := m.find(entry.EventID); row != nil {
				entry.ClaimToken = row.event().ClaimToken()
			}
			return nil
		})},
		{name: "fails on an unknown event", breaks: "fence/unknown_event hostile/one_never_spoils_others", settle: settling(func(m *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if m.find(entry.EventID) == nil {
				return errors.New("no such row")
			}
			return nil
		})},
		{name: "takes no token for an empty one", breaks: "fence/no_token_in_the_row", settle: settling(func(m *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if row := m.find(entry.EventID); entry.ClaimToken == "" && row != nil && row.event().ClaimToken() == "" {
				entry.ClaimToken = "none"
				merge(row, map[string]json.RawMessage{"claimToken": quote("none")})
			}
			return nil
		})},
		{name: "settles rows that are not processing", breaks: "fence/works_once fence/twice_in_a_batch fence/operators_win concurrency/settlers", settle: settling(func(m *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if row := m.find(entry.EventID); row != nil && row.event().ClaimToken() == entry.ClaimToken {
				row.Status = StatusProcessing
			}
			return nil
		})},
		{
			name: "drops all entries of an event but the first", breaks: "fence/first_that_holds",
			settle: func(ctx context.Context, m *Memory, batch []outbox.Settlement, b outbox.Backoff) ([]outbox.Answer, error) {
				seen := map[string]bool{}
				for i, entry := range batch {
					if seen[entry.EventID] {
						batch[i].ClaimToken = ""
					}
					seen[entry.EventID] = true
				}
				return m.Settle(ctx, batch, b)
			},
		},
		{name: "checks the lease's time", breaks: "fence/late_but_not_overtaken", settle: settling(func(m *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if row := m.find(entry.EventID); row != nil && row.due(m.now()) {
				entry.ClaimToken = ""
			}
			return nil
		})},
		{name: "takes an unknown outcome for a delivery", breaks: "fence/unknown_outcome", settle: settling(func(_ *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if !slices.Contains([]outbox.Outcome{outbox.Retry, outbox.Snoozed, outbox.Discarded, outbox.Released}, entry.Outcome) {
				entry.Outcome = outbox.Processed
			}
			return nil
		})},
	}
}

func hostileFaults() []fault {
	refused := func(entry *outbox.Settlement) error {
		if detail := string(entry.Detail); entry.Detail != nil && (!json.Valid(entry.Detail) || strings.Contains(detail, `\u0000`)) {
			return errors.New("invalid input syntax for type json")
		}
		return nil
	}
	return []fault{
		{name: "appends to metadata that is no object", breaks: "hostile/metadata_is_no_object", claim: after(func(_ outbox.ClaimRequest, was Row, row *Row) {
			if !isObject(was.Metadata) && row.Status == StatusProcessing {
				row.Metadata = json.RawMessage("[" + string(was.Metadata) + "," + string(row.Metadata) + "]")
			}
		})},
		{name: "leaves spent rows whose metadata is no object", breaks: "hostile/metadata_of_a_spent_row", claim: seeing(func(_ *Memory, _ outbox.ClaimRequest, row *Row) bool {
			return isObject(row.Metadata)
		})},
		{name: "keeps a token that is no text", breaks: "hostile/token_is_no_text", claim: after(func(_ outbox.ClaimRequest, was Row, row *Row) {
			if strings.Contains(string(was.Metadata), `"claimToken": {`) {
				merge(row, map[string]json.RawMessage{"claimToken": json.RawMessage("{}")})
			}
		})},
		{name: "fails on a junk snooze count", breaks: "hostile/snooze_count", settle: settling(func(m *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if row := m.find(entry.EventID); row != nil && strings.Contains(string(row.Metadata), "many") {
				return errors.New("invalid input syntax for type integer")
			}
			return nil
		})},
		{name: "drops a detail that is no object", breaks: "hostile/detail_is_no_object", settle: settling(func(_ *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if !isObject(entry.Detail) {
				entry.Detail = nil
			}
			return nil
		})},
		{name: "lets a detail write reserved keys", breaks: "hostile/detail_has_reserved_keys", settle: settled(func(_ *Memory, entry outbox.Settlement, _ Row, row *Row) {
			var keys map[string]json.RawMessage
			_ = json.Unmarshal(entry.Detail, &keys)
			merge(row, keys)
		})},
		{name: "fails on a refused detail", breaks: "hostile/refused_detail hostile/one_never_spoils_others", settle: settling(func(_ *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			return refused(entry)
		})},
		{name: "misses an entry with a refused detail", breaks: "hostile/refused_detail hostile/one_never_spoils_others", settle: settling(func(_ *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if refused(entry) != nil {
				entry.ClaimToken = ""
			}
			return nil
		})},
		{name: "cuts reasons by bytes", breaks: "hostile/reason_is_cut", settle: settled(func(_ *Memory, entry outbox.Settlement, _ Row, row *Row) {
			row.Error = entry.Reason[:min(len(entry.Reason), maxError)]
		})},
		{name: "keeps reasons as they come", breaks: "hostile/reason_is_no_text", settle: settled(func(_ *Memory, entry outbox.Settlement, _ Row, row *Row) {
			row.Error = entry.Reason
		})},
		{name: "fails on a reason that is no text", breaks: "hostile/reason_is_no_text hostile/one_never_spoils_others", settle: settling(func(_ *Memory, entry *outbox.Settlement, _ *outbox.Backoff) error {
			if !utf8.ValidString(entry.Reason) || strings.Contains(entry.Reason, "\x00") {
				return errors.New("invalid byte sequence")
			}
			return nil
		})},
	}
}

// reporting reports something else than asked.
func reporting(change func(m *Memory, report *outbox.CircuitReport)) func(context.Context, *Memory, outbox.CircuitReport) (outbox.Circuit, error) {
	return func(ctx context.Context, m *Memory, report outbox.CircuitReport) (outbox.Circuit, error) {
		change(m, &report)
		return m.Report(ctx, report)
	}
}

// loading changes what is loaded.
func loading(change func(circuits []outbox.Circuit) []outbox.Circuit) func(context.Context, *Memory, []string, time.Duration) ([]outbox.Circuit, error) {
	return func(ctx context.Context, m *Memory, destinations []string, lease time.Duration) ([]outbox.Circuit, error) {
		circuits, err := m.Load(ctx, destinations, lease)
		return change(circuits), err
	}
}

func circuitFaults() []fault {
	return []fault{
		{
			name: "takes every circuit for open", breaks: "circuits/closed",
			load: loading(func([]outbox.Circuit) []outbox.Circuit { return []outbox.Circuit{{Destination: "crm", Open: true}} }),
		},
		{
			name: "opens every circuit at once", breaks: "circuits/a_failure_opens",
			load: loading(func(c []outbox.Circuit) []outbox.Circuit {
				return append(c, outbox.Circuit{Destination: "erp", Open: true})
			}),
		},
		{name: "forgets failures", breaks: "circuits/a_failure_opens circuits/times circuits/wait", report: reporting(func(_ *Memory, r *outbox.CircuitReport) {
			r.Failure, r.Success = false, r.Success || r.Failure
		})},
		{name: "opens for 30 s each time", breaks: "circuits/times", report: func(ctx context.Context, m *Memory, r outbox.CircuitReport) (outbox.Circuit, error) {
			if c := m.circuits[r.Destination]; c != nil {
				c.openings = 0
			}
			return m.Report(ctx, r)
		}},
		{name: "ignores what a destination asks for", breaks: "circuits/wait", report: reporting(func(_ *Memory, r *outbox.CircuitReport) { r.Wait = 0 })},
		{name: "adds up reports of one outage", breaks: "circuits/one_outage_counts_once", report: func(ctx context.Context, m *Memory, r outbox.CircuitReport) (outbox.Circuit, error) {
			if c := m.circuits[r.Destination]; c != nil {
				c.openUntil = time.Time{}
			}
			return m.Report(ctx, r)
		}},
		{name: "lets everybody probe", breaks: "circuits/one_probe circuits/a_lost_probe_is_replaced", load: loading(func(circuits []outbox.Circuit) []outbox.Circuit {
			for i := range circuits {
				circuits[i].Open, circuits[i].Probe = false, true
			}
			return circuits
		})},
		{name: "never lets anybody probe", breaks: "circuits/one_probe circuits/a_lost_probe_is_replaced circuits/times", load: loading(func(circuits []outbox.Circuit) []outbox.Circuit {
			for i := range circuits {
				circuits[i].Open, circuits[i].Probe = true, false
			}
			return circuits
		})},
		{name: "ignores successes", breaks: "circuits/a_success_closes circuits/a_success_forgets_retries", report: func(ctx context.Context, m *Memory, r outbox.CircuitReport) (outbox.Circuit, error) {
			if r.Success {
				return outbox.Circuit{Destination: r.Destination}, ctx.Err()
			}
			return m.Report(ctx, r)
		}},
		{name: "takes a hold for a failure", breaks: "circuits/held", report: reporting(func(_ *Memory, r *outbox.CircuitReport) {
			r.Hold, r.Failure = false, r.Failure || r.Hold
		})},
		{name: "counts retries, not events", breaks: "circuits/five_retries_open", report: reporting(func(_ *Memory, r *outbox.CircuitReport) {
			for i := range r.Retried {
				r.Retried[i] = newUUID()
			}
		})},
	}
}
