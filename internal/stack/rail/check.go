package rail

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
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

// differences compares what arrived, and what the table says, with what should have become of the inserted events. An
// empty answer is success.
func differences(inserted []event, rows []row, requests []request) []string {
	found := missing(inserted, rows)
	byID := index(rows)
	accepted, tried := map[string]int{}, map[string]int{}
	for _, req := range requests {
		r, ok := byID[req.id]
		if !ok {
			found = append(found, "a request came for an event that was never inserted: "+req.id)
			continue
		}
		found = append(found, r.compare(req)...)
		tried[req.id]++
		if req.status == http.StatusOK {
			accepted[req.id]++
		}
	}
	_, inverted := order(rows, requests)
	found = append(found, inverted...)
	for _, r := range rows {
		if err := r.check(tried[r.id], accepted[r.id]); err != "" {
			found = append(found, fmt.Sprintf("%s (%s, %s): %s", r.key, r.eventType, r.fate, err))
		}
	}
	return found
}

// missing tells which inserted events are not in the table exactly once, and which rows nobody inserted. Without it an
// event that vanished before it was sent would go unnoticed.
func missing(inserted []event, rows []row) []string {
	var found []string
	times := map[string]int{}
	for _, r := range rows {
		times[r.key]++
	}
	for _, e := range inserted {
		if times[e.key] != 1 {
			found = append(found, fmt.Sprintf("%s: is in the table %d times, want once", e.key, times[e.key]))
		}
		delete(times, e.key)
	}
	for key := range times {
		found = append(found, "the table holds an event that was never inserted: "+key)
	}
	return found
}

// compare says how a request differs from the row it is for.
func (r row) compare(req request) []string {
	var found []string
	for _, c := range []struct {
		ok   bool
		text string
	}{
		{req.signed, "a request to " + req.endpoint + " carried a bad signature"},
		{req.endpoint == endpoint(r.eventType), fmt.Sprintf("went to %s, want %q", req.endpoint, endpoint(r.eventType))},
		{req.body == r.stored, "the body differs from the stored payload"},
		{
			strings.Contains(req.body, bigNumber) == strings.Contains(r.payload, bigNumber),
			"the body lost digits of a big number",
		},
		{
			req.aggregate == r.aggregate() && req.eventType == r.eventType && req.key == r.key &&
				req.position == strconv.FormatInt(r.position, 10),
			"the headers name another event",
		},
	} {
		if !c.ok {
			found = append(found, r.key+": "+c.text)
		}
	}
	return found
}

// order tells how many aggregates had events accepted, and which events were first accepted after a successor of
// their aggregate.
func order(rows []row, requests []request) (aggregates int, inverted []string) {
	byID, seen := index(rows), map[string]bool{}
	last := map[string]row{} // the latest event accepted, by aggregate
	for _, req := range requests {
		r, ok := byID[req.id]
		if !ok || req.status != http.StatusOK || seen[req.id] {
			continue
		}
		seen[req.id] = true
		if before := last[r.aggregate()]; before.position > r.position {
			inverted = append(inverted, fmt.Sprintf("%s: delivered after its successor %s", r.key, before.key))
			continue
		}
		last[r.aggregate()] = r
	}
	return len(last), inverted
}

// check says what is wrong with one row's end, or nothing.
func (r row) check(tried, accepted int) string {
	status, wantAccepted, leastTried, mostTried := "processed", 1, 1, maxAttempts+r.snoozes
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
	case tried != r.attempts+r.snoozes:
		return fmt.Sprintf("was sent %d times, but %d attempts and %d snoozes are on record", tried, r.attempts, r.snoozes)
	}
	return ""
}

func index(rows []row) map[string]row {
	byID := make(map[string]row, len(rows))
	for _, r := range rows {
		byID[r.id] = r
	}
	return byID
}
