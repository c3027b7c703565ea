package outbox

import (
	"context"
	"errors"
	"math"
	"time"
)

// budget measures a pass against its soft budget, by the injected clock.
type budget struct {
	clock func() time.Time
	start time.Time
	soft  time.Duration
}

const noLimit = time.Duration(math.MaxInt64)

// statementLimit bounds every call of the store, so that a silent connection can't hold a pass for ever.
const statementLimit = 30 * time.Second

// errStoreLate is the cause of the end of such a call's context.
var errStoreLate = errors.New("the store did not answer in time")

// lastChance is what a call gets when the reserve is spent.
const lastChance = 250 * time.Millisecond

// newBudget starts measuring. A zero soft budget is derived from ctx's deadline, which the platform enforces by the
// real clock: the time left, less what the end of a pass may need.
func newBudget(ctx context.Context, clock func() time.Time, soft time.Duration) budget {
	if soft == 0 {
		soft = noLimit
		if deadline, ok := ctx.Deadline(); ok {
			soft = max(time.Until(deadline)-StatsDeadline-MarkMargin, 0)
		}
	}
	return budget{clock: clock, start: clock(), soft: soft}
}

func (b budget) elapsed() time.Duration { return b.clock().Sub(b.start) }

// left is the time in which new work may start; never negative.
func (b budget) left() time.Duration { return max(b.soft-b.elapsed(), 0) }

// fits tells whether a handler with this timeout, started now, is done and acknowledged by end.
func (b budget) fits(timeout, end time.Duration) bool {
	return b.elapsed()+timeout <= end-MarkMargin
}

// statement is how long a call of the store may take now: until the budget and the reserve for acknowledgements
// end, however many calls share that reserve. Past it a call gets a last short chance.
func (b budget) statement() time.Duration {
	left := b.soft - b.elapsed()
	if left > statementLimit-MarkMargin {
		return statementLimit
	}
	return max(left+MarkMargin, lastChance)
}
