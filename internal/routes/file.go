// Package routes reads the routes file: which event type goes to which destination. docs/routes.md describes the
// file, docs/routes.schema.json is its schema for editors.
//
// [Parse] reports every fault at once, each with its line, and shows keys only, never a value.
package routes

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// Bounds of a file.
const (
	Version = 1

	// DefaultTimeout is the timeout of a destination that names none.
	DefaultTimeout = 10 * time.Second
	MinTimeout     = 100 * time.Millisecond
	MaxTimeout     = 900 * time.Second // a Lambda function lives no longer

	maxFileSize = 1 << 20
)

// File is a valid routes file, with its variables replaced and its defaults filled in. It holds secrets.
type File struct {
	// Known are the event types that other workers consume, in the file's order.
	Known []string
	// Destinations are the places events go to, by name.
	Destinations map[string]Destination
	// Routes leads from an event type to its destination.
	Routes map[string]Route
}

// Route is how events of one type get to their destination.
type Route struct {
	// To is the destination's name.
	To string
	// MaxAge is how long an event is worth delivering: the route's own, or its destination's; zero means for ever.
	MaxAge time.Duration
	// Outcomes are the route's own, or its destination's.
	Outcomes handlers.Outcomes
	// OnDiscard is the route's own, or its destination's.
	OnDiscard OnDiscard
}

// Destination is one place; exactly one of its kinds is set.
type Destination struct {
	// Timeout is the time for one event.
	Timeout time.Duration
	// Concurrency is how many calls are under way at once; zero means no limit beside the worker's.
	Concurrency int
	// Rate is how many events it takes in a second; zero means any number. Of mail it counts recipients, and the lowest
	// one holds for all destinations, since they share the account's.
	Rate float64
	// Circuit is the key of the circuit; empty means the destination's name.
	Circuit string
	// MaxAge, Outcomes and OnDiscard are for routes that have none of their own.
	MaxAge    time.Duration
	Outcomes  handlers.Outcomes
	OnDiscard OnDiscard
	// Envelope is what surrounds a payload; mail has none.
	Envelope handlers.Envelope
	// HTTP is set for a webhook.
	HTTP *handlers.HTTPConfig
	// Endpoints is set for the endpoints of tenants, without their source and secrets.
	Endpoints *handlers.EndpointsConfig
	// SNS is set for a topic, without its client.
	SNS *handlers.SNSConfig
	// SES is set for mail, without its client.
	SES *handlers.SESConfig
}

// Kind is the name of the destination's kind.
func (d Destination) Kind() string {
	switch {
	case d.HTTP != nil:
		return "http"
	case d.Endpoints != nil:
		return "endpoints"
	case d.SNS != nil:
		return "sns"
	case d.SES != nil:
		return "ses"
	}
	return ""
}

// Options are what a file does not say about its handlers.
type Options struct {
	// Concurrency is the number of events delivered at once; each destination keeps that many idle connections.
	// Zero means [outbox.DefaultConcurrency].
	Concurrency int
	// UserAgent replaces [handlers.DefaultUserAgent].
	UserAgent string
	// RootCAs are the authorities trusted for https; nil means the system's.
	RootCAs *x509.CertPool
	// Endpoints looks up the endpoints of tenants, and Secret reads the secrets that they refer to. Both are needed only if
	// [File.UsesEndpoints].
	Endpoints handlers.EndpointSource
	Secret    func(ctx context.Context, reference string) (string, error)
	// AWS is what the clients of its services are made of, one of each for all destinations. Its HTTP client should
	// keep Concurrency idle connections. It is needed only if [File.FirstOnAWS] names a destination.
	AWS aws.Config
}

// Registry builds one handler for each destination and routes every type of the file to its handler.
func Registry(file File, options Options) (outbox.Registry, error) {
	var faults []error
	shared := &clients{options: options, mail: mail{most: file.mailRate()}}
	built := make(map[string]outbox.Route, len(file.Destinations))
	for name, destination := range file.Destinations {
		route, err := destination.route(name, shared)
		if err != nil {
			faults = append(faults, fmt.Errorf("destination %s: %w", name, err))
			continue
		}
		built[name] = route
	}
	registry := make(outbox.Registry, len(file.Routes))
	for eventType, to := range file.Routes {
		route, found := built[to.To]
		if _, failed := file.Destinations[to.To]; !found && !failed {
			faults = append(faults, fmt.Errorf("route %q: no destination %q", eventType, to.To))
		}
		if found {
			var err error
			if route.OnDiscard, err = shared.notifier(to.OnDiscard); err != nil {
				faults = append(faults, fmt.Errorf("route %q: on_discard: %w", eventType, err))
			}
			route.MaxAge, route.Handler = to.MaxAge, to.Outcomes.Over(route.Handler)
		}
		registry[eventType] = route
	}
	if len(faults) > 0 {
		slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, errors.Join(faults...)
	}
	return registry, nil
}

// route is what all routes to a destination have in common. The circuit is what outages hold, and may be another
// destination's too; the gate, which limits count for, is its own.
func (d Destination) route(name string, shared *clients) (outbox.Route, error) {
	handler, err := d.handler(shared)
	if err != nil {
		return outbox.Route{}, err
	}
	route := outbox.Route{Handler: handler, Timeout: d.Timeout, Destination: name, Gate: name, Concurrency: d.Concurrency}
	if endpoints, many := handler.(*handlers.Endpoints); many {
		route.Prepare, route.Part = endpoints.Prepare, endpoints.Part
	}
	if d.Circuit != "" {
		route.Destination = d.Circuit
	}
	switch {
	case d.SES != nil:
		route.Limit = shared.rate.Limit()
	case d.Rate > 0:
		route.Limit = outbox.NewLimit(d.Rate)
	}
	if topics, ok := handler.(*handlers.SNS); ok && len(d.SNS.Topics) > 0 {
		route.Part = topics.Part
	}
	return route, nil
}

func (d Destination) handler(shared *clients) (outbox.Handler, error) {
	switch {
	case d.HTTP != nil:
		return handlers.NewHTTP(shared.options.overHTTP(*d.HTTP, d.Envelope))
	case d.Endpoints != nil:
		return shared.options.forEndpoints(*d.Endpoints, d.Envelope)
	case d.SNS != nil:
		client, err := shared.forSNS()
		if err != nil {
			return nil, err
		}
		config := *d.SNS
		config.Client, config.Envelope = client, d.Envelope
		return handlers.NewSNS(config)
	case d.SES != nil:
		return shared.forSES(*d.SES)
	}
	return nil, fmt.Errorf("has no kind, takes one of %s", strings.Join(kinds(), ", "))
}
