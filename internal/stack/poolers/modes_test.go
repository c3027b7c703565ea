// Package poolers shows that the store and the functions get along without a session of their own: in every way of
// sending statements, and, under the build tag poolers, through real PgBouncers in transaction mode.
package poolers_test

import "testing"

// Without a pooler every mode will do, those that poolers make unsafe too.
func TestStoreHoldsInEveryMode(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testStore(t, mode, direct)
		})
	}
}
