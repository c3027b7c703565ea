package dispatchtest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// Hook is the webhook's receiver: it answers 204 and remembers what came, in order of arrival.
type Hook struct {
	*httptest.Server
	mu        sync.Mutex
	times     map[string]int     // deliveries by event
	positions map[string][]int64 // first deliveries by aggregate
	at        int
	then      func()
	before    func(id string) int
}

func newHook(t *testing.T) *Hook {
	t.Helper()
	h := &Hook{times: map[string]int{}, positions: map[string][]int64{}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.receive))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

// At calls then, once, when the nth different event arrives, before that one is answered.
func (h *Hook) At(n int, then func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.then = n, then
}

// Answer lets a function choose the status of each delivery; nil means 204.
func (h *Hook) Answer(status func(id string) int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = status
}

func (h *Hook) receive(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	id := r.Header.Get("webhook-id")
	position, _ := strconv.ParseInt(r.Header.Get("outbox-position"), 10, 64)
	h.mu.Lock()
	if h.times[id]++; h.times[id] == 1 {
		key := r.Header.Get("outbox-aggregate-id")
		h.positions[key] = append(h.positions[key], position)
	}
	var then func()
	if h.then != nil && len(h.times) >= h.at {
		then, h.then = h.then, nil
	}
	answer := h.before
	h.mu.Unlock()
	if then != nil {
		then()
	}
	status := http.StatusNoContent
	if answer != nil {
		status = answer(id)
	}
	w.WriteHeader(status)
}

// Distinct is how many different events arrived.
func (h *Hook) Distinct() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.times)
}

// Repeated is how many deliveries came beyond the first of each event.
func (h *Hook) Repeated() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, times := range h.times {
		n += times - 1
	}
	return n
}

// Inversions describes aggregates whose first deliveries came out of order.
func (h *Hook) Inversions() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []string
	for aggregate, positions := range h.positions {
		for i := 1; i < len(positions); i++ {
			if positions[i] <= positions[i-1] {
				found = append(found, fmt.Sprintf("%s: %d after %d", aggregate, positions[i], positions[i-1]))
			}
		}
	}
	return found
}
