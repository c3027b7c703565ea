// Package routes reads the routes file: which event type goes to which destination. docs/routes.md describes the
// file, docs/routes.schema.json is its schema for editors.
//
// [Parse] reports every fault at once, each with its line, and shows keys only, never a value.
package routes

import (
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
	// Routes leads from an event type to the name of its destination.
	Routes map[string]string
}

// Destination is one place; exactly one of its kinds is set.
type Destination struct {
	// Timeout is the time for one event.
	Timeout time.Duration
	// HTTP is set for a webhook.
	HTTP *handlers.HTTPConfig
	// SNS is set for a topic, without its client.
	SNS *handlers.SNSConfig
	// SES is set for mail, without its client.
	SES *handlers.SESConfig
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
	// AWS is what the clients of SNS and SES are made of, one of each for all destinations. Its HTTP client should
	// keep Concurrency idle connections. It is needed only if [File.FirstOnAWS] names a destination.
	AWS aws.Config
}

// Registry builds one handler for each destination and routes every type of the file to its handler. The name of
// the destination is the key of its circuit.
func Registry(file File, options Options) (outbox.Registry, error) {
	var faults []error
	shared := &clients{options: options}
	built := make(map[string]outbox.Route, len(file.Destinations))
	for name, destination := range file.Destinations {
		handler, err := destination.handler(shared)
		if err != nil {
			faults = append(faults, fmt.Errorf("destination %s: %w", name, err))
			continue
		}
		built[name] = outbox.Route{Handler: handler, Timeout: destination.Timeout, Destination: name}
	}
	registry := make(outbox.Registry, len(file.Routes))
	for eventType, name := range file.Routes {
		route, found := built[name]
		if _, failed := file.Destinations[name]; !found && !failed {
			faults = append(faults, fmt.Errorf("route %q: no destination %q", eventType, name))
		}
		registry[eventType] = route
	}
	if len(faults) > 0 {
		slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, errors.Join(faults...)
	}
	return registry, nil
}

func (d Destination) handler(shared *clients) (outbox.Handler, error) {
	switch {
	case d.HTTP != nil:
		config := *d.HTTP
		config.MaxIdleConns = shared.options.Concurrency
		config.UserAgent = shared.options.UserAgent
		config.RootCAs = shared.options.RootCAs
		return handlers.NewHTTP(config)
	case d.SNS != nil:
		client, err := shared.forSNS()
		if err != nil {
			return nil, err
		}
		config := *d.SNS
		config.Client = client
		return handlers.NewSNS(config)
	case d.SES != nil:
		client, err := shared.forSES()
		if err != nil {
			return nil, err
		}
		config := *d.SES
		config.Client = client
		return handlers.NewSES(config)
	}
	return nil, fmt.Errorf("has no kind, takes one of %s", strings.Join(kinds(), ", "))
}
