package outboxtest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// A pass deletes what was delivered long ago.
func ExampleMemory_Prune() {
	store := &outboxtest.Memory{}
	store.Insert(outboxtest.Row{Type: "order.placed", IdempotencyKey: "order-7"})
	deliver := outbox.HandlerFunc(func(context.Context, outbox.Event) (outbox.Receipt, error) { return outbox.Receipt{}, nil })
	worker, err := outbox.NewWorker(outbox.Config{
		Store: store, Pruner: store, Registry: outbox.Registry{"order.placed": {Handler: deliver, Timeout: time.Second}},
		Retention: outbox.Retention{Processed: 7 * 24 * time.Hour, Discarded: outbox.KeepForever},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		result, err := worker.Run(context.Background(), outbox.Pass{SoftBudget: time.Minute})
		fmt.Println(result.Processed, "processed,", result.Pruned, "pruned,", err)
		store.Advance(8 * 24 * time.Hour)
	}
	// Output:
	// 1 processed, 0 pruned, <nil>
	// 0 processed, 1 pruned, <nil>
}
