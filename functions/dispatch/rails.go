package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	// secretLife is how long routes out of a secret are used before it is read again.
	secretLife = 10 * time.Minute
	// secretRetry is the pause before a secret that could not be read again is tried once more.
	secretRetry = time.Minute
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
	logger *slog.Logger

	mu   sync.Mutex // held while the secret is read, so that invocations that overlap read it once
	now  *rail      // nil: the secret was never read, or never held routes that can be used
	text string     // the secret that now was made of
	due  time.Time  // when to read the secret again, wall clock: the other one may stand still in a frozen sandbox
}

// newRails makes the rail at once unless a secret holds its routes.
func newRails(c config, logger *slog.Logger) (*rails, error) {
	r := &rails{config: c, logger: logger}
	if c.routesSecret != "" {
		return r, nil
	}
	var err error
	r.now, err = newRail(c.worker)
	return r, err
}

// current returns the rail, after reading the secret when that is due. A secret that cannot be read again leaves the
// rail as it is; one whose routes have a fault is an error until they are mended, as in a process that starts with it.
func (r *rails) current(ctx context.Context) (*rail, error) {
	if r.config.routesSecret == "" {
		return r.now, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil && time.Now().Round(0).Before(r.due) {
		return r.now, nil
	}
	text, err := r.read(ctx)
	switch {
	case err != nil && r.now != nil:
		r.due = time.Now().Round(0).Add(secretRetry)
		r.logger.LogAttrs(ctx, slog.LevelWarn, "[outbox-dispatch] routes_secret_unread", slog.String("error", err.Error()))
		return r.now, nil
	case err != nil:
		return nil, fmt.Errorf("%s: read the secret: %w", routesARN, err)
	}
	if r.now == nil || text != r.text {
		r.now = nil
		made := r.config.worker
		if err := r.config.router.route(ctx, &made, []byte(text), routesARN); err != nil {
			return nil, err
		}
		if r.now, err = newRail(made); err != nil {
			return nil, err
		}
		r.text = text
	}
	r.due = time.Now().Round(0).Add(secretLife)
	return r.now, nil
}

func (r *rails) read(ctx context.Context) (string, error) {
	cfg, err := r.config.router.cloud.config(ctx)
	if err != nil {
		return "", err
	}
	wait := secretTimeout
	if r.now != nil {
		wait = secretAgain
	}
	return readSecret(ctx, cfg, r.config.routesSecret, wait)
}
