package rail

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

// world is a small run in which everything went well.
func world() (inserted []event, rows []row, got arrivals) {
	const number = `{"n": 12345678901234567890}`
	const welcome = `{"to": ["Zoë <7@example.com>"], "subject": "Welcome: 7", "text": "Hello"}`
	const receipt = `{"to": ["8@example.com"], "template": "receipt", "data": {"key": "8", "name": "Ana", "total": "9.90"}}`
	for i, c := range []struct {
		aggregateID, eventType, status, payload string
		fate                                    fate
		attempts                                int
	}{
		{"a", "order.placed", "processed", number, delivered, 1},
		{"a", "order.paid", "processed", "{}", delivered, 1},
		{"b", "user.invited", "discarded", "{}", refused, 1},
		{"b", "order.archived", "pending", "{}", untouched, 0},
		{"c", "user.registered", "discarded", "{}", malformed, maxAttempts},
		{"d", "invoice.paid", "processed", "{}", delivered, 1},
		{"e", "user.welcomed", "processed", welcome, delivered, 1},
		{"e", "invoice.mailed", "processed", receipt, delivered, 1},
		{"f", "order.shipped", "processed", number, delivered, 1},
		{"f", "order.shipped", "processed", "{}", delivered, 2},
		{"g", "stock.reserved", "processed", "{}", delivered, 1},
		{"g", "stock.released", "processed", "{}", delivered, 1},
		{"g", "stock.released", "discarded", "{}", unsendable, 1},
		{"a", "order.shipped", "processed", "{}", delivered, 1},
	} {
		key := strconv.Itoa(i + 1)
		e := event{
			aggregateType: "order", aggregateID: c.aggregateID, eventType: c.eventType,
			key: key, payload: c.payload, fate: c.fate,
		}
		inserted = append(inserted, e)
		rows = append(rows, row{
			event: e, id: "id" + key, position: int64(i + 1), status: c.status, attempts: c.attempts, stored: c.payload,
		})
	}
	rows[5].snoozes = 1
	got.lost = map[string]int{"id10": 2, "id11": 1}
	for _, c := range []struct{ row, status int }{
		{0, 200}, {1, 200}, {2, 410}, {4, 422}, {4, 422}, {4, 422}, {5, 503}, {5, 200},
	} {
		r := rows[c.row]
		got.requests = append(got.requests, request{
			endpoint: place(r.eventType), id: r.id, facts: factsOf(r), signed: true, status: c.status,
		})
		got.journal = append(got.journal, r.id)
	}
	for _, i := range []int{8, 9, 9, 9, 10, 11, 13} {
		got.messages = append(got.messages, message{topic: place(rows[i].eventType), id: rows[i].id, facts: factsOf(rows[i])})
	}
	got.mails = []cloud.Mail{
		{From: sender, Subject: "Welcome: 7", Text: "Hello"},
		{From: sender, Subject: "Receipt over 9.90 for 8", Text: "Dear Ana, you paid 9.90."},
	}
	got.mails[0].Destination.To = []string{"=?utf-8?q?Zo=C3=AB?= <7@example.com>"}
	got.mails[1].Destination.To = []string{"8@example.com"}
	for _, i := range []int{6, 7, 8, 9, 9, 9, 10, 10, 11, 13} {
		call := cloud.Call{Action: "Publish", Attributes: map[string]string{"event_id": rows[i].id}}
		switch place(rows[i].eventType) {
		case ses:
			call = cloud.Call{Action: "SendEmail", Tags: map[string]string{"outbox_event_id": rows[i].id}}
		case stock:
			call.Group, call.Deduplication = "order:g", rows[i].id
		}
		got.calls = append(got.calls, call)
		got.journal = append(got.journal, rows[i].id)
	}
	return inserted, rows, got
}

func factsOf(r row) facts {
	return facts{
		aggregate: r.aggregate(), eventType: r.eventType, key: r.key,
		position: strconv.FormatInt(r.position, 10), body: r.stored,
	}
}

func TestARunThatWentWellHasNoDifferences(t *testing.T) {
	t.Parallel()
	if found := differences(world()); len(found) != 0 {
		t.Errorf("differences %q, want none", found)
	}
}

// Each case breaks one thing; the checker must name it, and the event.
func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	const digits = `{"n": 12345678901234567000}`
	for _, c := range []struct {
		name, want string
		change     func(rows []row, got *arrivals) []row
	}{
		{"dropped", "1 id1 (order.placed, delivered): was accepted 0 times", func(r []row, a *arrivals) []row { a.requests = a.requests[1:]; return r }},
		{"twice", "2 id2 (order.paid, delivered): was accepted 2 times", func(r []row, a *arrivals) []row { a.requests = append(a.requests, a.requests[1]); return r }},
		{"reordered", "1 id1: arrived in webhooks after its successor 2 id2", func(r []row, a *arrivals) []row {
			a.requests[0], a.requests[1] = a.requests[1], a.requests[0]
			return r
		}},
		{"altered", "1 id1: the body differs", func(r []row, a *arrivals) []row { a.requests[0].body += " "; return r }},
		{"rounded on the way", "1 id1: the body lost digits", func(r []row, a *arrivals) []row { a.requests[0].body = digits; return r }},
		{"rounded in the table too", "1 id1: the body lost digits", func(r []row, a *arrivals) []row {
			r[0].stored, a.requests[0].body = digits, digits
			return r
		}},
		{"unsigned", "1 id1: a request to crm carried a bad signature", func(r []row, a *arrivals) []row { a.requests[0].signed = false; return r }},
		{"elsewhere", "1 id1: went to members", func(r []row, a *arrivals) []row { a.requests[0].endpoint = members; return r }},
		{"under another position", "1 id1: the headers or attributes name", func(r []row, a *arrivals) []row { a.requests[0].position = "2"; return r }},
		{"under another aggregate", "1 id1: the headers or attributes name", func(r []row, a *arrivals) []row { a.requests[0].aggregate = "order/b"; return r }},
		{"unknown", "never inserted: 9", func(r []row, a *arrivals) []row { a.requests[0].id = "9"; return r }},
		{"not discarded", "3 id3 (user.invited, refused): is failed, want discarded", func(r []row, _ *arrivals) []row { r[2].status = "failed"; return r }},
		{"given up early", "5 id5 (user.registered, malformed): was tried 2 times, want 3", func(r []row, _ *arrivals) []row { r[4].attempts = 2; return r }},
		{"sent less than recorded", "5 id5 (user.registered, malformed): was sent 2 times", func(r []row, a *arrivals) []row { a.requests = slices.Delete(a.requests, 3, 4); return r }},
		{"charged for a snooze", "2 attempts and 1 snoozes are on record", func(r []row, _ *arrivals) []row { r[5].attempts = 2; return r }},
		{"another worker's sent", "4 id4 (order.archived, not routed): was sent 1 times, but 0", func(r []row, a *arrivals) []row {
			a.requests = append(a.requests, request{id: "id4", signed: true, status: 500})
			return r
		}},
		{"row lost before it was sent", "4: is in the table 0 times", func(r []row, _ *arrivals) []row { return slices.Delete(r, 3, 4) }},
		{"row nobody inserted", "never inserted: 99", func(r []row, _ *arrivals) []row {
			return append(r, row{event: event{key: "99", fate: untouched}, id: "id99", status: "pending"})
		}},
		{"nothing happened", "is in the table 0 times", func([]row, *arrivals) []row { return nil }},

		{"message dropped", "9 id9 (order.shipped, delivered): was accepted 0 times", func(r []row, a *arrivals) []row { a.messages = a.messages[1:]; return r }},
		{"message twice", "9 id9 (order.shipped, delivered): was accepted 2 times", func(r []row, a *arrivals) []row { a.messages = append(a.messages, a.messages[0]); return r }},
		{"not again after a lost answer", "10 id10 (order.shipped, delivered): was accepted 2 times, want 3", func(r []row, a *arrivals) []row {
			a.messages = slices.Delete(a.messages, 2, 3)
			return r
		}},
		{"again in the FIFO queue", "11 id11 (stock.reserved, delivered): was accepted 2 times, want 1", func(r []row, a *arrivals) []row { a.messages = append(a.messages, a.messages[4]); return r }},
		{"queue reordered", "11 id11: arrived in stock.fifo after its successor 12 id12", func(r []row, a *arrivals) []row {
			a.messages[4], a.messages[5] = a.messages[5], a.messages[4]
			return r
		}},
		{"standard queue reordered", "9 id9: arrived in shipments after its successor 10 id10", func(r []row, a *arrivals) []row {
			a.messages[0], a.messages[1] = a.messages[1], a.messages[0]
			return r
		}},
		{"message altered", "11 id11: the body differs", func(r []row, a *arrivals) []row { a.messages[4].body = "{ }"; return r }},
		{"message in another queue", "11 id11: went to shipments", func(r []row, a *arrivals) []row { a.messages[4].topic = shipments; return r }},
		{"message under another key", "11 id11: the headers or attributes name", func(r []row, a *arrivals) []row { a.messages[4].key = "12"; return r }},
		{"message without an event", `never inserted: ""`, func(r []row, a *arrivals) []row { a.messages[4].id = ""; return r }},
		{"another group", `11 id11: published in group "order:f"`, func(r []row, a *arrivals) []row { a.calls[6].Group = "order:f"; return r }},
		{"another deduplication", `11 id11: published in group "order:g" as "once"`, func(r []row, a *arrivals) []row { a.calls[6].Deduplication = "once"; return r }},
		{"a group on a standard topic", `9 id9: published in group "order:f"`, func(r []row, a *arrivals) []row { a.calls[2].Group = "order:f"; return r }},
		{"call without an event", `a Publish came for an event that was never inserted: "id99"`, func(r []row, a *arrivals) []row {
			a.calls[6].Attributes["event_id"] = "id99"
			return r
		}},
		{"sent though unsendable", "13 id13 (stock.released, unsendable): was sent 1 times", func(r []row, a *arrivals) []row {
			a.calls = append(a.calls, cloud.Call{Action: "Publish", Attributes: map[string]string{"event_id": "id13"}})
			return r
		}},
		{"called too often", "12 id12 (stock.released, delivered): was sent 3 times", func(r []row, a *arrivals) []row {
			a.calls = append(a.calls, a.calls[8], a.calls[8])
			return r
		}},

		{"mail dropped", "7 id7 (user.welcomed, delivered): was accepted 0 times", func(r []row, a *arrivals) []row { a.mails = a.mails[1:]; return r }},
		{"mail twice", "7 id7 (user.welcomed, delivered): was accepted 2 times", func(r []row, a *arrivals) []row { a.mails = append(a.mails, a.mails[0]); return r }},
		{"mails reordered", "7 id7: arrived in mail after its successor 8 id8", func(r []row, a *arrivals) []row {
			a.mails[0], a.mails[1] = a.mails[1], a.mails[0]
			return r
		}},
		{"mail to another", "7 id7: the mail went to", func(r []row, a *arrivals) []row { a.mails[0].Destination.To[0] = "8@example.com"; return r }},
		{"mail with a copy", "7 id7: the mail went to", func(r []row, a *arrivals) []row {
			a.mails[0].Destination.Bcc = []string{"8@example.com"}
			return r
		}},
		{"mail from another", "7 id7: the mail came from", func(r []row, a *arrivals) []row { a.mails[0].From = "shop@example.org"; return r }},
		{"mail with another text", "8 id8: the mail says", func(r []row, a *arrivals) []row { a.mails[1].Text = "Dear {{name}}"; return r }},
		{"mail with another subject", `no event asked for: "Welcome"`, func(r []row, a *arrivals) []row { a.mails[0].Subject = "Welcome"; return r }},
		{"mail for a webhook's event", `no event asked for: "Welcome: 1"`, func(r []row, a *arrivals) []row { a.mails[0].Subject = "Welcome: 1"; return r }},

		{"out of order across destinations", "2 id2: was sent after its successor 14 id14", func(r []row, a *arrivals) []row {
			a.journal = append([]string{"id1", "id14"}, a.journal[1:]...)
			return r
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inserted, rows, got := world()
			rows = c.change(rows, &got)
			found := differences(inserted, rows, got)
			if !strings.Contains(strings.Join(found, "\n"), c.want) {
				t.Errorf("differences %q, want one with %q", found, c.want)
			}
		})
	}
}

func TestTheScenarioIsWhatItSays(t *testing.T) {
	t.Parallel()
	aggregates, keys, fates := map[string]bool{}, map[string]bool{}, map[fate]int{}
	places, lost := map[string]int{}, map[string]int{}
	waited := map[string]event{} // the last trouble of an aggregate that has no successor yet
	for _, e := range scenario() {
		aggregates[e.aggregate()], keys[e.key] = true, true
		fates[e.fate]++
		places[place(e.eventType)]++
		if losing(e.key) {
			lost[place(e.eventType)]++
		}
		if e.fate != delivered {
			waited[e.aggregate()] = e
		} else {
			delete(waited, e.aggregate())
		}
	}
	if len(aggregates) != aggregateCount || len(keys) != eventCount {
		t.Errorf("%d aggregates, %d keys, want %d and %d", len(aggregates), len(keys), aggregateCount, eventCount)
	}
	want := map[fate]int{delivered: eventCount - 7, refused: 2, malformed: 1, unsendable: 2, untouched: 2}
	if !maps.Equal(fates, want) {
		t.Errorf("fates %v, want %v", fates, want)
	}
	for _, e := range waited {
		t.Errorf("%s (%s) has no successor in its aggregate, so it cannot show that it blocks nothing", e.key, e.fate)
	}
	for _, d := range destinations() {
		if least := 50; d.name != "" && places[d.name] < least {
			t.Errorf("%d events go to %s, want %d at least", places[d.name], d.name, least)
		}
	}
	if lost[shipments] == 0 || lost[stock] == 0 {
		t.Errorf("answers are lost of %v, want some of both topics", lost)
	}
}

func TestATroubleThatNeverHappenedIsTold(t *testing.T) {
	t.Parallel()
	_, rows, got := world()
	calm := run{}
	want := []string{
		"no event waited for the missing topic, so the run shows nothing about it",
		"no event waited for the paused mail, so the run shows nothing about it",
	}
	if told := calm.unplayed(rows, got); !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	rows[6].snoozes, rows[8].snoozes = 1, 1
	stuck := run{left: 2, passes: []pass{{}}}
	if told := stuck.unplayed(rows, got); !slices.Equal(told, []string{"not drained: 2 events left after 1 passes"}) {
		t.Errorf("told %q, want that 2 events are left", told)
	}
	rows[5].snoozes, rows[9].attempts, got.lost = 0, 1, nil
	if told := calm.unplayed(rows, got); len(told) != 4 {
		t.Errorf("told %q, want that none was retried, none waited for the webhook, and no answer was lost", told)
	}
}
