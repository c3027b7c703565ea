package outboxtest

import (
	"slices"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// Harness is one empty store, and the hands that a case needs on its data. No field may be nil. The functions are
// called by one goroutine at a time and fail the test themselves, through the *testing.T that the harness was opened
// with; each has taken effect when it returns. Events that the suite inserts have UUIDs for ids and aggregate ids.
type Harness struct {
	// Store is what is tested. It holds no rows, and no type is declared dormant.
	Store outbox.Store
	// Insert adds one row, as a producer would, after all rows that are there, and returns its id. See
	// [Row.WithDefaults] for what fields left zero mean.
	Insert func(row Row) (id string)
	// Row reads one row.
	Row func(id string) Row
	// Update writes the status, attempts, available_at, processed_at, error and metadata of the row with row.ID,
	// as an operator's UPDATE would.
	Update func(row Row)
	// DeclareDormant declares that nobody consumes a type, on purpose.
	DeclareDormant func(eventType string)
	// AgeCircuits makes circuits older: what they wait for comes that much sooner. It may age everything else too.
	AgeCircuits func(d time.Duration)
	// Exists tells whether there is a row with that id; a store that never deletes any says true.
	Exists func(id string) bool
	// Now is the time by the clock that decides what is due: the database's, not this process's.
	Now func() time.Time
}

// testCase is one clause of a store's contract.
type testCase struct {
	name string
	// explanation says what the clause is for; it is logged when the case fails.
	explanation string
	check       func(s *suite)
}

// TestStore runs the suite that every [outbox.Store] passes, each case as a subtest with a harness of its own. A store
// that is also an [outbox.Stats], an [outbox.Circuits], an [outbox.Pruner] or an [outbox.Discards] is tested as one. open may call t.Parallel, and
// cleans up through t.Cleanup. Cases judge times by [Harness.Now] only, and need a store that answers within a lease: five minutes.
func TestStore(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range testCases() {
		t.Run(c.name, func(t *testing.T) {
			runCase(t, c, open(t))
		})
	}
}

// testCases returns the suite in the order of the contract.
func testCases() []testCase {
	return slices.Concat(claimCases(), clampCases(), orderCases(), laneCases(), heldCases(), spentCases(), crashCases(),
		settleCases(), delayCases(), fenceCases(), hostileCases(), concurrencyCases(),
		circuitCases(), pruneCases(), discardCases())
}

func runCase(t testing.TB, c testCase, h Harness) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the clause: %s", c.explanation)
		}
	})
	c.check(&suite{TB: t, Harness: h, ids: map[string]string{}})
}
