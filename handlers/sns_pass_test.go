package handlers_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// rail is a store, and a worker that delivers from it to one handler.
type rail struct {
	*outboxtest.Memory
	worker *outbox.Worker
}

func newRail(t *testing.T, handler outbox.Handler, batchSize int) *rail {
	t.Helper()
	r := &rail{Memory: new(outboxtest.Memory)}
	var err error
	r.worker, err = outbox.NewWorker(outbox.Config{
		Store: r, Registry: outbox.Registry{"order.placed": {Handler: handler, Destination: "orders"}}, BatchSize: batchSize,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// insert adds n events over that many aggregates, round robin, with a payload of that many bytes.
func (r *rail) insert(n, aggregates, bytes int) {
	rows := make([]outboxtest.Row, n)
	for i := range rows {
		rows[i].AggregateType, rows[i].AggregateID = "order", fmt.Sprintf("0b6e2f2a-7c1d-4d2b-8a61-%012d", i%aggregates)
		rows[i].Type, rows[i].IdempotencyKey = "order.placed", strconv.Itoa(i)
		rows[i].Payload = json.RawMessage(`"` + strings.Repeat("x", bytes-2) + `"`)
	}
	r.Insert(rows...)
}

func (r *rail) run(t *testing.T) outbox.Result {
	t.Helper()
	result, err := r.worker.Run(t.Context(), outbox.Pass{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// expectOnceInOrder fails unless every row is processed, and its message was taken once and in the order of its
// aggregate.
func (r *rail) expectOnceInOrder(t *testing.T, fake *fakeSNS) {
	t.Helper()
	seen, last := map[string]int{}, map[string]int{}
	for _, m := range fake.messages {
		seen[m.Attributes["event_id"]]++
		position, err := strconv.Atoi(m.Attributes["position"])
		if err != nil || position < last[m.Attributes["aggregate_id"]] {
			t.Errorf("position %q of %s came after %d", m.Attributes["position"], m.Attributes["aggregate_id"], last[m.Attributes["aggregate_id"]])
		}
		last[m.Attributes["aggregate_id"]] = position
	}
	for _, row := range r.Rows() {
		if row.Status != outboxtest.StatusProcessed || seen[row.ID] != 1 {
			t.Errorf("event %s is %s and was taken %d times, want once", row.ID, row.Status, seen[row.ID])
		}
	}
	if len(seen) != len(r.Rows()) {
		t.Errorf("%d events were taken, want %d", len(seen), len(r.Rows()))
	}
}

// The events come in five queues, one after the other, since the store walks all of its rows for each claim.
func TestTenThousandEventsTakeAThousandCalls(t *testing.T) {
	t.Parallel()
	for _, size := range []int{outbox.DefaultBatchSize, 100} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			calls := map[string]int{}
			for range 5 {
				fake := &fakeSNS{refuse: func(string, url.Values) *fakeFault {
					time.Sleep(20 * time.Millisecond) // so that as many calls are under way as may be
					return nil
				}}
				r := newRail(t, fake.handler(t, handlers.SNSConfig{}), size)
				r.insert(2_000, 1_800, 200)
				r.run(t)
				r.expectOnceInOrder(t, fake)
				for action, n := range fake.calls {
					calls[action] += n
				}
			}
			if total := calls["Publish"] + calls["PublishBatch"]; total > 1_050 || len(calls) > 2 {
				t.Errorf("calls %v, %d in all, want at most 1,050", calls, total)
			}
		})
	}
}

func TestTenLargeEventsAreNeverPackedTooLarge(t *testing.T) {
	t.Parallel()
	fake := new(fakeSNS)
	r := newRail(t, fake.handler(t, handlers.SNSConfig{}), outbox.DefaultBatchSize)
	r.insert(10, 10, 200_000)
	r.run(t)
	r.expectOnceInOrder(t, fake)
	if fake.count("PublishBatch") != 0 || fake.count("Publish") != 10 {
		t.Errorf("calls %v, want ten single ones", fake.calls)
	}
}

func TestAnEmulatorWithoutBatchesGetsEveryEventOnce(t *testing.T) {
	t.Parallel()
	fake := &fakeSNS{refuse: func(action string, _ url.Values) *fakeFault {
		if action == "PublishBatch" {
			return &fakeFault{garbage: true, message: "{\"__type\": \"InvalidAction\"}"}
		}
		return nil
	}}
	r := newRail(t, fake.handler(t, handlers.SNSConfig{}), outbox.DefaultBatchSize)
	r.insert(1_000, 200, 100)
	r.run(t)
	r.expectOnceInOrder(t, fake)
	// Those under way at once all find it out.
	if got := fake.count("PublishBatch"); got < 1 || got > outbox.DefaultConcurrency {
		t.Errorf("%d batches, want those of the beginning only", got)
	}
}

// Some entries fail at first; what follows them in their aggregate waits.
func TestSNSKeepsTheOrderOfAnAggregateAcrossFailures(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	failures := map[string]int{}
	fake := &fakeSNS{fail: func(m fakeMessage) *fakeFault {
		mu.Lock()
		defer mu.Unlock()
		id, position := m.Attributes["event_id"], m.Attributes["position"]
		if failures[id]++; failures[id] <= 2 && strings.HasSuffix(position, "7") {
			return &fakeFault{status: 400, code: "NeverHeardOf"}
		}
		return nil
	}}
	r := newRail(t, fake.handler(t, handlers.SNSConfig{TopicARN: topicARN + ".fifo"}), 100)
	r.insert(600, 30, 100)
	for range 200 {
		if !slices.ContainsFunc(r.Rows(), func(row outboxtest.Row) bool { return row.Status != outboxtest.StatusProcessed }) {
			break
		}
		r.run(t)
		r.Advance(2 * time.Hour)
	}
	r.expectOnceInOrder(t, fake)
	if fake.count("PublishBatch") == 0 {
		t.Error("nothing was sent in batches")
	}
}

func TestAThrottledBatchSnoozesAndChargesNothing(t *testing.T) {
	t.Parallel()
	for name, fake := range map[string]*fakeSNS{
		"as a whole":     {refuse: func(string, url.Values) *fakeFault { return &fakeFault{status: 429, code: "Throttled"} }},
		"entry by entry": {fail: func(fakeMessage) *fakeFault { return &fakeFault{code: "Throttled", sender: true} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRail(t, fake.handler(t, handlers.SNSConfig{}), outbox.DefaultBatchSize)
			r.insert(500, 500, 100)
			result := r.run(t)
			if result.Snoozed == 0 || result.Processed+result.Discarded+result.Retried != 0 {
				t.Errorf("result %+v, want snoozes only", result)
			}
			for _, row := range r.Rows() {
				if row.Attempts != 0 {
					t.Errorf("event %s is charged %d attempts, want none", row.ID, row.Attempts)
				}
			}
			calls := slices.Collect(maps.Values(fake.calls))
			if len(calls) != 1 || calls[0] > 2*outbox.DefaultConcurrency {
				t.Errorf("calls %v, want those under way at once, and none after", fake.calls)
			}
		})
	}
}
