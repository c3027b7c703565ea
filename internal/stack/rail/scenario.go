// Package rail plays the project's main job on real local parts: PostgreSQL, the migrate and the dispatch function under
// the Lambda runtime emulator, and a webhook receiver. It then compares what arrived with what should have.
package rail

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

const (
	eventCount  = 300
	maxAttempts = 3                      // so that a poisoned event is given up in a short run
	bigNumber   = "12345678901234567890" // more than a float64 holds exactly
)

// fate is what must become of an event.
type fate string

const (
	delivered fate = "delivered"  // received once
	refused   fate = "refused"    // the receiver answers 410: discarded at once
	malformed fate = "malformed"  // the receiver always answers 422: discarded when its attempts are spent
	untouched fate = "not routed" // known, for another worker: stays pending
)

// event is one row to insert.
type event struct {
	aggregateType, aggregateID string
	eventType, key             string
	payload                    string
	fate                       fate
}

// aggregate names the aggregate whose events arrive in order.
func (e event) aggregate() string { return e.aggregateType + "/" + e.aggregateID }

// endpoint is where events of a type must go; "" for a type that has no route.
func endpoint(eventType string) string {
	switch eventType {
	case "order.placed", "order.paid", "order.shipped":
		return "crm"
	case "invoice.issued", "invoice.paid":
		return "billing"
	case "user.registered", "user.invited":
		return "mail"
	default:
		return ""
	}
}

const routesFile = `
version: 1
known: [order.archived]
destinations:
  crm:     {http: {url: "${HOOKS}/crm", secrets: ["${CRM_SECRET}"], timeout: 5s, allow_http: true, allow_private: [127.0.0.0/8]}}
  billing: {http: {url: "${HOOKS}/billing", secrets: ["${BILLING_NEW}", "${BILLING_OLD}"], timeout: 5s, allow_http: true, allow_private: [127.0.0.0/8]}}
  mail:    {http: {url: "${HOOKS}/mail", secrets: ["${MAIL_SECRET}"], timeout: 5s, allow_http: true, allow_private: [127.0.0.0/8]}}
routes:
  order.placed: {to: crm}
  order.paid: {to: crm}
  order.shipped: {to: crm}
  invoice.issued: {to: billing}
  invoice.paid: {to: billing}
  user.registered: {to: mail}
  user.invited: {to: mail}
`

// scenario makes the events of 40 aggregates (20 orders, 10 invoices, 10 users), interleaved; the same every time.
func scenario() []event {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same events every time, on purpose
	events := make([]event, 0, eventCount)
	for n := range eventCount {
		e := event{key: fmt.Sprintf("run-%03d", n), fate: delivered}
		aggregate := random.IntN(40)
		if n < 40 {
			aggregate = n // each has one at least
		}
		switch n { // each of these has successors in its aggregate, which must not wait for it for ever
		case 64, 130:
			aggregate, e.fate = n%20, untouched
		case 77, 178:
			aggregate, e.fate = 30+n%10, refused
		case 99:
			aggregate, e.fate = 31, malformed
		}
		e.aggregateID = fmt.Sprintf("00000000-0000-4000-8000-%012d", aggregate)
		switch {
		case aggregate < 20:
			e.aggregateType, e.eventType = "order", pick(random, "order.placed", "order.paid", "order.shipped")
		case aggregate < 30:
			e.aggregateType, e.eventType = "invoice", pick(random, "invoice.issued", "invoice.paid")
		default:
			e.aggregateType, e.eventType = "user", pick(random, "user.registered", "user.invited")
		}
		if e.fate == untouched {
			e.eventType = "order.archived"
		}
		e.payload = payload(random, n, e)
		events = append(events, e)
	}
	return events
}

// payload is realistic JSON, with what receivers of money and names care about: big numbers, exact decimals, Unicode.
func payload(random *rand.Rand, n int, e event) string {
	name, _ := json.Marshal(pick(random, "Zoë Brontë", "李小龍", "O'Neil \"Bob\"", "Ana María 🎉")) // strings always encode
	switch {
	case e.fate == refused:
		return `{"mailbox": "gone"}`
	case e.fate == malformed:
		return `{"mailbox": 42}`
	case e.aggregateType == "user":
		return fmt.Sprintf(`{"name": %s, "consent": true, "referrer": null}`, name)
	default:
		return fmt.Sprintf(`{"no": %d, "total": %d.%02d, "ledger": %s, "customer": %s, "lines": [{"sku": "A-%d", "qty": %d}]}`,
			n, random.IntN(5000), random.IntN(100), bigNumber, name, random.IntN(900), 1+random.IntN(5))
	}
}

func pick(random *rand.Rand, choices ...string) string { return choices[random.IntN(len(choices))] }
