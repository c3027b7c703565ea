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
	lane     *lane
	leaseEnd time.Duration // by the pass's clock
	probe    bool          // it is to show whether its destination is back
	timer    *time.Timer   // abandons the handler
	back     bool          // the handler returned, or was abandoned
}

// lane is the rows of one aggregate: they run one after the other.
type lane struct {
	key   Aggregate
	rows  []*row // not started, oldest first
	busy  bool   // a handler runs
	open  int    // rows claimed and not answered yet
	more  bool   // there seems to be more in the store: it had several rows at a time, or others were seen behind them
	ended bool   // some row of it was not delivered: the next one is not free yet
	place int    // in the heap of those ready; -1 when it is not in it
}

// lanes holds the rows that were not started, and knows which may start next.
type lanes struct {
	byAggregate map[Aggregate]*lane
	ready       readyLanes
	waiting     int // rows not started
}

// add takes a claimed row. Rows of a lane come oldest first.
func (l *lanes) add(r *row) {
	key := r.event.Aggregate()
	of := l.byAggregate[key]
	if of == nil {
		of = &lane{key: key, place: -1}
		l.byAggregate[key] = of
	}
	r.lane = of
	of.rows = append(of.rows, r)
	of.open++
	of.more = of.more || of.open > 1
	l.waiting++
	l.update(of)
}

// next takes the oldest row whose lane is free; nil when there is none. The caller says what becomes of the lane.
func (l *lanes) next() *row {
	if len(l.ready) == 0 {
		return nil
	}
	of := l.ready[0]
	r := of.rows[0]
	of.rows = of.rows[1:]
	l.waiting--
	l.update(of)
	return r
}

// setBusy says whether a handler of the lane runs.
func (l *lanes) setBusy(of *lane, busy bool) {
	of.busy = busy
	l.update(of)
}

// update puts a lane where it belongs in the heap.
func (l *lanes) update(of *lane) {
	ready := !of.busy && len(of.rows) > 0
	switch {
	case ready && of.place >= 0:
		heap.Fix(&l.ready, of.place)
	case ready:
		heap.Push(&l.ready, of)
	case of.place >= 0:
		heap.Remove(&l.ready, of.place)
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
	l.waiting -= len(rows)
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
			if test(r) {
				rows = append(rows, r)
			} else {
				rest = append(rest, r)
			}
		}
		l.waiting -= len(of.rows) - from
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

// readyLanes is a heap: the lane with the oldest row first.
type readyLanes []*lane

func (h *readyLanes) Len() int           { return len(*h) }
func (h *readyLanes) Less(i, j int) bool { return byPosition((*h)[i].rows[0], (*h)[j].rows[0]) < 0 }
func (h *readyLanes) Swap(i, j int) {
	lanes := *h
	lanes[i], lanes[j] = lanes[j], lanes[i]
	lanes[i].place, lanes[j].place = i, j
}

func (h *readyLanes) Push(of any) {
	l := of.(*lane)
	l.place = len(*h)
	*h = append(*h, l)
}

func (h *readyLanes) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	last.place = -1
	return last
}
