package outboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox"
)

// HandlerHarness is a handler, and the events to test it with. Handler and Event are required.
type HandlerHarness struct {
	Handler outbox.Handler
	// Event returns an event that the handler delivers, another one for each n, of an aggregate of its own. Fields left zero
	// get values of their own; Type is the same for all.
	Event func(n int) outbox.Event
	// Poison returns events that the handler discards; nil means that there are none.
	Poison func() []outbox.Event
	// Secrets are texts that may stand in no error and no receipt: keys, tokens. What stands in payloads may not either.
	Secrets []string
}

// handlerCase is one clause of what a pass expects of a handler.
type handlerCase struct {
	name        string
	explanation string
	check       func(s *handlerSuite)
}

type handlerSuite struct {
	testing.TB
	HandlerHarness
}

// TestHandler runs the suite of what a pass expects of every [outbox.Handler], each case as a subtest with a harness of its
// own. A handler that is also an [outbox.BatchHandler] is tested as one. Run it with the race detector: some faults only
// show there. docs/handlers.md, the guide to handlers of one's own, shows its use.
func TestHandler(t *testing.T, open func(t *testing.T) HandlerHarness) {
	t.Helper()
	for _, c := range handlerCases() {
		t.Run(c.name, func(t *testing.T) {
			runHandlerCase(t, c, open(t))
		})
	}
}

func handlerCases() []handlerCase {
	return []handlerCase{
		{"delivers", "an event that can be delivered is answered without an error", checkDelivers},
		{"receipt", "a receipt is stored as a JSON object, so it must become one, and holds no secret", checkReceipt},
		{"event_is_left_alone", "the event belongs to the pass: a handler changes nothing of it", checkEventIsLeftAlone},
		{"at_once", "events of different aggregates are handled at the same time", checkAtOnce},
		{"ended_context", "an error after the context's end wraps it, or an event that was only cut off is charged or lost", checkEndedContext},
		{"poison", "what can never be delivered is discarded, and its error shows neither payload nor secret", checkPoison},
		{"batch", "each event of a batch is answered, in its place", checkBatch},
		{"batch_with_poison", "an event that can't be delivered spoils no other of its batch", checkBatchWithPoison},
		{"batch_ended_context", "errors after the context's end wrap it", checkBatchEndedContext},
	}
}

func runHandlerCase(t testing.TB, c handlerCase, h HandlerHarness) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the clause: %s", c.explanation)
		}
	})
	c.check(&handlerSuite{TB: t, HandlerHarness: h})
}

// event returns the n-th event, whole.
func (s *handlerSuite) event(n int) outbox.Event {
	return withDefaults(s.Event(n), n)
}

func withDefaults(event outbox.Event, n int) outbox.Event {
	event.ID = orDefault(event.ID, newUUID())
	event.Position = orDefault(event.Position, int64(n)+1)
	event.Type = orDefault(event.Type, "suite.event")
	event.AggregateType = orDefault(event.AggregateType, "suite")
	event.AggregateID = orDefault(event.AggregateID, newUUID())
	event.IdempotencyKey = orDefault(event.IdempotencyKey, "suite-"+strconv.Itoa(n)+"-"+event.ID)
	event.Attempts = orDefault(event.Attempts, 1)
	if event.Payload == nil {
		event.Payload = json.RawMessage(`{}`)
	}
	if event.Metadata == nil {
		event.Metadata = json.RawMessage(`{}`)
	}
	return event
}

func (s *handlerSuite) poison() []outbox.Event {
	if s.Poison == nil {
		return nil
	}
	events := s.Poison()
	for i := range events {
		events[i] = withDefaults(events[i], i)
	}
	return events
}

func checkDelivers(s *handlerSuite) {
	if _, err := s.Handler.Handle(s.Context(), s.event(0)); err != nil {
		s.Errorf("the event was answered with %v, want it delivered", err)
	}
}

func checkReceipt(s *handlerSuite) {
	event := s.event(0)
	receipt, err := s.Handler.Handle(s.Context(), event)
	if err != nil || receipt == nil {
		return // another case judges the error
	}
	text, err := json.Marshal(receipt)
	if err != nil {
		s.Errorf("the receipt becomes no JSON: %v", err)
	}
	s.wantNoSecret("receipt", string(text), event)
}

// wantNoSecret looks for the harness's secrets, and for the texts of a payload that are long enough to be told apart.
func (s *handlerSuite) wantNoSecret(where, text string, event outbox.Event) {
	s.Helper()
	for _, secret := range slices.Concat(s.Secrets, payloadTexts(event.Payload)) {
		if secret != "" && strings.Contains(text, secret) {
			s.Errorf("the %s holds %q, want neither secret nor payload: %s", where, secret, text)
		}
	}
}

// payloadTexts returns what a payload says, where it is long enough not to stand somewhere by accident.
func payloadTexts(payload []byte) (texts []string) {
	const telling = 12
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case string:
			if len(value) >= telling {
				texts = append(texts, value)
			}
		case []any:
			for _, item := range value {
				walk(item)
			}
		case map[string]any:
			for _, item := range value {
				walk(item)
			}
		}
	}
	var value any
	if json.Unmarshal(payload, &value) == nil {
		walk(value)
	}
	return texts
}

func checkEventIsLeftAlone(s *handlerSuite) {
	event := s.event(0)
	payload, metadata := bytes.Clone(event.Payload), bytes.Clone(event.Metadata)
	_, _ = s.Handler.Handle(s.Context(), event)
	if !bytes.Equal(payload, event.Payload) || !bytes.Equal(metadata, event.Metadata) {
		s.Errorf("the event's payload or metadata changed, want them left alone")
	}
}

func checkAtOnce(s *handlerSuite) {
	const events = 16
	var group sync.WaitGroup
	faults := make([]error, events)
	for n := range events {
		event := s.event(n)
		group.Go(func() { _, faults[n] = s.Handler.Handle(s.Context(), event) })
	}
	group.Wait()
	if err := errors.Join(faults...); err != nil {
		s.Errorf("of %d events at once some failed, want all delivered: %v", events, err)
	}
}

// ended returns a context that has ended.
func (s *handlerSuite) ended() context.Context {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	return ctx
}

func checkEndedContext(s *handlerSuite) {
	_, err := s.Handler.Handle(s.ended(), s.event(0))
	s.wantCut(err)
}

// wantCut wants an event that was cut off to be told from one that failed; one that was delivered nevertheless is fine.
func (s *handlerSuite) wantCut(err error) {
	s.Helper()
	if err != nil && (!errors.Is(err, context.Canceled) || outbox.OutcomeOf(err) == outbox.Discarded) {
		s.Errorf("after the context's end the error is %q, a %s, want one that wraps context.Canceled", err, outbox.OutcomeOf(err))
	}
}

func checkPoison(s *handlerSuite) {
	for _, event := range s.poison() {
		_, err := s.Handler.Handle(s.Context(), event)
		s.wantDiscarded(event, err)
	}
}

func (s *handlerSuite) wantDiscarded(event outbox.Event, err error) {
	s.Helper()
	if outcome := outbox.OutcomeOf(err); outcome != outbox.Discarded {
		s.Errorf("event %s is answered as %s (%v), want it discarded", event.ID, outcome, err)
		return
	}
	s.wantNoSecret("error", err.Error(), event)
}

// batch calls HandleBatch where there is one, and checks that every event was answered.
func (s *handlerSuite) batch(ctx context.Context, compose func(limit int) []outbox.Event, judge func(event outbox.Event, err error)) {
	s.Helper()
	handler, batches := s.Handler.(outbox.BatchHandler)
	if !batches || handler.BatchLimit() < 2 {
		return
	}
	events := compose(handler.BatchLimit())
	answers := handler.HandleBatch(ctx, slices.Clone(events))
	if len(answers) != len(events) {
		s.Fatalf("%d of %d events of a batch are answered, want all", len(answers), len(events))
	}
	for i, event := range events {
		judge(event, answers[i].Err)
	}
}

func (s *handlerSuite) events(n int) []outbox.Event {
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = s.event(i)
	}
	return events
}

func (s *handlerSuite) wantDelivered(event outbox.Event, err error) {
	s.Helper()
	if err != nil {
		s.Errorf("event %s of a batch is answered with %v, want it delivered", event.ID, err)
	}
}

func checkBatch(s *handlerSuite) {
	s.batch(s.Context(), s.events, s.wantDelivered)
}

func checkBatchWithPoison(s *handlerSuite) {
	poison := s.poison()
	if len(poison) == 0 {
		return
	}
	bad := poison[0]
	withPoison := func(limit int) []outbox.Event {
		events := s.events(limit)
		events[limit/2] = bad
		return events
	}
	s.batch(s.Context(), withPoison, func(event outbox.Event, err error) {
		if event.ID == bad.ID {
			s.wantDiscarded(event, err)
		} else {
			s.wantDelivered(event, err)
		}
	})
}

func checkBatchEndedContext(s *handlerSuite) {
	s.batch(s.ended(), s.events, func(_ outbox.Event, err error) { s.wantCut(err) })
}
