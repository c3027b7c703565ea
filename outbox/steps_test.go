package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// scenario is one pass with one handler at a time: the exact journal and the exact reply.
type scenario struct {
	name    string
	batches [][]outbox.Event
	given   func(w *world)
	journal string
	want    reply
}

func runScenarios(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, s := range scenarios {
		inBubble(t, s.name, func(t *testing.T) {
			w := newWorld(s.batches...)
			w.withStats(func(context.Context) (json.RawMessage, error) { return json.RawMessage(`{"due":1}`), nil })
			if s.given != nil {
				s.given(w)
			}
			result := w.run(t.Context(), t)
			w.wantJournal(t, s.journal)
			if s.want.queue == "" && !s.want.skipped {
				s.want.queue = `{"due":1}`
			}
			wantReply(t, result, s.want)
		})
	}
}

func TestPassStepsOneToThree(t *testing.T) {
	t.Parallel()
	late, early := ev("b1"), ev("a1")
	late.Position, early.Position = 9, 3
	runScenarios(t, []scenario{
		{
			name: "1_empty_registry_calls_neither_store_nor_statistics",
			given: func(w *world) {
				w.config.Registry = nil
			},
			journal: `observe finished 0`,
			want:    reply{skipped: true, reason: "outbox_registry_empty"},
		},
		{
			name: "2_nothing_claimed_ends_the_pass",
			journal: `claim
				stats
				observe finished 0`,
		},
		{
			name:    "2_a_short_claim_does_not_end_the_pass",
			batches: [][]outbox.Event{batch(ev("a1")), batch(ev("a2"))},
			journal: `claim
				observe claimed 1
				handle a1
				settle a1=processed
				claim
				observe claimed 1
				handle a2
				settle a2=processed
				claim
				stats
				observe finished 2`,
			want: reply{claimed: 2, processed: 2, batches: 2, types: `"t":{"processed":2}`},
		},
		{
			name:    "2_the_soft_budget_ends_the_pass_before_the_next_claim",
			batches: [][]outbox.Event{batch(ev("a1")), batch(ev("a2"))},
			given: func(w *world) {
				w.settling = func(context.Context, []outbox.Settlement) { time.Sleep(time.Minute) }
			},
			journal: `claim
				observe claimed 1
				handle a1
				settle a1=processed
				stats
				observe finished 1`,
			want: reply{claimed: 1, processed: 1, batches: 1, ms: 60_000, types: `"t":{"processed":1}`},
		},
		{
			name:    "3_oldest_first_whatever_order_the_store_gave",
			batches: [][]outbox.Event{batch(late, early)},
			journal: `claim
				observe claimed 2
				handle a1
				settle a1=processed
				handle b1
				settle b1=processed
				claim
				stats
				observe finished 2`,
			want: reply{claimed: 2, processed: 2, batches: 1, types: `"t":{"processed":2}`},
		},
	})
}

func TestPassClaimTokens(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"absent": `{}`, "null": `{"claimToken":null}`, "number": `{"claimToken":7}`, "empty": `{"claimToken":""}`,
		"object": `{"claimToken":{"a":"b"}}`, "array metadata": `[]`, "text metadata": `"claimToken"`,
		"null metadata": `null`, "no metadata": ``, "malformed metadata": `{`, "another key": `{"claimtoken":"x"}`,
	} {
		inBubble(t, "4a_"+name, func(t *testing.T) {
			w := newWorld(batch(ev("a1", metadata(raw)), ev("b1")), batch(ev("a1")))
			result := w.run(t.Context(), t)
			w.wantJournal(t, `claim
				observe claimed 2
				log ERROR missing_claim_token a1
				handle b1
				settle b1=processed
				claim
				observe claimed 1
				handle a1
				settle a1=processed
				claim
				observe finished 2`)
			wantReply(t, result, reply{
				claimed: 3, processed: 2, leaseLost: 1, batches: 2, types: `"t":{"processed":2,"leaseLost":1}`,
			})
		})
	}
	inBubble(t, "4a_only_the_exact_key_counts", func(t *testing.T) {
		raw := `{"CLAIMTOKEN":"no","claimToken":"token-a1","claimtoken":"no","ClaimToken":"no","SNOOZECOUNT":99,"snoozecount":99}`
		w := newWorld(batch(ev("a1", metadata(raw))))
		w.replies["a1"] = snoozing("down")
		result := w.run(t.Context(), t)
		w.wantSettled(t, "a1", "snooze(down)+5m0s")
		if result.Snoozed != 1 || result.LeaseLost != 0 {
			t.Errorf("snoozed %d, lease lost %d, want 1 and 0", result.Snoozed, result.LeaseLost)
		}
	})
	inBubble(t, "4a_does_not_depend_on_the_budget", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1", metadata(`{}`)), ev("c1", typed("unrouted"))))
		w.replies["a1"] = taking(9*time.Second, nil)
		w.pass.SoftBudget = 13 * time.Second
		w.config.Registry["quick"] = w.route(time.Second, "crm")
		w.run(t.Context(), t)
		w.wantLines(t, "log", `log ERROR missing_claim_token b1`)
		w.wantSettled(t, "c1", "retry(outbox_handler_missing)")
	})
}

func TestPassDuplicates(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{
			name:    "4b_an_event_that_was_tried_is_released_and_never_run_twice",
			batches: [][]outbox.Event{batch(ev("a1")), batch(ev("a1"), ev("b1"))},
			given:   func(w *world) { w.replies["a1"] = retrying("refused") },
			journal: `claim
				observe claimed 1
				handle a1
				settle a1=retry(refused)
				claim
				observe claimed 2
				settle a1=release+1m0s
				handle b1
				settle b1=processed
				claim
				stats
				observe finished 1`,
			want: reply{
				claimed: 3, processed: 1, retried: 1, released: 1, duplicate: 1, batches: 2,
				types: `"t":{"processed":1,"retried":1,"duplicateInRun":1}`,
			},
		},
		{
			name:    "4b_counts_whatever_the_release_answered",
			batches: [][]outbox.Event{batch(ev("a1")), batch(ev("a1"))},
			given: func(w *world) {
				w.replies["a1"] = retrying("refused")
				w.answers["a1 release"] = outbox.Missed
				w.config.BackoffBase = 7 * time.Second
			},
			journal: `claim
				observe claimed 1
				handle a1
				settle a1=retry(refused)
				claim
				observe claimed 1
				settle a1=release+7s
				claim
				stats
				observe finished 0`,
			want: reply{claimed: 2, retried: 1, duplicate: 1, batches: 2, types: `"t":{"retried":1,"duplicateInRun":1}`},
		},
		{
			name:    "4b_twice_in_one_batch",
			batches: [][]outbox.Event{batch(ev("a1"), ev("a1"))},
			journal: `claim
				observe claimed 2
				handle a1
				settle a1=processed
				settle a1=release+1m0s
				claim
				stats
				observe finished 1`,
			want: reply{
				claimed: 2, processed: 1, released: 1, duplicate: 1, batches: 1,
				types: `"t":{"processed":1,"duplicateInRun":1}`,
			},
		},
		{
			name:    "4b_rows_released_unrun_are_no_duplicates",
			batches: [][]outbox.Event{batch(ev("a1"), ev("a2")), batch(ev("a2"))},
			given:   func(w *world) { w.replies["a1"] = retrying("refused") },
			journal: `claim
				observe claimed 2
				handle a1
				settle a1=retry(refused) a2=release+0s
				claim
				observe claimed 1
				handle a2
				settle a2=processed
				claim
				stats
				observe finished 1`,
			want: reply{
				claimed: 3, processed: 1, retried: 1, released: 1, batches: 2, types: `"t":{"processed":1,"retried":1}`,
			},
		},
		{
			name:    "4b_events_confirmed_done_are_forgotten",
			batches: [][]outbox.Event{batch(ev("a1"), ev("b1")), batch(ev("a1"), ev("b1"))},
			given:   func(w *world) { w.replies["b1"] = discarding("no") },
			journal: `claim
				observe claimed 2
				handle a1
				settle a1=processed
				handle b1
				settle b1=discard(no)
				log ERROR event_discarded [eventId=b1 eventType=t aggregateId=b attempts=1 reason=no]
				claim
				observe claimed 2
				handle a1
				settle a1=processed
				handle b1
				settle b1=discard(no)
				log ERROR event_discarded [eventId=b1 eventType=t aggregateId=b attempts=1 reason=no]
				claim
				stats
				observe finished 2`,
			want: reply{
				claimed: 4, processed: 2, discarded: 2, batches: 2, types: `"t":{"processed":2,"discarded":2}`, ids: `"b1","b1"`,
			},
		},
		{
			name:    "4b_a_lost_lease_is_remembered",
			batches: [][]outbox.Event{batch(ev("a1")), batch(ev("a1"))},
			given:   func(w *world) { w.answers["a1 processed"] = outbox.Missed },
			journal: `claim
				observe claimed 1
				handle a1
				settle a1=processed
				log WARN outbox_lease_lost a1
				claim
				observe claimed 1
				settle a1=release+1m0s
				claim
				stats
				observe finished 0`,
			want: reply{
				claimed: 2, leaseLost: 1, released: 1, duplicate: 1, batches: 2, types: `"t":{"leaseLost":1,"duplicateInRun":1}`,
			},
		},
	})
}

func TestPassHandlerMissing(t *testing.T) {
	t.Parallel()
	missing := func(answer outbox.Answer, tail string, want reply) scenario {
		want.claimed, want.batches = 1, 1
		return scenario{
			name:    "4c_answered_" + string(answer),
			batches: [][]outbox.Event{batch(ev("a1", typed("none"), attempts(3)))},
			given:   func(w *world) { w.answers["a1 retry"] = answer },
			journal: `claim
				observe claimed 1
				settle a1=retry(outbox_handler_missing)
				` + tail + `
				claim
				stats
				observe finished 0`,
			want: want,
		}
	}
	runScenarios(t, []scenario{
		missing(outbox.AnswerFailed, "", reply{retried: 1, types: `"none":{"retried":1}`}),
		missing(outbox.AnswerDiscarded,
			`log ERROR event_discarded [eventId=a1 eventType=none aggregateId=a attempts=3 reason=outbox_handler_missing]`,
			reply{discarded: 1, types: `"none":{"discarded":1}`, ids: `"a1"`}),
		missing(outbox.Missed, `log WARN outbox_lease_lost a1`, reply{leaseLost: 1, types: `"none":{"leaseLost":1}`}),
		missing(outbox.AnswerSnoozed, "", reply{snoozed: 1, types: `"none":{"snoozed":1}`}),
	})
}

func TestPassBudget(t *testing.T) {
	t.Parallel()
	slowAndQuick := func(w *world) {
		w.config.Registry["quick"] = w.route(time.Second, "crm")
		w.replies["a1"] = taking(10*time.Second-1, nil)
	}
	runScenarios(t, []scenario{
		{
			name:    "4d_equality_fits",
			batches: [][]outbox.Event{batch(ev("a1"), ev("b1"))},
			given: func(w *world) {
				w.pass.SoftBudget = 16 * time.Second // b1 starts at 4 s: 4 + 10 + 2
				w.replies["a1"] = taking(4*time.Second, nil)
				w.replies["b1"] = taking(5*time.Second, nil)
			},
			journal: `claim
				observe claimed 2
				handle a1
				settle a1=processed
				handle b1
				settle b1=processed
				stats
				observe finished 2`,
			want: reply{claimed: 2, processed: 2, batches: 1, ms: 9000, types: `"t":{"processed":2}`},
		},
		{
			name:    "4d_a_nanosecond_more_does_not",
			batches: [][]outbox.Event{batch(ev("a1"), ev("b1"))},
			given: func(w *world) {
				w.pass.SoftBudget = 16*time.Second - 1
				w.replies["a1"] = taking(4*time.Second, nil)
			},
			journal: `claim
				observe claimed 2
				handle a1
				settle a1=processed
				settle b1=release+0s
				stats
				observe finished 1`,
			want: reply{claimed: 2, processed: 1, released: 1, batches: 1, ms: 4000, types: `"t":{"processed":1}`},
		},
		{
			name: "4d_5_a_later_row_with_a_shorter_timeout_still_fits_and_rows_set_aside_go_last",
			batches: [][]outbox.Event{batch(
				ev("a1"), ev("b1"), ev("c1", typed("quick")), ev("d1"), ev("e1", typed("quick")))},
			given: func(w *world) {
				slowAndQuick(w)
				w.pass.SoftBudget = 20 * time.Second
				w.replies["c1"] = taking(time.Second/2, nil)
			},
			journal: `claim
				observe claimed 5
				handle a1
				settle a1=processed
				handle c1
				settle c1=processed
				handle e1
				settle e1=processed
				settle b1=release+0s d1=release+0s
				claim
				stats
				observe finished 3`,
			want: reply{
				claimed: 5, processed: 3, released: 2, batches: 1, ms: 10_499, types: `"quick":{"processed":2},"t":{"processed":1}`,
			},
		},
		{
			name:    "5_released_adds_the_answer_not_the_number_sent",
			batches: [][]outbox.Event{batch(ev("a1"), ev("b1"), ev("c1"))},
			given: func(w *world) {
				w.pass.SoftBudget = 13 * time.Second
				w.replies["a1"] = taking(9*time.Second, nil)
				w.answers["b1 release"] = outbox.Missed
			},
			journal: `claim
				observe claimed 3
				handle a1
				settle a1=processed
				settle b1=release+0s c1=release+0s
				stats
				observe finished 1`,
			want: reply{claimed: 3, processed: 1, released: 1, batches: 1, ms: 9000, types: `"t":{"processed":1}`},
		},
	})
	inBubble(t, "types_that_do_not_fit_what_is_left_are_held_in_the_next_claim", func(t *testing.T) {
		w := newWorld(batch(ev("a1"), ev("b1", typed("quick"))))
		slowAndQuick(w)
		w.pass.SoftBudget = 20 * time.Second
		w.run(t.Context(), t)
		if len(w.requests) != 2 {
			t.Fatalf("%d claims, want 2", len(w.requests))
		}
		wantTypes(t, w.requests[0], "quick t", "")
		wantTypes(t, w.requests[1], "quick", "t")
	})
}

func wantTypes(t *testing.T, req outbox.ClaimRequest, claimed, held string) {
	t.Helper()
	if got := strings.Join(req.EventTypes, " "); got != claimed {
		t.Errorf("claims types %q, want %q", got, claimed)
	}
	if got := strings.Join(req.HeldTypes, " "); got != held {
		t.Errorf("holds types %q, want %q", got, held)
	}
}

func TestPassOutcomes(t *testing.T) {
	t.Parallel()
	one := func(name string, given func(w *world), lines string, want reply) scenario {
		want.claimed, want.batches = want.claimed+1, want.batches+1
		finished := "0"
		if want.processed > 0 {
			finished = "1"
		}
		return scenario{
			name: "4e_" + name, batches: [][]outbox.Event{batch(ev("a1", attempts(4)))}, given: given, want: want,
			journal: "claim\nobserve claimed 1\nhandle a1\n" + lines + "\nclaim\nstats\nobserve finished " + finished,
		}
	}
	replying := func(reply outbox.HandlerFunc, answer ...string) func(w *world) {
		return func(w *world) {
			w.replies["a1"] = reply
			if len(answer) > 0 {
				w.answers["a1 "+answer[0]] = outbox.Answer(answer[1])
			}
		}
	}
	discarded := func(reason string) string {
		return `log ERROR event_discarded [eventId=a1 eventType=t aggregateId=a attempts=4 reason=` + reason + `]`
	}
	receipt := func(context.Context, outbox.Event) (outbox.Receipt, error) {
		return outbox.Receipt{"messageId": "m<1>", "status": 200}, nil
	}
	runScenarios(t, []scenario{
		one("processed_with_its_detail", replying(receipt),
			`settle a1=processed{"messageId":"m<1>","status":200}`, reply{processed: 1, types: `"t":{"processed":1}`}),
		one("processed_without_detail", nil, `settle a1=processed`, reply{processed: 1, types: `"t":{"processed":1}`}),
		one("processed_but_the_lease_was_lost", replying(nil, "processed", "missed"),
			"settle a1=processed\nlog WARN outbox_lease_lost a1", reply{leaseLost: 1, types: `"t":{"leaseLost":1}`}),
		one("retry", replying(retrying("refused")), `settle a1=retry(refused)`, reply{retried: 1, types: `"t":{"retried":1}`}),
		one("retry_turned_discard_is_an_error", replying(retrying("refused"), "retry", "discarded"),
			"settle a1=retry(refused)\n"+discarded("refused"), reply{discarded: 1, types: `"t":{"discarded":1}`, ids: `"a1"`}),
		one("retry_missed", replying(retrying("refused"), "retry", "missed"),
			"settle a1=retry(refused)\nlog WARN outbox_lease_lost a1", reply{leaseLost: 1, types: `"t":{"leaseLost":1}`}),
		one("retry_answered_otherwise_counts_as_snoozed", replying(retrying("refused"), "retry", "snoozed"),
			`settle a1=retry(refused)`, reply{snoozed: 1, types: `"t":{"snoozed":1}`}),
		one("discard", replying(discarding("gone")),
			"settle a1=discard(gone)\n"+discarded("gone"), reply{discarded: 1, types: `"t":{"discarded":1}`, ids: `"a1"`}),
		one("discard_answered_failed_counts_as_retried", replying(discarding("gone"), "discard", "failed"),
			`settle a1=discard(gone)`, reply{retried: 1, types: `"t":{"retried":1}`}),
		one("discard_missed", replying(discarding("gone"), "discard", "missed"),
			"settle a1=discard(gone)\nlog WARN outbox_lease_lost a1", reply{leaseLost: 1, types: `"t":{"leaseLost":1}`}),
		one("benign_discard_is_a_warning", replying(answering(outbox.Benign(errors.New("opted out")))),
			"settle a1=discard(opted out)\n"+
				`log WARN event_discarded [eventId=a1 eventType=t aggregateId=a attempts=4 reason=opted out benign=true]`,
			reply{discarded: 1, types: `"t":{"discarded":1}`, ids: `"a1"`}),
		one("a_nil_pointer_that_is_an_error_is_one", replying(func(context.Context, outbox.Event) (outbox.Receipt, error) {
			return nil, typedNil()
		}), `settle a1=retry(refused by nobody)`, reply{retried: 1, types: `"t":{"retried":1}`}),
	})
}

// quietError has a method that works on a nil pointer.
type quietError struct{}

func (*quietError) Error() string { return "refused by nobody" }

func typedNil() error { return (*quietError)(nil) }

func TestDiscardedIDsAreListedUpToTheCap(t *testing.T) {
	t.Parallel()
	inBubble(t, "30_discards_list_25", func(t *testing.T) {
		var events []outbox.Event
		for range 30 {
			events = append(events, ev(fmt.Sprintf("%c1", 'ア'+len(events))))
		}
		w := newWorld(events)
		for _, event := range events {
			w.replies[event.ID] = discarding("no")
		}
		result := w.run(t.Context(), t)
		if result.Discarded != 30 || len(result.DiscardedEventIDs) != 25 {
			t.Fatalf("%d discarded, %d listed, want 30 and 25", result.Discarded, len(result.DiscardedEventIDs))
		}
		for i, id := range result.DiscardedEventIDs {
			if id != events[i].ID {
				t.Errorf("listed %d is %s, want %s: in order of discard", i, id, events[i].ID)
			}
		}
		if n := len(w.lines("log ERROR event_discarded")); n != 30 {
			t.Errorf("%d lines event_discarded, want 30", n)
		}
	})
}
