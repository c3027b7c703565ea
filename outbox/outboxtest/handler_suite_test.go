package outboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox"
)

// sample is a handler as it should be; its functions are replaced by faulty ones.
type sample struct {
	handle func(ctx context.Context, event outbox.Event) (outbox.Receipt, error)
	batch  func(ctx context.Context, events []outbox.Event) []outbox.Delivery
}

func (s *sample) BatchLimit() int { return 4 }

func (s *sample) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	if s.handle != nil {
		return s.handle(ctx, event)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("cut off: %w", ctx.Err())
	}
	if string(event.Payload) == poisonous {
		return nil, outbox.Discard(errors.New("no order"))
	}
	return outbox.Receipt{"status": 200}, nil
}

func (s *sample) HandleBatch(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	if s.batch != nil {
		return s.batch(ctx, events)
	}
	answers := make([]outbox.Delivery, len(events))
	for i, event := range events {
		answers[i].Receipt, answers[i].Err = s.Handle(ctx, event)
	}
	return answers
}

const (
	poisonous = `{"note": "what the customer wrote"}`
	secret    = "s3cr3t"
)

func harnessOf(handler outbox.Handler) HandlerHarness {
	return HandlerHarness{
		Handler: handler,
		Event: func(int) outbox.Event {
			return outbox.Event{Payload: json.RawMessage(`{"text": "a text of some length"}`)}
		},
		Poison:  func() []outbox.Event { return []outbox.Event{{Payload: json.RawMessage(poisonous)}} },
		Secrets: []string{secret},
	}
}

func TestTheHandlerSuiteAcceptsAGoodHandler(t *testing.T) {
	t.Parallel()
	TestHandler(t, func(t *testing.T) HandlerHarness {
		t.Parallel()
		return harnessOf(&sample{})
	})
}

func TestTheHandlerSuiteAcceptsAPlainHandler(t *testing.T) {
	t.Parallel()
	TestHandler(t, func(t *testing.T) HandlerHarness {
		t.Parallel()
		return HandlerHarness{Handler: &Recorder{}, Event: func(int) outbox.Event { return outbox.Event{} }}
	})
}

// faultyHandlers are mistakes, by the cases that must fail on them.
func faultyHandlers() map[string]outbox.Handler {
	good := &sample{}
	var first atomic.Bool
	var once sync.Once
	second := make(chan struct{})
	return map[string]outbox.Handler{
		"delivers": &sample{handle: func(context.Context, outbox.Event) (outbox.Receipt, error) { return nil, errors.New("never") }},
		"receipt": &sample{handle: func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
			return outbox.Receipt{"sent": string(event.Payload)}, nil
		}},
		"event_is_left_alone": &sample{handle: func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
			event.Payload[0] = '['
			return nil, nil
		}},
		"at_once": &sample{handle: func(context.Context, outbox.Event) (outbox.Receipt, error) {
			if first.CompareAndSwap(false, true) {
				<-second
				return nil, nil
			}
			once.Do(func() { close(second) })
			return nil, errors.New("one at a time, please")
		}},
		"ended_context": &sample{handle: func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
			if ctx.Err() != nil {
				return nil, errors.New("some error")
			}
			return nil, nil
		}},
		"poison": &sample{handle: func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
			return nil, outbox.Discard(fmt.Errorf("no order: %s", event.Payload))
		}},
		"batch": &sample{batch: func(ctx context.Context, events []outbox.Event) []outbox.Delivery {
			return good.HandleBatch(ctx, events[:1])
		}},
		"batch_with_poison": &sample{batch: func(ctx context.Context, events []outbox.Event) []outbox.Delivery {
			answers := good.HandleBatch(ctx, events)
			for _, answer := range answers {
				if answer.Err != nil {
					return slices.Repeat([]outbox.Delivery{answer}, len(events))
				}
			}
			return answers
		}},
		"batch_ended_context": &sample{batch: func(ctx context.Context, events []outbox.Event) []outbox.Delivery {
			answers := good.HandleBatch(context.WithoutCancel(ctx), events)
			for i := range answers {
				if ctx.Err() != nil {
					answers[i].Err = outbox.Discard(ctx.Err())
				}
			}
			return answers
		}},
	}
}

func TestTheHandlerSuiteCatchesFaults(t *testing.T) {
	t.Parallel()
	faulty := faultyHandlers()
	for _, c := range handlerCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if faulty[c.name] == nil {
				t.Fatal("no fault breaks this case: it may be one that cannot fail")
			}
			tr := &trial{TB: t}
			var group sync.WaitGroup
			group.Go(func() { runHandlerCase(tr, c, harnessOf(faulty[c.name])) })
			group.Wait()
			if len(tr.messages) == 0 {
				t.Error("passed, want it to fail on a handler with that fault")
			}
			t.Log(strings.Join(tr.messages, "\n"))
		})
	}
}
