package outboxtest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// The types of the suite's rows. Only typeMine is claimed, unless a case says otherwise.
const (
	typeMine  = "suite.mine"
	typeOther = "suite.other"
)

// suite is what a case works with. Rows go by their key, "aggregate/number": rows of one aggregate share what stands
// before the slash.
type suite struct {
	testing.TB
	Harness
	ids map[string]string // key -> id
}

// insert adds plain rows of typeMine with these keys, in this order.
func (s *suite) insert(keys ...string) {
	for _, key := range keys {
		s.insertRow(key, Row{})
	}
}

// insertRow adds a row with that key; its type defaults to typeMine, its aggregate to the key's.
func (s *suite) insertRow(key string, row Row) {
	row.IdempotencyKey = key
	row.Type = orDefault(row.Type, typeMine)
	row.AggregateID = orDefault(row.AggregateID, aggregateID(key))
	s.ids[key] = s.Insert(row)
}

// insertMany adds n rows, each of an aggregate of its own, with the keys 1/<name>, 2/<name> and so on.
func (s *suite) insertMany(n int, name string, row Row) {
	for i := range n {
		s.insertRow(fmt.Sprintf("%d/%s", i+1, name), row)
	}
}

func aggregateID(key string) string {
	name, _, _ := strings.Cut(key, "/")
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", hash.Sum32())
}

func (s *suite) row(key string) Row { return s.Row(s.ids[key]) }

// update changes the row as an operator would.
func (s *suite) update(key string, change func(row *Row)) {
	row := s.row(key)
	change(&row)
	s.Update(row)
}

// expire makes rows due: delays and leases are over.
func (s *suite) expire(keys ...string) {
	for _, key := range keys {
		s.update(key, func(row *Row) { row.AvailableAt = s.Now().Add(-time.Second) })
	}
}

// request claims these types, typeMine when there are none, one event of an aggregate at a time.
func request(types ...string) outbox.ClaimRequest {
	if len(types) == 0 {
		types = []string{typeMine}
	}
	return outbox.ClaimRequest{EventTypes: types, LaneDepth: 1}
}

// claim returns the claimed events, oldest first.
func (s *suite) claim(req outbox.ClaimRequest) []outbox.Event {
	s.Helper()
	return s.claimAt(req).Events
}

// claimAt returns the claimed events, oldest first, and where the claim came to.
func (s *suite) claimAt(req outbox.ClaimRequest) outbox.Claim {
	s.Helper()
	claim, err := s.Store.Claim(s.Context(), req)
	if err != nil {
		s.Fatalf("Claim(%+v): %v", req, err)
	}
	slices.SortFunc(claim.Events, func(a, b outbox.Event) int { return int(a.Position - b.Position) })
	return claim
}

// claimOne claims a row that is alone in what can be claimed.
func (s *suite) claimOne(key string) outbox.Event {
	s.Helper()
	events := s.claim(request())
	if len(events) != 1 || events[0].IdempotencyKey != key {
		s.Fatalf("claimed %q, want %q alone", keysOf(events), key)
	}
	return events[0]
}

// wantClaim claims, and wants just these keys, oldest first and separated by spaces.
func (s *suite) wantClaim(req outbox.ClaimRequest, want string) []outbox.Event {
	s.Helper()
	events := s.claim(req)
	if got := keysOf(events); got != want {
		s.Errorf("claimed %q, want %q", got, want)
	}
	return events
}

func keysOf(events []outbox.Event) string {
	keys := make([]string, 0, len(events))
	for _, event := range events {
		keys = append(keys, event.IdempotencyKey)
	}
	return strings.Join(keys, " ")
}

// settlement of a claimed event.
func settlement(event outbox.Event, outcome outbox.Outcome) outbox.Settlement {
	return outbox.Settlement{EventID: event.ID, ClaimToken: event.ClaimToken(), Outcome: outcome}
}

// wantAnswers settles a batch under the default back-off, and wants these answers, each in its place.
func (s *suite) wantAnswers(batch []outbox.Settlement, want ...outbox.Answer) {
	s.Helper()
	s.wantAnswersUnder(outbox.Backoff{}, batch, want...)
}

func (s *suite) wantAnswersUnder(backoff outbox.Backoff, batch []outbox.Settlement, want ...outbox.Answer) {
	s.Helper()
	got, err := s.Store.Settle(s.Context(), batch, backoff)
	if err != nil {
		s.Fatalf("Settle: %v", err)
	}
	if !slices.Equal(got, want) {
		s.Errorf("Settle answered %q, want %q", got, want)
	}
}

// wantRow compares a row's status and attempts.
func (s *suite) wantRow(key, status string, attempts int) Row {
	s.Helper()
	row := s.row(key)
	if row.Status != status || row.Attempts != attempts {
		s.Errorf("row %s is %s after %d attempts, want %s after %d", key, row.Status, row.Attempts, status, attempts)
	}
	return row
}

// wantUnchanged wants a row to be as it was.
func (s *suite) wantUnchanged(key string, was Row) {
	s.Helper()
	is := s.row(key)
	if !sameRow(is, was) {
		s.Errorf("row %s became %s, want it as it was, %s", key, describe(is), describe(was))
	}
}

func sameRow(a, b Row) bool {
	for _, at := range []struct{ a, b time.Time }{
		{a.CreatedAt, b.CreatedAt}, {a.AvailableAt, b.AvailableAt}, {a.ProcessedAt, b.ProcessedAt},
	} {
		if !at.a.Equal(at.b) {
			return false
		}
	}
	return a.ID == b.ID && a.Position == b.Position && a.AggregateType == b.AggregateType &&
		a.AggregateID == b.AggregateID && a.Type == b.Type && a.IdempotencyKey == b.IdempotencyKey &&
		a.Status == b.Status && a.Attempts == b.Attempts && a.Error == b.Error &&
		sameJSON(a.Payload, b.Payload) && sameJSON(a.Metadata, b.Metadata)
}

func describe(r Row) string {
	return fmt.Sprintf("{%s, %d attempts, available %v, processed %v, error %q, metadata %s}",
		r.Status, r.Attempts, r.AvailableAt, r.ProcessedAt, r.Error, r.Metadata)
}

// sameJSON compares values, numbers digit by digit.
func sameJSON(a, b json.RawMessage) bool {
	var values [2]any
	for i, raw := range []json.RawMessage{a, b} {
		decoder := json.NewDecoder(strings.NewReader(string(raw)))
		decoder.UseNumber()
		if decoder.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// wantMetadata wants these keys of a row's metadata to hold these JSON values; "" means that the key is absent. Other
// keys don't matter.
func (s *suite) wantMetadata(key string, want map[string]string) {
	s.Helper()
	raw := s.row(key).Metadata
	var got map[string]json.RawMessage
	if json.Unmarshal(raw, &got) != nil || got == nil {
		s.Errorf("metadata of %s is %s, want an object", key, raw)
		return
	}
	for name, value := range want {
		has, present := got[name]
		if present != (value != "") || (present && !sameJSON(has, json.RawMessage(value))) {
			s.Errorf("metadata of %s has %s = %s, want %q", key, name, has, value)
		}
	}
}

// stamp is a range of the store's time in which something happened.
type stamp struct{ from, until time.Time }

// during tells when do happened.
func (s *suite) during(do func()) stamp {
	from := s.Now()
	do()
	return stamp{from, s.Now()}
}

// wantTime wants a time between low and high after the moment. A millisecond is left for rounding.
func (s *suite) wantTime(what string, got time.Time, at stamp, low, high time.Duration) {
	s.Helper()
	from, until := at.from.Add(low-time.Millisecond).UTC().Round(0), at.until.Add(high+time.Millisecond).UTC().Round(0)
	if got.Before(from) || got.After(until) {
		s.Errorf("%s is %v, want between %v and %v", what, got, from, until)
	}
}

// wantTimestamp wants a metadata key to hold the moment as text.
func (s *suite) wantTimestamp(key, name string, at stamp) {
	s.Helper()
	var metadata map[string]any
	_ = json.Unmarshal(s.row(key).Metadata, &metadata)
	text, _ := metadata[name].(string)
	got, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		s.Errorf("metadata of %s has %s = %v, want a timestamp as text", key, name, metadata[name])
		return
	}
	s.wantTime(name, got, at, 0, 0)
}
