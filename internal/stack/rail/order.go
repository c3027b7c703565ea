package rail

import (
	"fmt"
	"net/http"
)

// inversions tells how many aggregates had events sent, and which events came after a successor of their aggregate: at
// the webhooks, in a queue, in the mailbox, or sent to any two of them.
func (a arrivals) inversions(rows []row) (aggregates int, found []string) {
	ends := map[string][]string{} // ids by place, in order of arrival
	for _, req := range a.requests {
		if req.status == http.StatusOK {
			ends["webhooks"] = append(ends["webhooks"], req.id)
		}
	}
	for _, m := range a.messages {
		ends[m.topic] = append(ends[m.topic], m.id)
	}
	byKey := map[string]string{}
	for _, r := range rows {
		byKey[r.key] = r.id
	}
	for _, m := range a.mails {
		ends[ses] = append(ends[ses], byKey[keyOf(m)])
	}
	for _, end := range []string{"webhooks", shipments, stock, ses} {
		_, inverted := order(rows, ends[end], "arrived in "+end)
		found = append(found, inverted...)
	}
	aggregates, inverted := order(rows, a.journal, "was sent")
	return aggregates, append(found, inverted...)
}

// order tells how many aggregates are among the ids, and which events come first after a successor.
func order(rows []row, ids []string, verb string) (aggregates int, inverted []string) {
	byID, seen := index(rows), map[string]bool{}
	last := map[string]row{} // the latest event, by aggregate
	for _, id := range ids {
		r, ok := byID[id]
		if !ok || seen[id] {
			continue
		}
		seen[id] = true
		if before := last[r.aggregate()]; before.position > r.position {
			inverted = append(inverted, fmt.Sprintf("%s: %s after its successor %s", r.name(), verb, before.name()))
			continue
		}
		last[r.aggregate()] = r
	}
	return len(last), inverted
}
