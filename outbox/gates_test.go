package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// TestAPassThatIsOverWaitsForNoLimit plays passes in which nothing more may start while rows wait for a limit.
func TestAPassThatIsOverWaitsForNoLimit(t *testing.T) {
	t.Parallel()
	snooze := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) {
		time.Sleep(time.Second)
		return nil, outbox.Snooze(errors.New("503"), 0)
	})
	deliver := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) { return nil, nil })
	for name, c := range map[string]struct {
		handler outbox.Handler
		cancel  bool
		others  bool // another destination is fine, so that the pass is not over
	}{
		"cancelled":         {deliver, true, false},
		"all out":           {snooze, false, false},
		"nothing else left": {snooze, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &outboxtest.Memory{}
				insertMany(store, "t", 4, 4)
				registry := outbox.Registry{"t": {Handler: c.handler, Limit: outbox.NewLimit(0.02)}}
				if c.others {
					registry["other"] = outbox.Route{Handler: deliver}
				}
				worker, err := outbox.NewWorker(outbox.Config{Store: store, Circuits: store, Registry: registry})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				began := time.Now()
				if _, err := worker.Run(ctx, outbox.Pass{SoftBudget: 10 * time.Minute}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the pass took %v, want what came to an end after a second: the next row may start after 50 s", took)
				}
			})
		})
	}
}
