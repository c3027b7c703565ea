package outbox

import (
	"math"
	"testing"
	"time"
)

func TestALimitLetsThroughItsRateWhateverTheClockDoes(t *testing.T) {
	t.Parallel()
	limit, now := NewLimit(20), time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	took := 0
	for range 10_000 {
		if limit.wait(now) == 0 {
			limit.take(1)
			took++
		}
		now = now.Add(time.Millisecond)
	}
	if took < 199 || took > 202 {
		t.Errorf("%d events in 10 s, want 200 at 20 a second", took)
	}
	limit.wait(now.Add(time.Hour)) // a long pause fills up a moment's worth only
	took = 0
	for limit.wait(now.Add(time.Hour)) == 0 {
		limit.take(1)
		took++
	}
	if took != 1 {
		t.Errorf("%d events at once after a pause, want 1", took)
	}
	if wait := limit.wait(now); wait <= 0 || wait > 50*time.Millisecond {
		t.Errorf("a clock set back makes the next event wait %v, want 50 ms at most", wait)
	}
}

func TestALimitThatIsNoneLetsEverythingThrough(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		limit := NewLimit(rate)
		for range 1000 {
			if wait := limit.wait(time.Now()); wait != 0 {
				t.Fatalf("at %v events wait %v, want no limit", rate, wait)
			}
			limit.take(100)
		}
		if !math.IsInf(limit.PerSecond(), 1) || !math.IsInf(limit.batch(), 1) {
			t.Errorf("at %v the rate is %v, want none", rate, limit.PerSecond())
		}
	}
}

func TestALimitMayChange(t *testing.T) {
	t.Parallel()
	limit, now := NewLimit(1), time.Now()
	limit.wait(now)
	limit.take(1)
	limit.Set(1000)
	if wait := limit.wait(now); wait > time.Millisecond {
		t.Errorf("after the rate grew to 1,000 the next event waits %v, want 1 ms", wait)
	}
}
