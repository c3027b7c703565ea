package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// DefaultHandlerTimeout is the time a handler has for one event when its [Route] names none.
const DefaultHandlerTimeout = 10 * time.Second

// Handler delivers one event.
//
// Returning a nil error means delivered: the event becomes processed, and the receipt, if any, is stored with it.
// A plain error is a retry: the attempt counts and the event comes back after a back-off, until the attempts are
// spent. [Discard], [Benign] and [Snooze] wrap an error to say otherwise. The error's text is stored in the row as
// the reason, so it must hold neither secrets nor payload.
//
// Handle is called concurrently for events of different aggregates, and may be called again for the same event:
// delivery is at least once. The context ends at the route's timeout; a handler that ignores that is abandoned
// shortly after, counted as a retry, and its goroutine is not waited for. A panic is a retry.
type Handler interface {
	Handle(ctx context.Context, event Event) (Receipt, error)
}

// BatchHandler is what a Handler may implement beside, to take several events in one call. A pass then collects what is
// ready, for as long as more of the queue is on its way, and calls HandleBatch for two events or more; a single one goes
// to Handle.
//
// All events of a batch have one type, and each another aggregate, so that they may be delivered in any order. The batch
// takes one slot of the pass's concurrency, and has the route's timeout as a whole. HandleBatch answers each event in its
// place; a missing answer, a panic and a timeout are a retry of every event without one.
type BatchHandler interface {
	Handler
	// BatchLimit is the largest number of events that HandleBatch takes; below 2, and where it panics, there are no batches. It is
	// asked before every call, by the pass itself, and must be quick.
	BatchLimit() int
	HandleBatch(ctx context.Context, events []Event) []Delivery
}

// Delivery is the answer to one event of a batch, as [Handler].Handle answers it.
type Delivery struct {
	Receipt Receipt
	Err     error
}

// Weigher is what a Handler may implement beside when its events count differently against their route's [Limit]: a
// mail to three people counts three. Without it each event counts one. Weight is called by the pass itself, maybe several times for
// an event, and must be quick; where it is below 1, or panics, the event counts one.
type Weigher interface {
	Weight(event Event) int
}

// maxPart is how many characters of a part go into its circuit's key.
const maxPart = 200

// HandlerFunc lets a function be a Handler.
type HandlerFunc func(ctx context.Context, event Event) (Receipt, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, event Event) (Receipt, error) { return f(ctx, event) }

// Receipt is what a destination answered, stored under its own keys in the row's metadata; nil stores nothing.
// Keys that the rail itself uses (claimToken, snoozeCount and so on) are dropped by the store. Values are encoded by
// encoding/json; what PostgreSQL would refuse (NUL in a text, numbers out of its range) is cleaned first.
type Receipt map[string]any

// Route says how events of one type are handled.
type Route struct {
	Handler Handler
	// Timeout is the time for one event; zero means [DefaultHandlerTimeout].
	Timeout time.Duration
	// Destination is the key of the circuit that outages of this route open; routes that share one share its
	// fate. Empty means the event type itself.
	Destination string
	// Part tells, of a destination that stands for many places (one endpoint for each customer), to which of them an event
	// goes: each has a circuit of its own, with the key "destination/part". It must depend on the event alone, and be quick.
	// Nil, and an empty answer, mean the destination as a whole.
	Part func(event Event) string
	// Prepare is told of the events of a claim that go to the destination, all at once and before Part and Handler see any of
	// them, so that what these need can be looked up in one go. Routes of one gate share one. Nil prepares nothing.
	Prepare func(ctx context.Context, events []Event)
	// OnDiscard is told of each discard of an event of this type, whoever discarded it: at least once, and without its payload.
	// It needs a [Config].Discards, and must be comparable, as pointers are. Nil tells nobody.
	OnDiscard Notifier
	// MaxAge is how long after its creation, by the database's clock, an event is still worth delivering; then it is
	// discarded, with the reason max_age_exceeded. Zero means for ever.
	MaxAge time.Duration
	// Concurrency is how many calls to the destination are under way at once, below the pass's own limit. Zero means no
	// limit beside that. Routes of one gate say the same.
	Concurrency int
	// Limit is how many events the destination takes in a second; nil means no limit. Routes of one gate share one.
	Limit *Limit
	// Gate names what Concurrency and Limit count for: routes with the same gate are counted together. Empty means
	// Destination; another name is for places that share their outages and yet have limits of their own.
	Gate string
}

// Registry maps event types to their routes. A pass takes its copy once, when it starts.
type Registry map[string]Route

// Discard wraps err to say that the event can never be delivered: it becomes discarded with err's text as its
// reason, logged as an error.
func Discard(err error) error { return &discardError{cause: orText(err, "discarded")} }

// Disable wraps err to say that the destination is gone for good: the event becomes discarded like with [Discard], and
// the destination's circuit stays open until an operator resets it, so that its other events wait.
func Disable(err error) error { return &discardError{cause: orText(err, "disabled"), disable: true} }

// Benign wraps err to say that the event need not be delivered any more: it becomes discarded like with [Discard],
// but is logged as a warning.
func Benign(err error) error { return &discardError{cause: orText(err, "discarded"), benign: true} }

// Snooze wraps err to say that the destination, not the event, is at fault: no attempt is counted, the event comes
// back after delay (zero means the pass's snooze seconds; PostgreSQL clamps it to 60 s .. 1 h), and the other
// events of the destination are held back for the rest of the pass.
func Snooze(err error, delay time.Duration) error {
	return &snoozeError{cause: orText(err, "snoozed"), delay: max(delay, 0)}
}

// OutcomeOf returns what a handler's error asks for: [Processed] for nil, [Discarded] and [Snoozed] for what [Discard],
// [Benign], [Disable] and [Snooze] wrapped, [Retry] for every other. A pass may see further: an attempt that is the last one,
// an invocation that was cancelled.
func OutcomeOf(err error) Outcome {
	var discard *discardError
	var snooze *snoozeError
	switch {
	case err == nil:
		return Processed
	case errors.As(err, &discard):
		return Discarded
	case errors.As(err, &snooze):
		return Snoozed
	default:
		return Retry
	}
}

type discardError struct {
	cause   error
	benign  bool
	disable bool
}

func (e *discardError) Error() string { return e.cause.Error() }
func (e *discardError) Unwrap() error { return e.cause }

type snoozeError struct {
	cause error
	delay time.Duration
}

func (e *snoozeError) Error() string { return e.cause.Error() }
func (e *snoozeError) Unwrap() error { return e.cause }

func orText(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// circuit returns the key of the circuit that an event belongs to.
func (r Route) circuit(event Event) (key string) {
	if r.Part == nil {
		return r.Destination
	}
	defer func() {
		if recover() != nil {
			key = r.Destination
		}
	}()
	part := cut(cleanText(r.Part(event)), maxPart)
	if part == "" {
		return r.Destination
	}
	return r.Destination + "/" + part
}

// snapshot copies the registry with its defaults filled in.
func (r Registry) snapshot() Registry {
	routes := make(Registry, len(r))
	for name, route := range r {
		if route.Timeout == 0 {
			route.Timeout = DefaultHandlerTimeout
		}
		if route.Destination == "" {
			route.Destination = name
		}
		route.Gate = orDefault(route.Gate, route.Destination)
		routes[name] = route
	}
	return routes
}

// validate reports every fault of the registry.
func (r Registry) validate() error {
	var faults []error
	firsts := map[string]string{} // types, by gate
	for _, name := range slices.Sorted(maps.Keys(r)) {
		route := r[name]
		if strings.Trim(name, " ") == "" {
			faults = append(faults, errors.New("registry: an event type is blank"))
		}
		if route.Handler == nil {
			faults = append(faults, fmt.Errorf("registry: %q has no handler", name))
		}
		if route.Timeout < 0 {
			faults = append(faults, fmt.Errorf("registry: %q has timeout %v, must not be negative", name, route.Timeout))
		}
		if route.MaxAge < 0 {
			faults = append(faults, fmt.Errorf("registry: %q has max age %v, must not be negative", name, route.MaxAge))
		}
		if route.Concurrency < 0 {
			faults = append(faults, fmt.Errorf("registry: %q has concurrency %d, must not be negative", name, route.Concurrency))
		}
		if route.OnDiscard != nil && !reflect.TypeOf(route.OnDiscard).Comparable() {
			faults = append(faults, fmt.Errorf("registry: %q tells discards to a %T, takes what is comparable, like a pointer", name, route.OnDiscard))
		}
		gate := orDefault(route.Gate, orDefault(route.Destination, name))
		first, shared := firsts[gate]
		if shared && (route.Concurrency != r[first].Concurrency || route.Limit != r[first].Limit) {
			faults = append(faults, fmt.Errorf("registry: %q and %q share the gate %q, and must share its concurrency and limit",
				first, name, gate))
		} else if !shared {
			firsts[gate] = name
		}
	}
	return errors.Join(faults...)
}
