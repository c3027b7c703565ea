package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

func TestSnoozeBreaksTheCircuit(t *testing.T) {
	t.Parallel()
	down := func(w *world) { w.replies["a1"] = snoozing("down") }
	runScenarios(t, []scenario{
		{
			name: "rows_set_aside_then_the_later_rows_with_a_token_in_one_call",
			batches: [][]outbox.Event{batch(ev("x1"), ev("y1"), ev("z1"), ev("a1", typed("quick")), ev("b1", typed("quick")),
				ev("c1", metadata(`{}`)), ev("d1", typed("unrouted")), ev("x1"))},
			given: func(w *world) {
				down(w)
				w.config.Registry["quick"] = w.route(time.Second, "crm")
				w.pass.SoftBudget = 20 * time.Second
				w.replies["x1"] = taking(9*time.Second, nil)
				w.answers["d1 release"] = outbox.Missed
			},
			journal: `claim
				observe claimed 8
				handle x1
				settle x1=processed
				handle a1
				settle a1=snooze(down)+5m0s
				settle y1=release+5m0s z1=release+5m0s b1=release+5m0s d1=release+5m0s x1=release+5m0s
				stats
				observe finished 1`,
			want: reply{
				reason: "provider_outage", claimed: 8, processed: 1, snoozed: 1, released: 4, batches: 1, ms: 9000,
				types: `"quick":{"snoozed":1},"t":{"processed":1}`,
			},
		},
		{
			name:    "nothing_to_release_is_no_call",
			batches: [][]outbox.Event{batch(ev("a1"), ev("b1", metadata(`{}`)))},
			given:   down,
			journal: `claim
				observe claimed 2
				handle a1
				settle a1=snooze(down)+5m0s
				stats
				observe finished 0`,
			want: reply{reason: "provider_outage", claimed: 2, snoozed: 1, batches: 1, types: `"t":{"snoozed":1}`},
		},
		{
			name:    "whatever_the_snooze_answered",
			batches: [][]outbox.Event{batch(ev("a1"), ev("b1"))},
			given: func(w *world) {
				down(w)
				w.answers["a1 snooze"] = outbox.Missed
				w.config.Snooze = 10 * time.Second
			},
			journal: `claim
				observe claimed 2
				handle a1
				settle a1=snooze(down)+10s
				log WARN outbox_lease_lost a1
				settle b1=release+10s
				stats
				observe finished 0`,
			want: reply{
				reason: "provider_outage", claimed: 2, leaseLost: 1, released: 1, batches: 1, types: `"t":{"leaseLost":1}`,
			},
		},
		{
			name:    "answered_discarded_counts_as_discarded",
			batches: [][]outbox.Event{batch(ev("a1"))},
			given: func(w *world) {
				down(w)
				w.answers["a1 snooze"] = outbox.AnswerDiscarded
			},
			journal: `claim
				observe claimed 1
				handle a1
				settle a1=snooze(down)+5m0s
				log ERROR event_discarded [eventId=a1 eventType=t aggregateId=a attempts=1 reason=down]
				stats
				observe finished 0`,
			want: reply{
				reason: "provider_outage", claimed: 1, discarded: 1, batches: 1, types: `"t":{"discarded":1}`, ids: `"a1"`,
			},
		},
	})
	inBubble(t, "a_handler_may_name_the_delay", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1")))
		w.replies["a1"] = answering(outbox.Snooze(errors.New("busy"), 90*time.Second))
		w.run(t.Context(), t)
		w.wantSettled(t, "a1", "snooze(busy)+1m30s")
		w.wantSettled(t, "b1", "release+5m0s") // the rows of the break wait snooze seconds
	})
}

func TestSnoozeBudget(t *testing.T) {
	t.Parallel()
	const spent = "retry(snooze_budget_exhausted:down)"
	for _, c := range []struct{ count, want string }{
		{`19`, "snooze(down)+5m0s"},
		{`20`, spent},
		{`21`, spent},
		{`"20"`, spent},
		{`"19"`, "snooze(down)+5m0s"},
		{`"many"`, "snooze(down)+5m0s"},
		{`null`, "snooze(down)+5m0s"},
		{`{}`, "snooze(down)+5m0s"},
		{`true`, "snooze(down)+5m0s"},
		{`-3`, "snooze(down)+5m0s"},
		{`" 20 "`, spent},
		{`"\t20"`, "snooze(down)+5m0s"},              // SQL trims spaces only
		{`"00000000000000020"`, "snooze(down)+5m0s"}, // and takes 15 digits
	} {
		inBubble(t, "snoozeCount_"+c.count, func(t *testing.T) {
			w := newWorld(batch(ev("a1", snoozes(c.count))))
			w.replies["a1"] = snoozing("down")
			w.run(t.Context(), t)
			w.wantSettled(t, "a1", c.want)
		})
	}
	runScenarios(t, []scenario{
		{
			name: "spent_goes_on_with_the_pass_and_counts_by_the_answer",
			batches: [][]outbox.Event{batch(
				ev("a1", snoozes(`20`)), ev("b1", snoozes(`20`)), ev("c1", snoozes(`20`), attempts(8)), ev("d1"))},
			given: func(w *world) {
				for _, id := range []string{"a1", "b1", "c1"} {
					w.replies[id] = snoozing("down")
				}
				w.answers["b1 retry"] = outbox.Missed
				w.answers["c1 retry"] = outbox.AnswerDiscarded
			},
			journal: `claim
				observe claimed 4
				handle a1
				settle a1=retry(snooze_budget_exhausted:down)
				handle b1
				settle b1=retry(snooze_budget_exhausted:down)
				log WARN outbox_lease_lost b1
				handle c1
				settle c1=retry(snooze_budget_exhausted:down)
				log ERROR event_discarded [eventId=c1 eventType=t aggregateId=c attempts=8 reason=snooze_budget_exhausted:down]
				handle d1
				settle d1=processed
				claim
				stats
				observe finished 1`,
			want: reply{
				claimed: 4, processed: 1, retried: 1, discarded: 1, leaseLost: 1, batches: 1,
				types: `"t":{"processed":1,"retried":1,"discarded":1,"leaseLost":1}`, ids: `"c1"`,
			},
		},
	})
	inBubble(t, "max_snoozes_is_configurable", func(t *testing.T) {
		w := newWorld(batch(ev("a1", snoozes(`2`))))
		w.replies["a1"] = snoozing("down")
		w.config.MaxSnoozes = 2
		w.run(t.Context(), t)
		w.wantSettled(t, "a1", spent)
	})
}

func TestOutageOfOneDestination(t *testing.T) {
	t.Parallel()
	two := func(w *world) {
		w.config.Registry["u"] = w.route(10*time.Second, "erp")
		w.replies["a1"] = snoozing("down")
	}
	runScenarios(t, []scenario{
		{
			name:    "does_not_stop_the_others",
			batches: [][]outbox.Event{batch(ev("a1"), ev("b1"), ev("c1", typed("u"))), batch(ev("d1", typed("u")))},
			given:   two,
			journal: `claim
				observe claimed 3
				handle a1
				settle a1=snooze(down)+5m0s
				settle b1=release+5m0s
				handle c1
				settle c1=processed
				claim
				observe claimed 1
				handle d1
				settle d1=processed
				claim
				stats
				observe finished 2`,
			want: reply{
				reason: "provider_outage", claimed: 4, processed: 2, snoozed: 1, released: 1, batches: 2,
				types: `"t":{"snoozed":1},"u":{"processed":2}`,
			},
		},
		{
			name:    "all_out_ends_the_pass",
			batches: [][]outbox.Event{batch(ev("a1"), ev("b1", typed("u")), ev("c1", typed("u")), ev("d1", typed("none")))},
			given: func(w *world) {
				two(w)
				w.replies["b1"] = snoozing("down too")
			},
			journal: `claim
				observe claimed 4
				handle a1
				settle a1=snooze(down)+5m0s
				handle b1
				settle b1=snooze(down too)+5m0s
				settle c1=release+5m0s d1=release+5m0s
				stats
				observe finished 0`,
			want: reply{
				reason: "provider_outage", claimed: 4, snoozed: 2, released: 2, batches: 1, types: `"t":{"snoozed":1},"u":{"snoozed":1}`,
			},
		},
	})
	inBubble(t, "rows_of_the_destination_wait_and_the_rest_of_their_lanes_does_not", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("a2"), ev("a3", typed("u")), ev("b1", typed("u")), ev("b2"), ev("b3", typed("u"))))
		two(w)
		w.run(t.Context(), t)
		w.wantSettled(t, "a1", "snooze(down)+5m0s", "a2", "release+5m0s", "a3", "release+0s",
			"b1", "processed", "b2", "release+5m0s", "b3", "release+0s")
	})
	inBubble(t, "its_types_are_held_in_the_next_claim", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("c1", typed("u"))))
		two(w)
		w.config.Registry["t2"] = w.route(time.Second, "crm")
		w.run(t.Context(), t)
		if len(w.requests) != 2 {
			t.Fatalf("%d claims, want 2", len(w.requests))
		}
		wantTypes(t, w.requests[0], "t t2 u", "")
		wantTypes(t, w.requests[1], "u", "t t2")
	})
	inBubble(t, "a_route_without_a_destination_is_one_of_its_own", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1", typed("u"))))
		w.config.Registry = outbox.Registry{"t": w.route(time.Second, ""), "u": w.route(time.Second, "")}
		w.replies["a1"] = snoozing("down")
		w.run(t.Context(), t)
		w.wantSettled(t, "a1", "snooze(down)+5m0s", "b1", "processed")
	})
}

func TestRetriesOpenTheCircuit(t *testing.T) {
	t.Parallel()
	letters := func(w *world, ids string, reply outbox.HandlerFunc) (events []outbox.Event) {
		for _, letter := range ids {
			id := string(letter) + "1"
			events = append(events, ev(id))
			w.replies[id] = reply
		}
		return events
	}
	inBubble(t, "the_fifth_in_a_row_does", func(t *testing.T) {
		w := newWorld()
		w.batches = [][]outbox.Event{append(letters(w, "abcde", retrying("500")), letters(w, "fg", nil)...)}
		result := w.run(t.Context(), t)
		w.wantJournal(t, `claim
			observe claimed 7
			handle a1
			settle a1=retry(500)
			handle b1
			settle b1=retry(500)
			handle c1
			settle c1=retry(500)
			handle d1
			settle d1=retry(500)
			handle e1
			settle e1=retry(500)
			settle f1=release+5m0s g1=release+5m0s
			observe finished 0`)
		wantReply(t, result, reply{
			reason: "provider_outage", claimed: 7, retried: 5, released: 2, batches: 1, types: `"t":{"retried":5}`,
		})
	})
	inBubble(t, "across_batches_too", func(t *testing.T) {
		w := newWorld()
		w.batches = [][]outbox.Event{letters(w, "abc", retrying("500")), letters(w, "de", retrying("500")), letters(w, "f", nil)}
		if result := w.run(t.Context(), t); result.Reason != "provider_outage" || result.Claimed != 5 {
			t.Errorf("reason %q, claimed %d, want provider_outage after 5", result.Reason, result.Claimed)
		}
	})
	inBubble(t, "timeouts_and_panics_count", func(t *testing.T) {
		w := newWorld()
		w.batches = [][]outbox.Event{letters(w, "abcde", taking(time.Hour, nil))}
		w.replies["e1"] = func(context.Context, outbox.Event) (outbox.Receipt, error) { panic("x") }
		if result := w.run(t.Context(), t); result.Reason != "provider_outage" || result.Retried != 5 {
			t.Errorf("reason %q, retried %d, want provider_outage after 5", result.Reason, result.Retried)
		}
	})
	inBubble(t, "a_success_between_resets", func(t *testing.T) {
		w := newWorld()
		w.batches = [][]outbox.Event{append(append(letters(w, "abcd", retrying("500")), letters(w, "e", nil)...),
			letters(w, "fghi", retrying("500"))...)}
		if result := w.run(t.Context(), t); result.Reason != "" || result.Retried != 8 {
			t.Errorf("reason %q, retried %d, want none and 8", result.Reason, result.Retried)
		}
	})
	inBubble(t, "retries_of_different_destinations_do_not_add_up", func(t *testing.T) {
		w := newWorld()
		w.config.Registry["u"] = w.route(time.Second, "erp")
		events := letters(w, "abcdefgh", retrying("500"))
		for i := range events {
			if i%2 == 0 {
				events[i].Type = "u"
			}
		}
		w.batches = [][]outbox.Event{events}
		if result := w.run(t.Context(), t); result.Reason != "" || result.Retried != 8 {
			t.Errorf("reason %q, retried %d, want none and 8", result.Reason, result.Retried)
		}
	})
	inBubble(t, "rows_without_a_handler_say_nothing_about_a_destination", func(t *testing.T) {
		w := newWorld()
		events := letters(w, "abcdef", nil)
		for i := range events {
			events[i].Type = "none"
		}
		w.batches = [][]outbox.Event{append(events, letters(w, "g", nil)...)}
		if result := w.run(t.Context(), t); result.Reason != "" || result.Retried != 6 || result.Processed != 1 {
			t.Errorf("reason %q, retried %d, processed %d, want none, 6 and 1", result.Reason, result.Retried, result.Processed)
		}
	})
	inBubble(t, "while_open_retries_become_snoozes_and_other_outcomes_stay", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1"), ev("c1"), ev("d1"), ev("e1"), ev("f1", snoozes(`20`)), ev("g1")))
		w.config.Concurrency = 6
		w.replies["a1"] = taking(time.Second, outbox.Snooze(errors.New("down"), 0))
		w.replies["b1"] = taking(2*time.Second, errors.New("refused"))
		w.replies["c1"] = taking(3*time.Second, nil)
		w.replies["d1"] = taking(4*time.Second, outbox.Discard(errors.New("gone")))
		w.replies["e1"] = taking(5*time.Second, outbox.Snooze(errors.New("still down"), 0))
		w.replies["f1"] = taking(6*time.Second, errors.New("refused"))
		result := w.run(t.Context(), t)
		w.wantSettled(t, "a1", "snooze(down)+5m0s", "b1", "snooze(refused)+5m0s", "c1", "processed", "d1", "discard(gone)",
			"e1", "snooze(still down)+5m0s", "f1", "retry(refused)", "g1", "release+5m0s")
		wantReply(t, result, reply{
			reason: "provider_outage", claimed: 7, processed: 1, retried: 1, snoozed: 3, discarded: 1, released: 1,
			batches: 1, ms: 6000, types: `"t":{"processed":1,"retried":1,"snoozed":3,"discarded":1}`, ids: `"d1"`,
		})
	})
}
