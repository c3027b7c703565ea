//go:build soak

package connections_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// entry is one kind of break in the ledger.
type entry struct{ rounds, answered, failed, repeated int }

// One break after the other, chosen by dice, on one server and one sandbox that lives through all of them. SOAK_ROUNDS
// (default 40) says how many, SOAK_SEED repeats a run. The ledger at the end tells of each kind how the pass in which it
// happened was answered, and how many deliveries came a second time.
func TestSoakBreaks(t *testing.T) {
	t.Parallel()
	rounds, seed := number(t, "SOAK_ROUNDS", 40), number(t, "SOAK_SEED", rand.IntN(1_000_000))
	dice := rand.New(rand.NewPCG(uint64(seed), 0))
	s := newScene(t, private(t))
	breaks := breaks(s)
	names := slices.Sorted(maps.Keys(breaks))
	ledger := map[string]*entry{}
	total := events
	s.Dispatch(s.f) // so that there are connections to break
	for round := range rounds {
		name := names[dice.IntN(len(names))]
		e := ledger[name]
		if e == nil {
			e = &entry{}
			ledger[name] = e
		}
		at, before := total+1+dice.IntN(events/2), s.Hook.Repeated()
		s.Insert(events, 1+dice.IntN(events))
		total += events
		mend := breaks[name](at)
		r := s.Invoke(s.f)
		mend()
		e.rounds++
		if r.OK {
			e.answered++
		} else {
			e.failed++
		}
		s.later()
		s.Dispatch(s.f)
		s.Arrived(total)
		e.repeated += s.Hook.Repeated() - before
		if t.Failed() {
			t.Fatalf("round %d (%s): see above; the reply was %s", round, name, r.Raw)
		}
	}
	t.Log(report(ledger, seed, total))
}

// breaks are prepared before the pass, happen when the nth event arrives, and return what mends them afterwards.
func breaks(s *scene) map[string]func(at int) (mend func()) {
	nothing := func() {}
	inPass := func(breakNow, mend func()) func(int) func() {
		return func(at int) func() {
			s.Hook.At(at, breakNow)
			return mend
		}
	}
	frozen := func(lose func()) func(int) func() {
		return func(int) func() {
			if err := s.f.Freeze(); err != nil {
				s.Fatal(err)
			}
			lose()
			if err := s.f.Thaw(); err != nil {
				s.Fatal(err)
			}
			return nothing
		}
	}
	readOnly := func(setting string) { s.Exec("alter role postgres " + setting) }
	return map[string]func(int) func(){
		"cut":               inPass(s.way.cut, nothing),
		"sessions ended":    inPass(s.terminate, nothing),
		"stop and start":    inPass(func() { s.terminate(); s.way.Stop() }, s.way.accept),
		"black hole":        inPass(s.way.silence, s.way.speak),
		"ways lost":         inPass(s.way.strand, nothing),
		"crash":             inPass(func() { crash(s) }, s.await),
		"read-only":         inPass(func() { readOnly("set default_transaction_read_only = on"); s.terminate() }, func() { mendReadOnly(s) }),
		"frozen, cut":       frozen(s.way.cut),
		"frozen, ways lost": frozen(s.way.strand),
		"frozen, ended":     frozen(s.terminate),
	}
}

func crash(s *scene) {
	var pid int
	if err := s.Pool.QueryRow(s.Context(), "select pid from pg_stat_activity where application_name = 'test_function' limit 1").Scan(&pid); err != nil {
		s.Errorf("find a backend: %v", err)
	} else if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.Errorf("kill the backend: %v", err)
	}
}

// mendReadOnly takes a session that may itself be read-only.
func mendReadOnly(s *scene) {
	if _, err := s.Pool.Exec(s.Context(), "begin read write; alter role postgres reset default_transaction_read_only; commit"); err != nil {
		s.Errorf("end read-only: %v", err)
	}
	s.Pool.Reset()
}

func report(ledger map[string]*entry, seed, total int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "the ledger, seed %d\n%-20s %7s %9s %7s %9s\n", seed, "what broke", "rounds", "answered", "failed", "repeated")
	var sum entry
	for _, name := range slices.Sorted(maps.Keys(ledger)) {
		e := ledger[name]
		fmt.Fprintf(&text, "%-20s %7d %9d %7d %9d\n", name, e.rounds, e.answered, e.failed, e.repeated)
		sum.rounds, sum.answered, sum.failed, sum.repeated = sum.rounds+e.rounds, sum.answered+e.answered, sum.failed+e.failed, sum.repeated+e.repeated
	}
	fmt.Fprintf(&text, "%-20s %7d %9d %7d %9d\n", "all", sum.rounds, sum.answered, sum.failed, sum.repeated)
	fmt.Fprintf(&text, "%d events were inserted and %d delivered; 0 were lost, 0 came out of order", total, total)
	return text.String()
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
