package outbox

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// row is one claimed event on its way.
type row struct {
	event    Event
	token    string
	circuit  string // the key of the circuit it belongs to; empty without a route
	queue    *queue // of its type
	lane     *lane
	call     *call         // that it is delivered by, once started
	leaseEnd time.Duration // by the pass's clock
	probes   []string      // the circuits of which it is to show whether the place is back: its own, the destination's or both
	back     bool          // its handler returned, or was abandoned
}

// lane is the rows of one aggregate: they run one after the other.
type lane struct {
	key   Aggregate
	rows  []*row // not started, oldest first
	busy  bool   // a handler runs
	open  int    // rows claimed and not answered yet
	more  bool   // there seems to be more in the store: it had several rows at a time, or others were seen behind them
	ended bool   // some row of it was not delivered: the next one is not free yet
	queue *queue // that it is ready in; nil when it is not
	place int    // in that queue
}

// queue is the lanes whose next row has one type and may start, but for what its destination takes.
type queue struct {
	eventType string
	ready     heapOf[*lane]
	waiting   int  // rows of the type that were not started, ready or not
	held      bool // nothing of it may start now
	listed    bool // it is among the queues to choose from
	place     int  // there
}

// lanes holds the rows that were not started, and knows which may start next.
type lanes struct {
	byAggregate map[Aggregate]*lane
	byType      map[string]*queue
	queues      heapOf[*queue] // not held and not empty
	waiting     int            // rows not started
}

func newLanes() lanes {
	return lanes{
		byAggregate: map[Aggregate]*lane{}, byType: map[string]*queue{},
		queues: heapOf[*queue]{
			less: func(a, b *queue) bool { return byPosition(a.head(), b.head()) < 0 },
			move: func(q *queue, place int) { q.place = place },
		},
	}
}

// queueOf returns the queue of a type.
func (l *lanes) queueOf(eventType string) *queue {
	q := l.byType[eventType]
	if q == nil {
		q = &queue{eventType: eventType, ready: heapOf[*lane]{
			less: func(a, b *lane) bool { return byPosition(a.rows[0], b.rows[0]) < 0 },
			move: func(of *lane, place int) { of.place = place },
		}}
		l.byType[eventType] = q
	}
	return q
}

// head returns the oldest row that may start.
func (q *queue) head() *row { return q.ready.items[0].rows[0] }

// add takes a claimed row. Rows of a lane come oldest first.
func (l *lanes) add(r *row) {
	key := r.event.Aggregate()
	of := l.byAggregate[key]
	if of == nil {
		of = &lane{key: key}
		l.byAggregate[key] = of
	}
	r.lane, r.queue = of, l.queueOf(r.event.Type)
	of.rows = append(of.rows, r)
	of.open++
	of.more = of.more || of.open > 1
	l.count(r, 1)
	l.update(of)
}

func (l *lanes) count(r *row, n int) {
	l.waiting += n
	r.queue.waiting += n
}

// first returns the queue whose head is the oldest row that may start; nil when there is none.
func (l *lanes) first() *queue {
	if l.queues.Len() == 0 {
		return nil
	}
	return l.queues.items[0]
}

// next takes the head of a queue that has one. The caller says what becomes of the lane.
func (l *lanes) next(q *queue) *row {
	of := q.ready.items[0]
	r := of.rows[0]
	of.rows = of.rows[1:]
	l.count(r, -1)
	l.update(of)
	return r
}

// hold says whether anything of a queue may start.
func (l *lanes) hold(q *queue, held bool) {
	q.held = held
	l.list(q)
}

// setBusy says whether a handler of the lane runs.
func (l *lanes) setBusy(of *lane, busy bool) {
	of.busy = busy
	l.update(of)
}

// update puts a lane where it belongs.
func (l *lanes) update(of *lane) {
	var to *queue
	if !of.busy && len(of.rows) > 0 {
		to = of.rows[0].queue
	}
	from := of.queue
	if from == to {
		if to != nil {
			heap.Fix(&to.ready, of.place)
			l.list(to)
		}
		return
	}
	of.queue = to
	if from != nil {
		heap.Remove(&from.ready, of.place)
		l.list(from)
	}
	if to != nil {
		heap.Push(&to.ready, of)
		l.list(to)
	}
}

// list puts a queue where it belongs, after its lanes or its being held changed.
func (l *lanes) list(q *queue) {
	free := !q.held && q.ready.Len() > 0
	switch {
	case free && q.listed:
		heap.Fix(&l.queues, q.place)
	case free:
		q.listed = true
		heap.Push(&l.queues, q)
	case q.listed:
		q.listed = false
		heap.Remove(&l.queues, q.place)
	}
}

// close forgets a row, whose outcome is in the store or was given up, and tells whether it was the last of its lane.
func (l *lanes) close(r *row) (last bool) {
	r.lane.open--
	if r.lane.open > 0 {
		return false
	}
	delete(l.byAggregate, r.lane.key)
	return true
}

// take removes the rows of a lane that were not started.
func (l *lanes) take(of *lane) []*row {
	rows := of.rows
	of.rows = nil
	for _, r := range rows {
		l.count(r, -1)
	}
	l.update(of)
	return rows
}

// takeIf removes the rows that were not started and that pass the test; of each lane also those behind the first that
// does: they come back as rest. Both are ordered by position.
func (l *lanes) takeIf(test func(*row) bool) (rows, rest []*row) {
	for _, of := range l.byAggregate {
		from := slices.IndexFunc(of.rows, test)
		if from < 0 {
			continue
		}
		for _, r := range of.rows[from:] {
			l.count(r, -1)
			if test(r) {
				rows = append(rows, r)
			} else {
				rest = append(rest, r)
			}
		}
		of.rows = of.rows[:from]
		l.update(of)
	}
	slices.SortFunc(rows, byPosition)
	slices.SortFunc(rest, byPosition)
	return rows, rest
}

// takeAll removes all rows that were not started, oldest first.
func (l *lanes) takeAll() []*row {
	rows, _ := l.takeIf(func(*row) bool { return true })
	return rows
}

func byPosition(a, b *row) int { return cmp.Compare(a.event.Position, b.event.Position) }

// heapOf is a heap whose items know their places.
type heapOf[T any] struct {
	items []T
	less  func(a, b T) bool
	move  func(item T, place int)
}

func (h *heapOf[T]) Len() int           { return len(h.items) }
func (h *heapOf[T]) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }
func (h *heapOf[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.move(h.items[i], i)
	h.move(h.items[j], j)
}

// Push is container/heap's.
func (h *heapOf[T]) Push(item any) {
	h.move(item.(T), len(h.items)) //nolint:forcetypeassert // only T is pushed
	h.items = append(h.items, item.(T))
}

// Pop is container/heap's.
func (h *heapOf[T]) Pop() any {
	last := h.items[len(h.items)-1]
	var none T
	h.items[len(h.items)-1] = none
	h.items = h.items[:len(h.items)-1]
	return last
}
