// Package rail plays the project's main job on real local parts: PostgreSQL, the migrate and the dispatch function under
// the Lambda runtime emulator, a webhook receiver, and SNS, SQS and SES as an emulator plays them. It then compares what
// arrived at each receiving end with what should have.
package rail

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

const (
	eventCount     = 600
	aggregateCount = 60
	maxAttempts    = 3                      // so that a poisoned event is given up in a short run
	bigNumber      = "12345678901234567890" // more than a float64 holds exactly
)

// fate is what must become of an event.
type fate string

const (
	delivered  fate = "delivered"  // received
	refused    fate = "refused"    // the receiver says never (a 410, a template that doesn't exist): discarded at once
	malformed  fate = "malformed"  // the receiver always answers 422: discarded when its attempts are spent
	unsendable fate = "unsendable" // no mail, or too large for SNS: discarded, and nothing is sent
	untouched  fate = "not routed" // known, for another worker: stays pending
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

// The destinations, by their kinds. A topic's name is that of its queue too.
const (
	crm, billing, members = "crm", "billing", "members" // webhooks
	shipments, stock      = "shipments", "stock.fifo"   // SNS topics
	ses                   = "mail"                      // SES
)

// place is where events of a type must go; "" for a type that has no route.
func place(eventType string) string {
	switch eventType {
	case "order.placed", "order.paid":
		return crm
	case "order.shipped":
		return shipments
	case "invoice.issued", "invoice.paid":
		return billing
	case "user.registered", "user.invited":
		return members
	case "invoice.mailed", "user.welcomed":
		return ses
	case "stock.reserved", "stock.released":
		return stock
	default:
		return ""
	}
}

const routesFile = `
version: 1
known: [order.archived]
destinations:
  crm:       {http: {url: "${HOOKS}/crm", secrets: ["${CRM_SECRET}"], timeout: 5s, allow_http: true, allow_ports: [1-65535], allow_private: [127.0.0.0/8]}}
  billing:   {http: {url: "${HOOKS}/billing", secrets: ["${BILLING_NEW}", "${BILLING_OLD}"], timeout: 5s, allow_http: true, allow_ports: [1-65535], allow_private: [127.0.0.0/8]}, envelope: raw}
  members:   {http: {url: "${HOOKS}/members", secrets: ["${MEMBERS_SECRET}"], timeout: 5s, allow_http: true, allow_ports: [1-65535], allow_private: [127.0.0.0/8]}, envelope: cloudevents-binary, discard_on: [410]}
  shipments: {sns: {topic_arn: "${SHIPMENTS_TOPIC}", timeout: 5s}}
  stock:     {sns: {topic_arn: "${STOCK_TOPIC}", timeout: 5s}}
  mail:      {ses: {from: "` + sender + `", timeout: 5s}}
routes:
  order.placed: {to: crm}
  order.paid: {to: crm}
  order.shipped: {to: shipments}
  invoice.issued: {to: billing}
  invoice.paid: {to: billing}
  invoice.mailed: {to: mail}
  user.registered: {to: members}
  user.invited: {to: members}
  user.welcomed: {to: mail}
  stock.reserved: {to: stock}
  stock.released: {to: stock}
`

// scenario makes the events of 60 aggregates (20 orders, 10 invoices, 10 users, 20 items), interleaved; the same every
// time. Events of an order, an invoice or a user go to two destinations, and their order holds across both.
func scenario() []event {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same events every time, on purpose
	events := make([]event, 0, eventCount)
	for n := range eventCount {
		e := event{key: fmt.Sprintf("run-%03d", n), fate: delivered}
		aggregate := random.IntN(aggregateCount)
		if n < aggregateCount {
			aggregate = n // each has one at least
		}
		aggregate, e.eventType, e.fate = trouble(n, aggregate)
		e.aggregateID = fmt.Sprintf("00000000-0000-4000-8000-%012d", aggregate)
		var types []string
		e.aggregateType, types = kind(aggregate)
		if chosen := types[random.IntN(len(types))]; e.eventType == "" {
			e.eventType = chosen
		}
		e.payload = payload(random, n, e)
		events = append(events, e)
	}
	return events
}

func kind(aggregate int) (name string, types []string) {
	switch {
	case aggregate < 20:
		return "order", []string{"order.placed", "order.paid", "order.shipped"}
	case aggregate < 30:
		return "invoice", []string{"invoice.issued", "invoice.paid", "invoice.mailed"}
	case aggregate < 40:
		return "user", []string{"user.registered", "user.invited", "user.welcomed"}
	default:
		return "item", []string{"stock.reserved", "stock.released"}
	}
}

// trouble says which events fare badly. Each has successors in its aggregate, which must not wait for it for ever.
func trouble(n, aggregate int) (int, string, fate) {
	switch n {
	case 64, 130:
		return n % 20, "order.archived", untouched
	case 77:
		return 37, "user.invited", refused
	case 99:
		return 31, "user.registered", malformed
	case 178:
		return 25, "invoice.mailed", refused
	case 203:
		return 33, "user.welcomed", unsendable
	case 255:
		return 55, "stock.reserved", unsendable
	}
	return aggregate, "", delivered
}

// payload is realistic JSON, with what receivers of money and names care about: big numbers, exact decimals, Unicode.
func payload(random *rand.Rand, n int, e event) string {
	name := names()[random.IntN(len(names()))]
	total := fmt.Sprintf("%d.%02d", random.IntN(5000), random.IntN(100))
	switch {
	case e.fate == untouched:
		return `{}`
	case place(e.eventType) == ses:
		return mailPayload(e, name, total)
	case e.fate == refused:
		return `{"mailbox": "gone"}`
	case e.fate == malformed:
		return `{"mailbox": 42}`
	case e.fate == unsendable:
		return `{"photo": "` + strings.Repeat("x", 300<<10) + `"}`
	case e.aggregateType == "user":
		return fmt.Sprintf(`{"name": %s, "consent": true, "referrer": null}`, quote(name))
	default:
		return fmt.Sprintf(`{"no": %d, "total": %s, "ledger": %s, "customer": %s, "lines": [{"sku": "A-%d", "qty": %d}]}`,
			n, total, bigNumber, quote(name), random.IntN(900), 1+random.IntN(5))
	}
}

func names() []string {
	return []string{"Zoë Brontë", "李小龍", "O'Neil \"Bob\"", "Ana María 🎉"}
}

func quote(text string) string {
	quoted, _ := json.Marshal(text) // a text always encodes
	return string(quoted)
}
