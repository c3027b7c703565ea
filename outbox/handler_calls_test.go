package outbox_test

import (
	"testing"
	"testing/synctest"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/outboxtest"
)

// unsound panics wherever the pass itself calls a handler.
type unsound struct{ batcher }

func (*unsound) BatchLimit() int         { panic("limit") }
func (*unsound) Weight(outbox.Event) int { panic("weight") }

func TestAPanicOfAHandlersLimitOrWeightEndsNoPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := &outboxtest.Memory{}, &unsound{}
		insertMany(store, "t", 4, 4)
		insertMany(store, "other", 4, 4)
		result := runOn(t, store, outbox.Config{Registry: outbox.Registry{
			"t": {Handler: b, Limit: outbox.NewLimit(10)}, "other": {Handler: &batcher{limit: 10}},
		}})
		if result.Processed != 8 || len(b.calls) != 4 {
			t.Errorf("%d processed, %d of them in calls of the unsound handler, want 8 and 4, each alone", result.Processed, len(b.calls))
		}
	})
}

func TestALimitOfBatchesThatIsNoneSendsEachAlone(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{-1 << 63, -1, 0, 1} {
		synctest.Test(t, func(t *testing.T) {
			store, b := &outboxtest.Memory{}, &batcher{limit: limit}
			insertMany(store, "t", 30, 30)
			result := runOn(t, store, outbox.Config{Registry: outbox.Registry{"t": {Handler: b}}})
			if result.Processed != 30 || len(b.calls) != 30 {
				t.Errorf("limit %d: %d processed in %d calls, want 30 in 30", limit, result.Processed, len(b.calls))
			}
		})
	}
}
