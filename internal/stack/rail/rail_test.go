package rail

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// world is a small run in which everything went well.
func world() (inserted []event, rows []row, requests []request) {
	const number = `{"n": 12345678901234567890}`
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
	} {
		key := strconv.Itoa(i + 1)
		e := event{
			aggregateType: "order", aggregateID: c.aggregateID, eventType: c.eventType,
			key: key, payload: c.payload, fate: c.fate,
		}
		inserted = append(inserted, e)
		rows = append(rows, row{
			event: e, id: key, position: int64(i + 1), status: c.status, attempts: c.attempts, stored: c.payload,
		})
	}
	rows[5].snoozes = 1
	for _, c := range []struct{ row, status int }{
		{0, 200}, {1, 200}, {2, 410}, {4, 422}, {4, 422}, {4, 422}, {5, 503}, {5, 200},
	} {
		r := rows[c.row]
		requests = append(requests, request{
			endpoint: endpoint(r.eventType), id: r.id, aggregate: r.aggregate(), eventType: r.eventType, key: r.key,
			position: strconv.FormatInt(r.position, 10), body: r.stored, signed: true, status: c.status,
		})
	}
	return inserted, rows, requests
}

func TestARunThatWentWellHasNoDifferences(t *testing.T) {
	t.Parallel()
	if found := differences(world()); len(found) != 0 {
		t.Errorf("differences %q, want none", found)
	}
}

// Each case breaks one thing; the checker must name it.
func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		change     func(r []row, q []request) ([]row, []request)
	}{
		{"dropped", "1 (order.placed, delivered): was accepted 0 times", func(r []row, q []request) ([]row, []request) { return r, q[1:] }},
		{"twice", "was accepted 2 times", func(r []row, q []request) ([]row, []request) { return r, append(q, q[1]) }},
		{"reordered", "1: delivered after its successor 2", func(r []row, q []request) ([]row, []request) { q[0], q[1] = q[1], q[0]; return r, q }},
		{"altered", "1: the body differs", func(r []row, q []request) ([]row, []request) { q[0].body += " "; return r, q }},
		{"rounded on the way", "1: the body lost digits", func(r []row, q []request) ([]row, []request) {
			q[0].body = `{"n": 12345678901234567000}`
			return r, q
		}},
		{"rounded in the table too", "1: the body lost digits", func(r []row, q []request) ([]row, []request) {
			r[0].stored, q[0].body = `{"n": 12345678901234567000}`, `{"n": 12345678901234567000}`
			return r, q
		}},
		{"unsigned", "1: a request to crm carried a bad signature", func(r []row, q []request) ([]row, []request) { q[0].signed = false; return r, q }},
		{"elsewhere", "1: went to mail", func(r []row, q []request) ([]row, []request) { q[0].endpoint = "mail"; return r, q }},
		{"under another position", "1: the headers name another event", func(r []row, q []request) ([]row, []request) { q[0].position = "2"; return r, q }},
		{"under another aggregate", "1: the headers name another event", func(r []row, q []request) ([]row, []request) {
			q[0].aggregate = "order/b"
			return r, q
		}},
		{"unknown", "never inserted: 9", func(r []row, q []request) ([]row, []request) { q[0].id = "9"; return r, q }},
		{"not discarded", "is failed, want discarded", func(r []row, q []request) ([]row, []request) { r[2].status = "failed"; return r, q }},
		{"given up early", "was sent 2 times, want 3", func(r []row, q []request) ([]row, []request) { return r, slices.Delete(q, 3, 4) }},
		{"charged for a snooze", "2 attempts and 1 snoozes are on record", func(r []row, q []request) ([]row, []request) { r[5].attempts = 2; return r, q }},
		{"another worker's sent", "was sent 1 times, want 0", func(r []row, q []request) ([]row, []request) {
			return r, append(q, request{id: "4", body: "{}", signed: true, status: 500})
		}},
		{"row lost before it was sent", "4: is in the table 0 times", func(r []row, q []request) ([]row, []request) { return slices.Delete(r, 3, 4), q }},
		{"row nobody inserted", "never inserted: 10", func(r []row, q []request) ([]row, []request) {
			return append(r, row{event: event{key: "10", fate: untouched}, id: "10", status: "pending"}), q
		}},
		{"nothing happened", "is in the table 0 times", func([]row, []request) ([]row, []request) { return nil, nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inserted, rows, requests := world()
			rows, requests = c.change(rows, requests)
			found := differences(inserted, rows, requests)
			if !strings.Contains(strings.Join(found, "\n"), c.want) {
				t.Errorf("differences %q, want one with %q", found, c.want)
			}
		})
	}
}

func TestTheScenarioIsWhatItSays(t *testing.T) {
	t.Parallel()
	aggregates, keys, fates := map[string]bool{}, map[string]bool{}, map[fate]int{}
	waited := map[string]event{} // the last trouble of an aggregate that has no successor yet
	for _, e := range scenario() {
		aggregates[e.aggregate()], keys[e.key] = true, true
		fates[e.fate]++
		if e.fate != delivered {
			waited[e.aggregate()] = e
		} else {
			delete(waited, e.aggregate())
		}
	}
	if len(aggregates) != 40 || len(keys) != eventCount {
		t.Errorf("%d aggregates, %d keys, want 40 and %d", len(aggregates), len(keys), eventCount)
	}
	want := map[fate]int{delivered: eventCount - 5, refused: 2, malformed: 1, untouched: 2}
	if !maps.Equal(fates, want) {
		t.Errorf("fates %v, want %v", fates, want)
	}
	for _, e := range waited {
		t.Errorf("%s (%s) has no successor in its aggregate, so it cannot show that it blocks nothing", e.key, e.fate)
	}
}

func TestATroubleThatNeverHappenedIsTold(t *testing.T) {
	t.Parallel()
	calm := run{passes: []pass{{Claimed: 9, Processed: 8, Discarded: 1}}}
	if got := calm.unplayed(); len(got) != 2 {
		t.Errorf("told %q, want that none was retried and none snoozed", got)
	}
	stuck := run{left: 2, passes: []pass{{Retried: 1, Snoozed: 1, Discarded: 1}}}
	if got := stuck.unplayed(); !slices.Equal(got, []string{"not drained: 2 events left after 1 passes"}) {
		t.Errorf("told %q, want that 2 events are left", got)
	}
	full := run{passes: []pass{{Retried: 1, Snoozed: 1}, {Discarded: 1}}}
	if got := full.unplayed(); len(got) != 0 {
		t.Errorf("told %q, want nothing", got)
	}
}

func TestTimestampsAreOfNow(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for timestamp, want := range map[string]bool{
		"1700000000": true, "1699999700": true, "1700000300": true, "1699999699": false, "1700000301": false, "": false, "now": false,
	} {
		if got := recent(timestamp, now); got != want {
			t.Errorf("recent(%q) is %t, want %t", timestamp, got, want)
		}
	}
}

// The vector is that of the Standard Webhooks specification.
func TestVerify(t *testing.T) {
	t.Parallel()
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	const id, timestamp, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`
	const signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	for _, c := range []struct {
		name       string
		keys       [][]byte
		body, sent string
		want       bool
	}{
		{"the vector", [][]byte{key}, body, signature, true},
		{"another body", [][]byte{key}, body + " ", signature, false},
		{"another signature", [][]byte{key}, body, signature + "x", false},
		{"one of two", [][]byte{key, key}, body, signature, false},
		{"no key", nil, body, "", false},
	} {
		if got := verify(c.keys, id, timestamp, []byte(c.body), c.sent); got != c.want {
			t.Errorf("%s: verified %t, want %t", c.name, got, c.want)
		}
	}
}
