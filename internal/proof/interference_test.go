package proof_test

import (
	"errors"
	"fmt"
)

// insert is a producer's transaction of a few rows.
func (h *history) insert(d dice) error {
	if len(h.model.rows) >= h.shape.rows {
		return nil
	}
	rows, err := h.target.insert(d.rows(h))
	h.operations += len(rows)
	h.note("insert %+v", rows)
	h.model.add(rows...)
	return err
}

// overlap begins a producer's transaction, goes on with one, or ends one. Its rows got their positions before those that
// others committed meanwhile.
func (h *history) overlap(d dice) error {
	switch n := len(h.open); {
	case h.target.begin == nil || len(h.model.rows) >= h.shape.rows:
		return nil
	case n == 0 || (n < 3 && d.chance(25)):
		h.operations++
		tx, err := h.target.begin()
		if err != nil {
			return err
		}
		h.open = append(h.open, openTransaction{transaction: tx})
		return h.insertInto(d, n)
	case d.chance(30):
		return h.insertInto(d, d.IntN(n))
	default:
		at := d.IntN(n)
		commit := d.chance(85)
		h.note("transaction %d ends: commit %t", at, commit)
		return h.end(at, commit)
	}
}

func (h *history) insertInto(d dice, at int) error {
	rows, err := h.open[at].insert(d.rows(h))
	h.operations += len(rows)
	h.note("transaction %d: insert %+v", at, rows)
	h.open[at].rows = append(h.open[at].rows, rows...)
	return err
}

func (h *history) end(at int, commit bool) error {
	tx := h.open[at]
	h.open = append(h.open[:at:at], h.open[at+1:]...)
	h.lookAtAll = true // its rows were written before others that were read
	if commit {
		h.model.add(tx.rows...)
	}
	h.operations++
	return tx.end(commit)
}

// close rolls back what is still open.
func (h *history) close() error {
	var err error
	for len(h.open) > 0 {
		err = errors.Join(err, h.end(0, false))
	}
	return err
}

// advance lets time pass: delays and leases end.
func (h *history) advance(d dice) error {
	if d.chance(h.shape.late) {
		h.model.now += pick(d, second, 20*second, 20*second, 45*second)
		h.note("it is %d", h.model.now)
		return h.target.setNow(h.model.now)
	}
	h.model.now += pick(d, 1, second, 30*second, 61*second, 300*second, 301*second, 3601*second, 2*3600*second)
	h.note("it is %d", h.model.now)
	h.operations++
	return h.target.setNow(h.model.now)
}

// change is an operator's statement on one row: redrive it, put it off, discard it, end its lease, charge it.
func (h *history) change(d dice) error {
	if len(h.model.rows) == 0 {
		return nil
	}
	r := pick(d, h.model.rows...)
	to := *r
	kind := d.IntN(8)
	if kind != 0 && d.chance(h.shape.late) { // what others wait for goes
		for try := 0; try < 5 && (!r.unfinished() || h.model.due(r)); try++ {
			r = pick(d, h.model.rows...)
		}
		to, kind = *r, 6
	}
	switch kind {
	case 0, 1: // redrive
		to.status, to.attempts, to.available = "pending", 0, h.model.now
	case 2: // end the lease
		to.available = h.model.now
	case 3:
		to.available = d.moment(h.model.now)
	case 4:
		to.status = pick(d, "pending", "failed", "processing", "processed", "discarded")
	case 5:
		to.attempts = d.attempts()
	case 6:
		to.status = "discarded"
	default:
		to.status, to.available = pick(d, "pending", "failed"), d.moment(h.model.now)
	}
	h.note("update %s: %s after %d attempts, at %d", to.id, to.status, to.attempts, to.available)
	*r = to
	h.model.touch(r)
	h.operations++
	return h.target.change(to)
}

// remove is retention: a finished row goes.
func (h *history) remove(d dice) error {
	if h.target.remove == nil || len(h.model.rows) == 0 {
		return nil
	}
	at := d.IntN(len(h.model.rows))
	r := h.model.rows[at]
	if r.unfinished() {
		return nil
	}
	h.note("delete %s", r.id)
	h.lookAtAll = true
	h.model.rows = append(h.model.rows[:at:at], h.model.rows[at+1:]...)
	h.operations++
	return h.target.remove(r.id)
}

func (h *history) declare(d dice) error {
	eventType := pick(d, eventTypes()...)
	h.note("declare %s dormant", eventType)
	h.model.dormant[eventType] = true
	for _, r := range h.model.rows { // it may have become free of what blocked it
		h.model.changed[r.aggregate] = change{h.model.now, h.model.steps}
	}
	h.operations++
	return h.target.declare(eventType)
}

// number names a row: ids are UUIDs that tell the order in which rows were made.
func (h *history) number() (id, key string) {
	h.last++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", h.last), fmt.Sprint(h.last)
}
