package handlers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// outageRig is a rail with two webhooks, the store's clock, and passes every minute of it.
type outageRig struct {
	*testing.T
	store  outboxtest.Memory
	worker *outbox.Worker
	minute atomic.Int64
	status atomic.Int64 // what crm answers

	mu  sync.Mutex
	crm []int64 // the minutes in which crm got a request
	erp map[string]int
}

func newOutageRig(t *testing.T) *outageRig {
	t.Helper()
	rig := &outageRig{T: t, erp: map[string]int{}}
	serve := func(answer http.HandlerFunc) outbox.Handler {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		return newHTTP(t, handlers.HTTPConfig{URL: server.URL})
	}
	crm := serve(func(w http.ResponseWriter, _ *http.Request) {
		rig.mu.Lock()
		defer rig.mu.Unlock()
		rig.crm = append(rig.crm, rig.minute.Load())
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(int(rig.status.Load()))
	})
	erp := serve(func(_ http.ResponseWriter, r *http.Request) {
		rig.mu.Lock()
		defer rig.mu.Unlock()
		rig.erp[r.Header.Get("webhook-id")]++
	})
	var err error
	rig.worker, err = outbox.NewWorker(outbox.Config{Store: &rig.store, Circuits: &rig.store, Registry: outbox.Registry{
		"order.placed": {Handler: crm, Destination: "crm"}, "order.paid": {Handler: crm, Destination: "crm"},
		"invoice.sent": {Handler: erp, Destination: "erp"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return rig
}

// pass enqueues events, runs a pass and moves the clock on by a minute. Whatever goes to erp has arrived after it, once.
func (r *outageRig) pass(toCRM, toERP int) {
	r.Helper()
	var rows []outboxtest.Row
	for i := range toCRM {
		rows = append(rows, outboxtest.Row{Type: []string{"order.placed", "order.paid"}[i%2]})
	}
	r.store.Insert(rows...)
	sent := r.store.Insert(slices.Repeat([]outboxtest.Row{{Type: "invoice.sent"}}, toERP)...)
	if _, err := r.worker.Run(r.Context(), outbox.Pass{SoftBudget: time.Minute}); err != nil {
		r.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range sent {
		if row := r.store.Row(id); r.erp[id] != 1 || row.Status != outboxtest.StatusProcessed || row.Attempts != 1 {
			r.Errorf("minute %d: an event of the other destination arrived %d times, is %v after %d attempts, want once, processed after 1",
				r.minute.Load(), r.erp[id], row.Status, row.Attempts)
		}
	}
	r.store.Advance(time.Minute)
	r.minute.Add(1)
}

// The webhook names two minutes; the circuit's own times are 30 s, doubled up to 5 min. So a probe comes after 2, 2, 2, 4
// and then every 5 minutes.
func TestAWebhookThatIsOutGetsOneRequestForEachProbe(t *testing.T) {
	t.Parallel()
	for _, atStart := range []int{1, 40} {
		t.Run(fmt.Sprintf("%d events at its start", atStart), func(t *testing.T) {
			t.Parallel()
			rig := newOutageRig(t)
			rig.status.Store(http.StatusServiceUnavailable)
			rig.pass(atStart, 2)
			found := len(rig.crm)
			if found < 1 || found > min(atStart, outbox.DefaultConcurrency) {
				t.Errorf("%d requests found the outage, want at least 1 and at most those under way at once", found)
			}
			for range 59 {
				rig.pass(5, 2)
			}
			probes := slices.Concat(rig.crm[:1], rig.crm[found:])
			for i := 1; i < len(probes); i++ {
				if gap := probes[i] - probes[i-1]; gap < 2 || i > 4 && gap < 5 {
					t.Errorf("requests in the minutes %v: %d is %d after the one before, want 2 at least, and 5 from the fifth on", probes, probes[i], gap)
				}
			}
			if n := len(probes); n < 5 || n > 14 {
				t.Errorf("%d probes in an hour, want 5 to 14: minutes %v", n, probes)
			}
			rig.heals(atStart + 59*5)
		})
	}
}

// heals lets crm accept, and expects every event of the outage to arrive at the cost of one attempt.
func (r *outageRig) heals(events int) {
	r.Helper()
	r.status.Store(http.StatusNoContent)
	before := len(r.crm)
	for range 15 {
		r.pass(0, 2)
	}
	if got := len(r.crm) - before; got != events {
		r.Errorf("%d requests after the outage, want %d", got, events)
	}
	for _, row := range r.store.Rows() {
		if row.Status != outboxtest.StatusProcessed || row.Attempts != 1 {
			r.Errorf("an event of %s is %v after %d attempts, want it processed after 1", row.Type, row.Status, row.Attempts)
		}
	}
}

// A 410 ends one event and holds the others, however long, until an operator says otherwise.
func TestAWebhookThatIsGoneIsHeld(t *testing.T) {
	t.Parallel()
	rig := newOutageRig(t)
	rig.status.Store(http.StatusGone)
	rig.pass(1, 2)
	for range 200 {
		rig.pass(1, 1)
	}
	if got := len(rig.crm); got != 1 {
		t.Errorf("%d requests, want the one that was answered 410", got)
	}
	statuses := map[string]int{}
	for _, row := range rig.store.Rows() {
		if row.Type != "invoice.sent" {
			statuses[fmt.Sprint(row.Status, row.Error)]++
			if row.Status == outboxtest.StatusDiscarded && row.Error != "http_410: gone" || row.Status != outboxtest.StatusDiscarded && row.Attempts != 0 {
				t.Errorf("an event is %v after %d attempts with %q", row.Status, row.Attempts, row.Error)
			}
		}
	}
	if got := statuses[fmt.Sprint(outboxtest.StatusDiscarded, "http_410: gone")]; got != 1 {
		t.Errorf("%v, want 1 discarded and the others waiting", statuses)
	}
}
