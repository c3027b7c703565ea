package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/openlup/outbox-dispatch/outbox"
)

// rail is what the configuration makes of the routes.
type rail struct {
	worker *outbox.Worker
	routed []string // event types with a route, sorted
}

func newRail(c outbox.Config) (*rail, error) {
	worker, err := outbox.NewWorker(c)
	if err != nil {
		return nil, err
	}
	return &rail{worker: worker, routed: slices.Sorted(maps.Keys(c.Registry))}, nil
}

// rails gives each invocation the rail of the routes as they are then. It is safe for concurrent use.
type rails struct {
	config config // with the worker's store
	fixed  bool   // no secret can change anything

	mu         sync.Mutex
	now        *rail             // nil: there never were routes that can be used, or they have a fault now
	routes     source            // what now was made of
	references []string          // of those
	values     map[string]string // of the references
}

// newRails makes the rail at once unless it takes a secret.
func newRails(c config, logger *slog.Logger) (*rails, error) {
	c.router.secrets.logger = logger
	r := &rails{config: c}
	if c.routesSecret != "" || len(c.references) > 0 {
		return r, nil
	}
	var err error
	r.fixed = true
	r.now, err = newRail(c.worker)
	return r, err
}

// current returns the rail, after reading those secrets for which that is due. One that cannot be read again changes
// nothing; one with a fault is an error until it is mended, as in a process that starts with it.
func (r *rails) current(ctx context.Context) (*rail, error) {
	if r.fixed {
		return r.now, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refresh(ctx); err != nil {
		r.now = nil
		r.config.router.secrets.forget() // so that the next invocation sees it mended
		return nil, err
	}
	return r.now, nil
}

func (r *rails) refresh(ctx context.Context) error {
	routes, references, err := r.read(ctx)
	if err != nil {
		return err
	}
	values, err := r.config.router.secrets.all(ctx, references)
	if err != nil {
		return fmt.Errorf("%s: %w", routes.name, err)
	}
	if r.now != nil && bytes.Equal(routes.text, r.routes.text) && maps.Equal(values, r.values) {
		return nil
	}
	file, err := r.config.router.parse(routes, values)
	if err != nil {
		return err
	}
	made := r.config.worker
	if err := r.config.router.route(ctx, &made, file, routes.name); err != nil {
		return err
	}
	if r.now, err = newRail(made); err != nil {
		return err
	}
	r.routes, r.references, r.values = routes, references, values
	return nil
}

// read returns the routes and the references in them.
func (r *rails) read(ctx context.Context) (source, []string, error) {
	if r.config.routesSecret == "" {
		return r.config.routes, r.config.references, nil
	}
	text, err := r.config.router.secrets.resolve(ctx, r.config.routesSecret)
	if err != nil {
		return source{}, nil, fmt.Errorf("%s: read the secret: %w", routesARN, err)
	}
	routes := source{[]byte(text), routesARN}
	if r.now != nil && bytes.Equal(routes.text, r.routes.text) {
		return routes, r.references, nil
	}
	_, references, err := r.config.router.check(routes)
	return routes, references, err
}
