package outbox

import (
	"math"
	"sync"
	"time"
)

const (
	// limitBurst is the stretch of time whose events may start at once after a pause. It is short, since a destination
	// that counts by the second would count them beside those of the second that follows.
	limitBurst = 50 * time.Millisecond

	// What started is counted by slots of time. Together they are a second and a margin of 50 to 75 ms, since requests
	// arrive less evenly than they start.
	limitSlot  = 25 * time.Millisecond
	limitSlots = 43

	// longestWait is what a wait is told as at most, in seconds: more may be none that a Duration can hold.
	longestWait = 24 * 60 * 60
)

// Limit is how many events a destination takes in a second, over all passes of the process. They start evenly spread, and in
// no second more than that, wherever it begins; only an event that alone weighs more than a second's worth starts
// nevertheless, alone. A batch takes up to a second's worth at once, and the next one waits as long. Events wait for it in
// the pass, where they cost no attempt, no slot and none of their handler's time. It is safe for concurrent use. Several
// processes have a limit each.
type Limit struct {
	turn   chan struct{} // taken from the question whether something may start to its start: several passes may share a limit
	mu     sync.Mutex
	rate   float64   // events per second
	tokens float64   // negative after an event that weighed more than there was
	at     time.Time // when tokens was true, and what the last call took for now
	began  time.Time // when the first slot began

	slots [limitSlots]struct {
		number int64
		weight float64 // of what started in it
	}
}

// NewLimit returns a limit of that many events per second. What is no positive number means no limit.
func NewLimit(perSecond float64) *Limit {
	l := &Limit{turn: make(chan struct{}, 1)}
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

// most is what may start in a second. Of 1.5 events per second two fall into some seconds.
func (l *Limit) most() float64 { return math.Ceil(l.rate) }

// wait returns how long nothing of that weight may start; zero when it may.
func (l *Limit) wait(now time.Time, weight float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() {
		l.at, l.began = now, now
	}
	if passed := now.Sub(l.at); passed > 0 {
		l.tokens = min(l.burst(), l.tokens+passed.Seconds()*l.rate)
		l.at = now
	}
	if math.IsInf(l.rate, 1) {
		return 0
	}
	wait := l.full(weight)
	if l.tokens < 1 {
		seconds := min((1-l.tokens)/l.rate, longestWait)
		wait = max(wait, time.Duration(seconds*float64(time.Second)), time.Microsecond)
	}
	return wait
}

// full returns how long the last second is too full for that weight.
func (l *Limit) full(weight float64) time.Duration {
	current, taken := l.slot(), l.taken()
	for number := current - limitSlots + 1; taken > 0 && taken+weight > l.most(); number++ {
		if slot := l.slots[number%limitSlots]; slot.number == number {
			taken -= slot.weight
		}
		if number == current || taken <= 0 || taken+weight <= l.most() {
			return l.began.Add(time.Duration(number) * limitSlot).Sub(l.at) // when the slot limitSlots later begins
		}
	}
	return 0
}

// slot is the number of the slot that it is now. The first has a number such that none before it is negative.
func (l *Limit) slot() int64 { return limitSlots + int64(l.at.Sub(l.began)/limitSlot) }

// taken is the weight of what started in the last second.
func (l *Limit) taken() (weight float64) {
	oldest := l.slot() - limitSlots + 1
	for _, slot := range l.slots {
		if slot.number >= oldest {
			weight += slot.weight
		}
	}
	return weight
}

// take starts an event or a batch of that weight.
func (l *Limit) take(weight float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !math.IsInf(l.rate, 1) {
		l.tokens -= weight
	}
	number := l.slot()
	slot := &l.slots[number%limitSlots]
	if slot.number != number {
		slot.number, slot.weight = number, 0
	}
	slot.weight += weight
}

// batch is the largest weight of a batch: what is left of a second's worth.
func (l *Limit) batch() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, l.most()-l.taken())
}
