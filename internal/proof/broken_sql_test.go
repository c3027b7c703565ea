package proof_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// edit puts one text in the place of another in the definition of a function.
type edit struct{ function, cut, put string }

// apply makes the edits in a scratch database, and fails when there is nothing to cut: the SQL has changed, and so must the
// edit.
func apply(t *testing.T, pool *pgxpool.Pool, edits ...edit) {
	t.Helper()
	for _, e := range edits {
		var definition string
		err := pool.QueryRow(t.Context(), "select pg_get_functiondef(oid) from pg_proc where proname = $1", e.function).Scan(&definition)
		if err != nil {
			t.Fatalf("read %s: %v", e.function, err)
		}
		if !strings.Contains(definition, e.cut) {
			t.Fatalf("%s has no %q any more: edit it in another place", e.function, e.cut)
		}
		if _, err := pool.Exec(t.Context(), strings.ReplaceAll(definition, e.cut, e.put)); err != nil {
			t.Fatalf("edit %s: %v", e.function, err)
		}
	}
}

const (
	claimLanes = "outbox_claim_lanes"
	lookAhead  = "outbox_look_ahead"
	settleRows = "outbox_settle"
)

// narrow makes a claim read few rows at a time, so that short queues take it through windows, cursors and ends that else
// only thousands of rows would.
func narrow() []edit {
	return []edit{
		{claimLanes, "c_exact    constant int := 1000", "c_exact    constant int := 4"},
		{claimLanes, "c_patience constant int := 2000", "c_patience constant int := 3"},
		{claimLanes, "<= c_eager * v_futile", "is not null"},
		{lookAhead, "c_rows  constant int := 5000", "c_rows  constant int := 2"},
		{lookAhead, "clock_timestamp() > c_until", "random() < 0.05"},
		{claimLanes, "c_effort   constant int := 10000", "c_effort   constant int := 20"},
	}
}

// TestPostgreSQLReadsInSmallWindows plays the histories with a claim that reads a few rows at a time. "Oldest first" is then
// exact no more, so the contract's claim is left out.
func TestPostgreSQLReadsInSmallWindows(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(firstSeed(t), 9))
	b := newDatabase(t)
	apply(t, b.pool, narrow()...)
	b.narrow = true
	for done := 0; done < narrowed**timesFlag; {
		steps := stepsOf(source.Uint64(), episodeLength)
		failed, more, err := b.play(t.Context(), steps, nil)
		if done += more; err != nil {
			t.Fatalf("after %d operations:\n%s", done, report(b.player(t.Context()), steps[:failed+1], err))
		}
	}
}

// brokenSQL are faults that the histories must find.
func brokenSQL() map[string]edit {
	return map[string]edit{
		"a fresh row is skipped at each turn of the page": {claimLanes, "e.position > v_fresh\n", "e.position > v_fresh + 1\n"},
		"of rows due at the same time only one is read":   {claimLanes, "(e.wake_at, e.position) > (v_wake, v_woken)", "e.wake_at > v_wake"},
		"rows left for want of room are passed":           {claimLanes, "least(v_pick.fresh, v_left.fresh - 1)", "v_pick.fresh"},
		"delayed rows left for want of room are passed":   {claimLanes, "if not v_left.delayed and not v_pick.postponed then", "if not v_pick.postponed then"},
		"delayed rows past the horizon are passed":        {claimLanes, "if not v_left.delayed and not v_pick.postponed then", "if not v_left.delayed then"},
		"the end comes early":                             {claimLanes, "v_end := not (v_pick.more or ", "v_end := not ("},
		"other people's types are taken":                  {claimLanes, " and o.event_type = any (v_types) as due", " as due"},
		"known types block":                               {claimLanes, "select unnest(p_known_event_types) union ", ""},
		"held types pass":                                 {claimLanes, " and t <> all (v_held));", ");"},
		"the depth is ignored":                            {claimLanes, "least(v_depth, max(u.depth))", "max(u.depth)"},
		"a cursor is trusted past the time it names":      {claimLanes, "v_pick.blocked_until, now() + c_trust", "now() + c_trust"},
		"a cursor is trusted for an hour":                 {claimLanes, "interval := '30 seconds'", "interval := '1 hour'"},
		"a row that waits and one behind it are blocked":  {claimLanes, "coalesce(g.blocked, true)", "true"},
		"lost lanes are not told":                         {claimLanes, "v_lost || coalesce(v_pick.lost, '[]')", "v_lost"},
		"leased lanes are not told":                       {claimLanes, "v_leased || coalesce(v_pick.leased, '[]')", "v_leased"},
		"recovering takes younger rows":                   {claimLanes, "order by r.rank, r.position", "order by r.rank, r.position desc"},
		"free rows are looked past":                       {lookAhead, "coalesce(o.wake_at > now(), false) as waits", "true as waits"},
		"spent rows are kept":                             {"outbox_discard_spent", "s.attempts >= p_max_attempts", "s.attempts > p_max_attempts"},
		"the token does not matter":                       {settleRows, " and e.metadata ->> 'claimToken' = s.token\n        for", "\n        for"},
		"finished rows are settled":                       {settleRows, "e.status = 'processing' and e.metadata ->> 'claimToken' = s.token\n", "e.status <> 'pending' and e.metadata ->> 'claimToken' = s.token\n"},
		"the last outcome counts":                         {settleRows, "order by l.id, l.n", "order by l.id, l.n desc"},
		"a retry at the ceiling stays":                    {settleRows, "k.attempts >= v_ceiling", "k.attempts > v_ceiling"},
		"a release charges":                               {settleRows, "when s.effect in ('snooze', 'release') then", "when s.effect = 'snooze' then"},
		"a detail may steal the row":                      {settleRows, "array['claimToken', ", "array["},
	}
}

// TestBrokenSQLIsCaught proves that the histories see what they are to see.
func TestBrokenSQLIsCaught(t *testing.T) {
	t.Parallel()
	for name, fault := range brokenSQL() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := rand.New(rand.NewPCG(firstSeed(t), 9))
			b := newDatabase(t)
			b.narrow = true
			apply(t, b.pool, append(narrow(), fault)...)
			if strings.HasPrefix(name, "a cursor is trusted") { // it matters to rows that wait only
				b.shapes = slices.DeleteFunc(shapes(), func(s shape) bool { return s.late == 0 })
			}
			done := 0
			for done < operations {
				_, more, err := b.play(t.Context(), stepsOf(source.Uint64(), episodeLength), nil)
				if done += more; err != nil {
					t.Logf("caught after %d operations: %s", done, strings.SplitN(fmt.Sprint(err), "\n", 2)[0])
					return
				}
			}
			t.Errorf("%d operations found nothing wrong", done)
		})
	}
}
