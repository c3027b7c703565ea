package rail

import (
	"fmt"
	"net/http"
)

// row is an event after the run.
type row struct {
	event
	id       string
	position int64
	status   string
	attempts int
	snoozes  int
	reason   string
	stored   string // the payload as PostgreSQL prints it
}

// differences compares what arrived with what should have. An empty answer is success.
func differences(rows []row, requests []request) []string {
	var found []string
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	byID := map[string]row{}
	for _, r := range rows {
		byID[r.id] = r
	}
	accepted, tried := map[string]int{}, map[string]int{}
	last := map[string]row{} // by aggregate, of first successful deliveries
	for _, req := range requests {
		r, ok := byID[req.id]
		switch {
		case !ok:
			fault("a request came for an event that was never inserted: %s", req.id)
			continue
		case !req.signed:
			fault("%s: a request to %s carried a bad signature", r.key, req.endpoint)
		case req.endpoint != endpoint(r.eventType):
			fault("%s: went to %s, want %s", r.key, req.endpoint, endpoint(r.eventType))
		case req.body != r.stored:
			fault("%s: the body differs from the stored payload", r.key)
		}
		tried[req.id]++
		if req.status != http.StatusOK {
			continue
		}
		if accepted[req.id]++; accepted[req.id] == 1 {
			if before := last[r.aggregateID]; before.position > r.position {
				fault("%s: delivered after its successor %s", r.key, before.key)
			}
			last[r.aggregateID] = r
		}
	}
	for _, r := range rows {
		if err := r.check(tried[r.id], accepted[r.id]); err != "" {
			fault("%s (%s, %s): %s", r.key, r.eventType, r.fate, err)
		}
	}
	return found
}

// check says what is wrong with one row's end, or nothing.
func (r row) check(tried, accepted int) string {
	status, wantAccepted, leastTried, mostTried := "processed", 1, 1, 1+maxAttempts+r.snoozes
	switch r.fate {
	case delivered:
	case refused:
		status, wantAccepted, mostTried = "discarded", 0, 1
	case malformed:
		status, wantAccepted, leastTried = "discarded", 0, maxAttempts
	case untouched:
		status, wantAccepted, leastTried, mostTried = "pending", 0, 0, 0
	}
	switch {
	case r.status != status:
		return fmt.Sprintf("is %s, want %s", r.status, status)
	case accepted != wantAccepted:
		return fmt.Sprintf("was accepted %d times, want %d", accepted, wantAccepted)
	case tried < leastTried || tried > mostTried:
		return fmt.Sprintf("was sent %d times, want %d to %d", tried, leastTried, mostTried)
	}
	return ""
}
