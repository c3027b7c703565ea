package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

func failing(err error) outbox.Handler {
	return outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) { return nil, err })
}

func TestOutcomesReplaceThoseOfTheTable(t *testing.T) {
	t.Parallel()
	notFound := errors.New("http_404: not found")
	for _, test := range []struct {
		name     string
		outcomes handlers.Outcomes
		err      error
		want     outbox.Outcome
		delay    time.Duration
	}{
		{"none", handlers.Outcomes{}, notFound, outbox.Retry, 0},
		{"one status discarded", handlers.Outcomes{DiscardOn: []string{"http_404"}}, notFound, outbox.Discarded, 0},
		{"another status", handlers.Outcomes{DiscardOn: []string{"http_403"}}, notFound, outbox.Retry, 0},
		{"one status snoozed", handlers.Outcomes{SnoozeOn: []string{"http_404"}}, notFound, outbox.Snoozed, 0},
		{"its row", handlers.Outcomes{DiscardOn: []string{"http_4xx"}}, notFound, outbox.Discarded, 0},
		{"status before row", handlers.Outcomes{DiscardOn: []string{"http_4xx"}, SnoozeOn: []string{"http_404"}}, notFound, outbox.Snoozed, 0},
		{
			"a row of its own",
			handlers.Outcomes{DiscardOn: []string{"http_4xx"}},
			outbox.Snooze(errors.New("http_429: too many requests"), 2*time.Minute), outbox.Snoozed, 2 * time.Minute,
		},
		{
			"a snooze keeps its delay",
			handlers.Outcomes{SnoozeOn: []string{"http_503"}},
			outbox.Snooze(errors.New("http_503: x"), 3*time.Minute), outbox.Snoozed, 3 * time.Minute,
		},
		{
			"a snooze of AWS keeps its delay",
			handlers.Outcomes{SnoozeOn: []string{"ses_daily_quota"}},
			outbox.Snooze(errors.New("ses_daily_quota: x"), 10*time.Minute), outbox.Snoozed, 10 * time.Minute,
		},
		{"a snooze discarded", handlers.Outcomes{DiscardOn: []string{"sns_topic_missing"}}, outbox.Snooze(errors.New("sns_topic_missing: x"), 0), outbox.Discarded, 0},
		{"a discard snoozed", handlers.Outcomes{SnoozeOn: []string{"sns_message_invalid"}}, outbox.Discard(errors.New("sns_message_invalid: x")), outbox.Snoozed, 0},
		{"a status that HTTP has not", handlers.Outcomes{DiscardOn: []string{"http_other"}}, errors.New("http_600"), outbox.Discarded, 0},
		{"delivered", handlers.Outcomes{DiscardOn: handlers.HTTPReasons()}, nil, outbox.Processed, 0},
		{"timeout", handlers.Outcomes{DiscardOn: handlers.HTTPReasons()}, fmt.Errorf("timeout: %w", context.DeadlineExceeded), outbox.Retry, 0},
	} {
		got := outcomeOf(t, test.outcomes.Over(failing(test.err)), time.Minute)
		if got.Outcome != test.want || test.want == outbox.Snoozed && test.delay != 0 && got.Delay != test.delay {
			t.Errorf("%s: %v after %v, want %v after %v", test.name, got.Outcome, got.Delay, test.want, test.delay)
		}
		if test.err != nil && got.Reason != test.err.Error() && test.name != "timeout" {
			t.Errorf("%s: reason %q, want %q", test.name, got.Reason, test.err)
		}
	}
}

// A cancelled invocation must not discard what its end cut off.
func TestOutcomesLeaveTheEndOfAContextVisible(t *testing.T) {
	t.Parallel()
	outcomes := handlers.Outcomes{DiscardOn: []string{"sns_unreachable"}}
	inner := outbox.Snooze(fmt.Errorf("sns_unreachable: x: %w", context.DeadlineExceeded), 0)
	_, err := outcomes.Over(failing(inner)).Handle(t.Context(), outbox.Event{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v does not wrap the context's end", err)
	}
}

type batches struct{ outbox.Handler }

func (batches) BatchLimit() int { return 7 }

func (b batches) HandleBatch(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	deliveries := make([]outbox.Delivery, len(events))
	for i, event := range events {
		if i > 0 {
			deliveries[i].Receipt, deliveries[i].Err = b.Handle(ctx, event)
		}
	}
	return deliveries
}

type weighs struct{ outbox.Handler }

func (weighs) Weight(outbox.Event) int { return 3 }

type both struct {
	batches
	weighs
}

func (b both) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	return b.batches.Handle(ctx, event)
}

func TestOutcomesKeepBatchesAndWeights(t *testing.T) {
	t.Parallel()
	plain := failing(errors.New("http_404: not found"))
	outcomes := handlers.Outcomes{DiscardOn: []string{"http_404"}}
	for name, handler := range map[string]outbox.Handler{
		"plain": plain, "batches": batches{plain}, "weighs": weighs{plain}, "both": both{batches{plain}, weighs{plain}},
	} {
		over := outcomes.Over(handler)
		batch, isBatch := over.(outbox.BatchHandler)
		weigher, isWeigher := over.(outbox.Weigher)
		if isBatch != (name == "batches" || name == "both") || isWeigher != (name == "weighs" || name == "both") {
			t.Errorf("%s: takes batches %t, weighs %t", name, isBatch, isWeigher)
		}
		if isWeigher && weigher.Weight(outbox.Event{}) != 3 {
			t.Errorf("%s: another weight", name)
		}
		if got := outcomeOf(t, over, time.Minute); got.Outcome != outbox.Discarded {
			t.Errorf("%s: %v, want discarded", name, got.Outcome)
		}
		if !isBatch {
			continue
		}
		if batch.BatchLimit() != 7 {
			t.Errorf("%s: batches of %d, want 7", name, batch.BatchLimit())
		}
		first, second := outbox.Event{ID: "1"}, outbox.Event{ID: "2"}
		if got := batch.HandleBatch(t.Context(), []outbox.Event{first, second}); len(got) != 2 || got[0].Err != nil || got[1].Err == nil {
			t.Errorf("%s: deliveries %v, want the second one failed", name, got)
		}
	}
}

func TestOutcomesReportReasonsThatDoNotExist(t *testing.T) {
	t.Parallel()
	outcomes := handlers.Outcomes{
		DiscardOn: []string{"http_404", "http_2xx", "http_200", "http_4xx", "sns_throttled", "http_4041"},
		SnoozeOn:  []string{"http_404", "http_500", "handler_timeout", "http_600"},
	}
	var got []string
	for _, fault := range outcomes.Faults(handlers.HTTPReasons()) {
		got = append(got, fault.Field)
	}
	want := []string{"discard_on[1]", "discard_on[2]", "discard_on[4]", "discard_on[5]", "snooze_on[0]", "snooze_on[2]", "snooze_on[3]"}
	if !slices.Equal(got, want) {
		t.Errorf("faults in %v, want %v", got, want)
	}
}

// A reason that a handler answers and that no list takes could not be overridden.
func TestReasonsAreAllThatHandlersAnswer(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Concat(handlers.EndpointsReasons(), handlers.SNSReasons(), handlers.SESReasons())
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`"((?:sns|ses|http|endpoint)_[a-z0-9_]+)(?:"|: )`).FindAllStringSubmatch(string(content), -1) {
			if match[1] == "endpoint_invalid" { // of AWS, where a provider's name goes before it
				continue
			}
			if found++; !slices.Contains(known, match[1]) && match[1] != "http_2xx" {
				t.Errorf("%s answers %s, which is not among the reasons", file, match[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d reasons, want the test to read the sources", found)
	}
}

// ExampleOutcomes discards at once what the receiver says it will never take.
func ExampleOutcomes() {
	handler := handlers.Outcomes{DiscardOn: []string{"http_404"}}.Over(failing(errors.New("http_404: not found")))
	_, err := handler.Handle(context.Background(), outbox.Event{})
	fmt.Println(err)
	// Output: http_404: not found
}
