package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// weather is three destinations, of which one at a time may be out.
type weather struct {
	mu       sync.Mutex
	out      string
	failure  func(ctx context.Context) error
	delivery map[string][]time.Time // of each destination
	tries    map[string]int
}

func (w *weather) handler(destination string) outbox.Handler {
	return outbox.HandlerFunc(func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
		w.mu.Lock()
		w.tries[destination]++
		w.mu.Unlock()
		if w.out == destination {
			return nil, w.failure(ctx)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.delivery[destination] = append(w.delivery[destination], time.Now())
		return nil, nil
	})
}

func destinations() []string { return []string{"crm", "erp", "mail"} }

// outages are ways to be out.
func outages() map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"503":             func(context.Context) error { return outbox.Snooze(errors.New("503"), 0) },
		"503_retry_after": func(context.Context) error { return outbox.Snooze(errors.New("503"), 2*time.Minute) },
		"500":             func(context.Context) error { return errors.New("500") },
		"401":             func(context.Context) error { return errors.New("401") },
		"refused":         func(context.Context) error { return errors.New("connection refused") },
		"timeout": func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
	}
}

// TestAnOutageOfTwoHoursDiscardsNothing plays a pass a minute, with circuits that the store remembers.
func TestAnOutageOfTwoHoursDiscardsNothing(t *testing.T) {
	t.Parallel()
	for kind, failure := range outages() {
		for _, out := range destinations() {
			t.Run(kind+"_"+out, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { playOutage(t, out, failure) })
			})
		}
	}
}

func playOutage(t *testing.T, out string, failure func(ctx context.Context) error) {
	const before, during, after = 3, 120, 16 // passes, a minute apart
	w := &weather{failure: failure, delivery: map[string][]time.Time{}, tries: map[string]int{}}
	store := &outboxtest.Memory{}
	registry := outbox.Registry{}
	for _, destination := range destinations() {
		registry[destination] = outbox.Route{Handler: w.handler(destination), Timeout: 5 * time.Second, Destination: destination}
	}
	worker, err := outbox.NewWorker(outbox.Config{
		Store: store, Circuits: store, Registry: registry, Snooze: time.Minute, Concurrency: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	inserted := 0
	tick := func() {
		for _, destination := range destinations() { // of aggregates of their own
			for range 2 {
				inserted++
				store.Insert(outboxtest.Row{Type: destination, AggregateID: fmt.Sprintf("%s-%d", destination, inserted)})
			}
		}
		began := time.Now()
		if _, err := worker.Run(t.Context(), outbox.Pass{SoftBudget: 50 * time.Second}); err != nil {
			t.Fatalf("Run: %v", err)
		}
		time.Sleep(time.Minute - time.Since(began))
	}
	for range before {
		tick()
	}
	w.out, w.tries = out, map[string]int{}
	for range during {
		tick()
		for _, destination := range destinations() {
			if got := len(w.delivery[destination]); destination != out && got != inserted/len(destinations()) {
				t.Fatalf("%s has %d deliveries while %s is out, want all %d", destination, got, out, inserted/len(destinations()))
			}
		}
	}
	// 5 events open it, those in flight beside them finish, and a probe comes every 5 min at most.
	if tries := w.tries[out]; tries < 20 || tries > 50 {
		t.Errorf("%s was tried %d times in two hours, want about 30", out, tries)
	}
	w.out = ""
	waiting := inserted/len(destinations()) - len(w.delivery[out])
	already := len(w.delivery[out])
	for range after {
		tick()
	}
	// All but the last probes, which are snoozed, arrive within a minute of the first.
	within := 0
	for _, at := range w.delivery[out][already:] {
		if at.Sub(w.delivery[out][already]) < time.Minute {
			within++
		}
	}
	if within < waiting-5 {
		t.Errorf("%d of %d waiting events arrived within a minute of the first, want nearly all", within, waiting)
	}
	if got := len(w.delivery[out]); got != inserted/len(destinations()) {
		t.Errorf("%s has %d deliveries in the end, want all %d", out, got, inserted/len(destinations()))
	}
	spent := 0
	for _, row := range store.Rows() {
		if row.Status != outboxtest.StatusProcessed {
			t.Errorf("a row of %s is %s: %s", row.Type, row.Status, row.Error)
		}
		if row.Attempts > 1 {
			spent++
		}
	}
	if spent > 8 {
		t.Errorf("%d rows have more than one attempt, want only those that opened the circuit", spent)
	}
}

// TestProbesOfSeveralDestinationsOverlap: the first is back while the second is still being claimed.
func TestProbesOfSeveralDestinationsOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &outboxtest.Memory{}
		w := &weather{delivery: map[string][]time.Time{}, tries: map[string]int{}}
		registry := outbox.Registry{}
		for _, destination := range destinations() {
			registry[destination] = outbox.Route{Handler: w.handler(destination), Timeout: 5 * time.Second, Destination: destination}
			for range 5 {
				store.Insert(outboxtest.Row{Type: destination})
			}
			if _, err := store.Report(t.Context(), outbox.CircuitReport{Destination: destination, Failure: true}); err != nil {
				t.Fatal(err)
			}
		}
		worker, err := outbox.NewWorker(outbox.Config{Store: slowStore{store}, Circuits: store, Registry: registry, Concurrency: 4})
		if err != nil {
			t.Fatal(err)
		}
		store.Advance(time.Minute)
		result, err := worker.Run(t.Context(), outbox.Pass{})
		if err != nil || result.Processed != 15 {
			t.Errorf("processed %d, error %v, want all 15", result.Processed, err)
		}
		if circuits, err := store.Load(t.Context(), destinations(), time.Minute); err != nil || len(circuits) > 0 {
			t.Errorf("circuits are %+v, error %v, want all closed", circuits, err)
		}
	})
}

// slowStore takes its time to claim.
type slowStore struct{ *outboxtest.Memory }

func (s slowStore) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	claim, err := s.Memory.Claim(ctx, req)
	time.Sleep(time.Second)
	return claim, err
}
