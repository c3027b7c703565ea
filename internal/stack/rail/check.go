package rail

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
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

// name is how a difference names the event.
func (r row) name() string { return r.key + " " + r.id }

// arrivals are what the receiving ends have, each in its order of arrival.
type arrivals struct {
	requests []request      // webhooks
	messages []message      // of each topic's queue
	mails    []cloud.Mail   // the mailbox
	calls    []cloud.Call   // what reached SNS and SES
	lost     map[string]int // how many answers of SNS were lost, by event
	journal  []string       // every event sent, wherever to

	snsRequests int // that carried messages, alone or in batches
}

// differences compares what arrived, and what the table says, with what should have become of the inserted events. An
// empty answer is success.
func differences(inserted []event, rows []row, got arrivals) []string {
	found := missing(inserted, rows)
	c := newCount()
	found = append(found, c.webhooks(rows, got.requests)...)
	found = append(found, c.queues(rows, got.messages)...)
	found = append(found, c.mailbox(rows, got.mails)...)
	found = append(found, c.calls(rows, got.calls)...)
	_, inverted := got.inversions(rows)
	found = append(found, inverted...)
	for _, r := range rows {
		if err := r.check(c.sent[r.id], c.accepted[r.id], got.lost[r.id]); err != "" {
			found = append(found, fmt.Sprintf("%s (%s, %s): %s", r.name(), r.eventType, r.fate, err))
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

// count is what happened to each event, by its id.
type count struct{ sent, accepted map[string]int }

func newCount() count { return count{sent: map[string]int{}, accepted: map[string]int{}} }

func (c count) webhooks(rows []row, requests []request) (found []string) {
	byID := index(rows)
	for _, req := range requests {
		r, ok := byID[req.id]
		if !ok {
			found = append(found, "a request came for an event that was never inserted: "+req.id)
			continue
		}
		found = append(found, r.compare(req.endpoint, req.facts)...)
		if !req.signed {
			found = append(found, r.name()+": a request to "+req.endpoint+" carried a bad signature")
		}
		c.sent[r.id]++
		if req.status == http.StatusOK {
			c.accepted[r.id]++
		}
	}
	return found
}

func (c count) queues(rows []row, messages []message) (found []string) {
	byID := index(rows)
	for _, m := range messages {
		r, ok := byID[m.id]
		if !ok {
			found = append(found, fmt.Sprintf("a message came to %s for an event that was never inserted: %q", m.topic, m.id))
			continue
		}
		found = append(found, r.compare(m.topic, m.facts)...)
		c.accepted[r.id]++
	}
	return found
}

func (c count) mailbox(rows []row, mails []cloud.Mail) (found []string) {
	byKey := map[string]row{}
	for _, r := range rows {
		byKey[r.key] = r
	}
	for _, m := range mails {
		r, ok := byKey[keyOf(m)]
		if !ok || place(r.eventType) != ses {
			found = append(found, fmt.Sprintf("a mail came that no event asked for: %q", m.Subject))
			continue
		}
		for _, difference := range r.compareMail(m) {
			found = append(found, r.name()+": "+difference)
		}
		c.accepted[r.id]++
	}
	return found
}

// calls checks what the emulator doesn't hand on: groups and deduplication ids of a FIFO topic, the tag of a mail.
func (c count) calls(rows []row, calls []cloud.Call) (found []string) {
	byID := index(rows)
	for _, call := range calls {
		r, ok := byID[callID(call)]
		if !ok {
			found = append(found, fmt.Sprintf("a %s came for an event that was never inserted: %q", call.Action, callID(call)))
			continue
		}
		c.sent[r.id]++
		group, deduplication := "", ""
		if place(r.eventType) == stock {
			group, deduplication = r.aggregateType+":"+r.aggregateID, r.id
		}
		if call.Group != group || call.Deduplication != deduplication {
			found = append(found, fmt.Sprintf("%s: published in group %q as %q, want %q and %q",
				r.name(), call.Group, call.Deduplication, group, deduplication))
		}
	}
	return found
}

// compare says how a delivery differs from the row it is for.
func (r row) compare(where string, got facts) []string {
	var found []string
	for _, c := range []struct {
		ok   bool
		text string
	}{
		{where == place(r.eventType), fmt.Sprintf("went to %s, want %q", where, place(r.eventType))},
		{got.body == r.stored, "the body differs from the stored payload"},
		{
			strings.Contains(got.body, bigNumber) == strings.Contains(r.payload, bigNumber),
			"the body lost digits of a big number",
		},
		{
			got.aggregate == r.aggregate() && got.eventType == r.eventType && got.key == r.key &&
				got.position == strconv.FormatInt(r.position, 10),
			"the headers or attributes name another event",
		},
	} {
		if !c.ok {
			found = append(found, r.name()+": "+c.text)
		}
	}
	return found
}

// check says what is wrong with one row's end, or nothing. A call to AWS may be sent twice within an attempt; a standard
// topic, other than a FIFO topic, delivers again what was published again.
func (r row) check(sent, accepted, lost int) string {
	status, wantAccepted, tries := "processed", 1, r.attempts+r.snoozes
	leastTries, mostTries := 1, maxAttempts+r.snoozes
	switch r.fate {
	case delivered:
		if place(r.eventType) == shipments {
			wantAccepted += lost
		}
	case refused:
		status, wantAccepted = "discarded", 0
		mostTries = 1 + r.snoozes
	case malformed:
		status, wantAccepted, leastTries = "discarded", 0, maxAttempts
	case unsendable:
		status, wantAccepted, mostTries = "discarded", 0, 1
	case untouched:
		status, wantAccepted, leastTries, mostTries = "pending", 0, 0, 0
	}
	leastSent, mostSent := tries, tries
	switch where := place(r.eventType); {
	case r.fate == unsendable:
		leastSent, mostSent = 0, 0
	case where == billing:
		mostSent += outageRequests // a probe that finds it still out charges nothing
	case where == shipments || where == stock || where == ses:
		mostSent *= 2
	}
	switch {
	case r.status != status:
		return fmt.Sprintf("is %s, want %s; %s", r.status, status, r.reason)
	case accepted != wantAccepted:
		return fmt.Sprintf("was accepted %d times, want %d", accepted, wantAccepted)
	case tries < leastTries || tries > mostTries:
		return fmt.Sprintf("was tried %d times, want %d to %d", tries, leastTries, mostTries)
	case sent < leastSent || sent > mostSent:
		return fmt.Sprintf("was sent %d times, but %d attempts and %d snoozes are on record", sent, r.attempts, r.snoozes)
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
