package outbox

import (
	"math"
	"sync"
	"time"
)

// limitBurst is the stretch of time whose events may start at once after a pause. It is short, since a destination that
// counts by the second would count them beside those of the second that follows.
const limitBurst = 50 * time.Millisecond

// Limit is how many events a destination takes in a second, over all passes of the process, evenly spread; a batch takes up
// to a second's worth at once, and the next one waits as long. Events wait for it in the pass, where they cost no attempt, no slot and none of their
// handler's time. It is safe for concurrent use. Several processes have a limit each.
type Limit struct {
	mu     sync.Mutex
	rate   float64   // events per second
	tokens float64   // negative after an event that weighed more than there was
	at     time.Time // when tokens was true
}

// NewLimit returns a limit of that many events per second. What is no positive number means no limit.
func NewLimit(perSecond float64) *Limit {
	l := new(Limit)
	l.Set(perSecond)
	l.tokens = l.burst()
	return l
}

// Set changes the rate, as a handler does that learns it from its destination.
func (l *Limit) Set(perSecond float64) {
	if !(perSecond > 0) {
		perSecond = math.Inf(1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate = perSecond
	l.tokens = min(l.tokens, l.burst())
}

// PerSecond returns the rate, infinity without a limit.
func (l *Limit) PerSecond() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rate
}

// burst is at least one, or nothing would ever start.
func (l *Limit) burst() float64 { return max(1, l.rate*limitBurst.Seconds()) }

// wait returns how long nothing may start; zero when something may.
func (l *Limit) wait(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if passed := now.Sub(l.at); passed > 0 || l.at.IsZero() {
		if !l.at.IsZero() {
			l.tokens = min(l.burst(), l.tokens+passed.Seconds()*l.rate)
		}
		l.at = now
	}
	if l.tokens >= 1 || math.IsInf(l.rate, 1) {
		return 0
	}
	return max(time.Duration((1-l.tokens)/l.rate*float64(time.Second)), time.Microsecond)
}

// take starts an event or a batch of that weight, which may be more than there is: the next one waits for the rest.
func (l *Limit) take(weight float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !math.IsInf(l.rate, 1) {
		l.tokens -= weight
	}
}

// batch is the largest weight of a batch: a second's worth.
func (l *Limit) batch() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, l.rate)
}
