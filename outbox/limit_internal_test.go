package outbox

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestALimitLetsThroughItsRateWhateverTheClockDoes(t *testing.T) {
	t.Parallel()
	limit, now := NewLimit(20), time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	took := 0
	for range 10_000 {
		if limit.wait(now, 1) == 0 {
			limit.take(1)
			took++
		}
		now = now.Add(time.Millisecond)
	}
	if took < 185 || took > 200 {
		t.Errorf("%d events in 10 s, want 200 at 20 a second, less the margin", took)
	}
	limit.wait(now.Add(time.Hour), 1) // a long pause fills up a moment's worth only
	took = 0
	for limit.wait(now.Add(time.Hour), 1) == 0 {
		limit.take(1)
		took++
	}
	if took != 1 {
		t.Errorf("%d events at once after a pause, want 1", took)
	}
	if wait := limit.wait(now, 1); wait <= 0 || wait > 50*time.Millisecond {
		t.Errorf("a clock set back makes the next event wait %v, want 50 ms at most", wait)
	}
}

func TestALimitThatIsNoneLetsEverythingThrough(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		limit := NewLimit(rate)
		for range 1000 {
			if wait := limit.wait(time.Now(), 100); wait != 0 {
				t.Fatalf("at %v events wait %v, want no limit", rate, wait)
			}
			limit.take(100)
		}
		if !math.IsInf(limit.PerSecond(), 1) || !math.IsInf(limit.batch(), 1) {
			t.Errorf("at %v the rate is %v, want none", rate, limit.PerSecond())
		}
	}
}

func TestALimitBeyondAllTimeIsAWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rate, weight float64 }{
		"tiny rate": {1e-300, 1}, "huge weight": {10, math.MaxInt64}, "both": {math.SmallestNonzeroFloat64, math.MaxInt64},
	} {
		limit, now := NewLimit(c.rate), time.Now()
		if wait := limit.wait(now, c.weight); wait != 0 {
			t.Errorf("%s: the first event waits %v, want none", name, wait)
		}
		limit.take(c.weight)
		if wait := limit.wait(now.Add(time.Minute), 1); wait < time.Hour {
			t.Errorf("%s: the next event waits %v, want hours", name, wait)
		}
	}
}

func TestALimitMayChange(t *testing.T) {
	t.Parallel()
	limit, now := NewLimit(1), time.Now()
	limit.wait(now, 1)
	limit.take(1)
	limit.Set(1000)
	if wait := limit.wait(now, 1); wait > time.Millisecond {
		t.Errorf("after the rate grew to 1,000 the next event waits %v, want 1 ms", wait)
	}
}

// start is what a limit let through.
type start struct {
	at     time.Duration
	weight float64
}

// run starts weights one after another, as soon as the limit lets them.
func run(limit *Limit, weights []float64) (starts []start) {
	begin := time.Now()
	now := begin
	for _, weight := range weights {
		for wait := limit.wait(now, weight); wait > 0; wait = limit.wait(now, weight) {
			now = now.Add(wait)
		}
		limit.take(weight)
		starts = append(starts, start{now.Sub(begin), weight})
	}
	return starts
}

// heaviest is the largest weight in any second and 50 ms, and what it is made of.
func heaviest(starts []start) (weight float64, count int) {
	for i, last := range starts {
		sum, n := 0.0, 0
		for j := i; j >= 0 && last.at-starts[j].at < time.Second+50*time.Millisecond; j-- {
			sum, n = sum+starts[j].weight, n+1
		}
		if sum > weight {
			weight, count = sum, n
		}
	}
	return weight, count
}

func TestNoSecondHasMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.5, 1, 1.5, 2, 14, 50, 333.3, 5000} {
		for _, most := range []int{1, 3, 14} {
			t.Run(fmt.Sprintf("%v of weight up to %d", rate, most), func(t *testing.T) {
				t.Parallel()
				dice := rand.New(rand.NewPCG(1, uint64(most)))
				weights, total := make([]float64, 2000), 0.0
				for i := range weights {
					weights[i] = float64(1 + dice.IntN(most))
					total += weights[i]
				}
				limit := NewLimit(rate)
				starts := run(limit, weights)
				if weight, n := heaviest(starts); weight > limit.most() && n > 1 {
					t.Errorf("%v of %d in a second, want %v at most", weight, n, limit.most())
				}
				ideal := total / rate
				if took := starts[len(starts)-1].at.Seconds(); most == 1 && took > 1.08*ideal+1 {
					t.Errorf("took %.1f s, want hardly more than %.1f s", took, ideal)
				}
			})
		}
	}
}

func TestAnEventHeavierThanTheLimitGoesAlone(t *testing.T) {
	t.Parallel()
	starts := run(NewLimit(14), []float64{1, 50, 1, 1})
	if gap := starts[1].at - starts[0].at; gap < time.Second {
		t.Errorf("it started %v after the one before, want a second", gap)
	}
	if gap := starts[2].at - starts[1].at; gap < 3500*time.Millisecond || gap > 3700*time.Millisecond {
		t.Errorf("the next one started after %v, want what 50 events take at 14 a second", gap)
	}
}

func TestALimitThatIsLoweredCountsWhatStartedBefore(t *testing.T) {
	t.Parallel()
	limit := NewLimit(1000)
	run(limit, ones(10))
	limit.Set(10)
	starts := run(limit, []float64{1})
	if starts[0].at < 900*time.Millisecond {
		t.Errorf("one more started after %v, want what is left of the second", starts[0].at)
	}
	limit.Set(1000)
	if room := limit.batch(); room != 999 {
		t.Errorf("a batch has room for %v, want 999", room)
	}
}

func ones(n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = 1
	}
	return list
}
