package rail

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// world is a small run in which everything went well.
func world() ([]row, []request) {
	rows := []row{
		{event: event{aggregateID: "a", eventType: "order.placed", key: "1", fate: delivered}, id: "1", position: 1, status: "processed", stored: "{}"},
		{event: event{aggregateID: "a", eventType: "order.paid", key: "2", fate: delivered}, id: "2", position: 2, status: "processed", stored: "{}"},
		{event: event{aggregateID: "b", eventType: "user.invited", key: "3", fate: refused}, id: "3", position: 3, status: "discarded", stored: "{}"},
		{event: event{aggregateID: "b", eventType: "order.archived", key: "4", fate: untouched}, id: "4", position: 4, status: "pending", stored: "{}"},
	}
	answered := func(endpoint, id string, status int) request {
		return request{endpoint: endpoint, id: id, body: "{}", signed: true, status: status}
	}
	return rows, []request{answered("crm", "1", http.StatusOK), answered("crm", "2", http.StatusOK), answered("mail", "3", http.StatusGone)}
}

func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	if rows, requests := world(); len(differences(rows, requests)) != 0 {
		t.Fatalf("differences in a run that went well: %v", differences(rows, requests))
	}
	for _, c := range []struct {
		name, want string
		change     func(rows []row, requests []request) []request
	}{
		{"dropped", "was accepted 0 times", func(_ []row, q []request) []request { return q[1:] }},
		{"twice", "was accepted 2 times", func(_ []row, q []request) []request { return append(q, q[1]) }},
		{"reordered", "delivered after its successor", func(_ []row, q []request) []request { slices.Reverse(q); return q }},
		{"altered", "the body differs", func(_ []row, q []request) []request { q[0].body = "{ }"; return q }},
		{"unsigned", "bad signature", func(_ []row, q []request) []request { q[0].signed = false; return q }},
		{"elsewhere", "went to mail", func(_ []row, q []request) []request { q[0].endpoint = "mail"; return q }},
		{"unknown", "never inserted", func(_ []row, q []request) []request { q[0].id = "9"; return q }},
		{"not discarded", "is failed, want discarded", func(r []row, q []request) []request { r[2].status = "failed"; return q }},
		{"foreign sent", "was sent 1 times", func(_ []row, q []request) []request {
			return append(q, request{id: "4", body: "{}", signed: true, status: 500})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rows, requests := world()
			found := differences(rows, c.change(rows, requests))
			if !strings.Contains(strings.Join(found, "\n"), c.want) {
				t.Errorf("differences %q, want one with %q", found, c.want)
			}
		})
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
