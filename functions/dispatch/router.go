package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openlup/outbox-dispatch/internal/routes"
	"github.com/openlup/outbox-dispatch/outbox"
)

// router turns the routes' text into what a worker needs. It is safe for concurrent use.
type router struct {
	getenv  func(string) string
	cloud   *cloud
	secrets *secrets
	// endpoints has its database before the first invocation.
	endpoints endpoints
}

// source is a routes file: its text, and the name that stands before the line in every fault.
type source struct {
	text []byte
	name string
}

// check reports what can be told of the routes without their secrets, and returns the references to those. Where there
// are none, file is all of the routes.
func (r *router) check(from source) (file routes.File, references []string, err error) {
	file, unknown, err := routes.Check(from.text, from.name, r.lookup(nil), routes.IsSecret)
	return file, secretsAmong(unknown), err
}

// parse reads the routes. secrets are those that they refer to.
func (r *router) parse(from source, secrets map[string]string) (routes.File, error) {
	return routes.Parse(from.text, from.name, r.lookup(secrets))
}

// lookup gives variables of the environment, and those secrets.
func (r *router) lookup(secrets map[string]string) routes.Lookup {
	return func(name string) (string, bool) {
		if routes.IsSecret(name) {
			value, found := secrets[name]
			return value, found
		}
		value := r.getenv(name)
		return value, value != ""
	}
}

// route fills in the worker's registry and known types. name stands before every fault.
func (r *router) route(ctx context.Context, worker *outbox.Config, file routes.File, name string) (err error) {
	options := routes.Options{Concurrency: worker.Concurrency, Endpoints: &r.endpoints, Secret: r.endpointSecret}
	if destination := file.FirstOnAWS(); destination != "" {
		if options.AWS, err = r.cloud.config(ctx); err != nil {
			return fmt.Errorf("%s: destination %s: %w", name, destination, err)
		}
	}
	registry, err := routes.Registry(file, options) //nolint:contextcheck // requests are made ready, none is sent
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	worker.Registry, worker.KnownTypes = registry, file.Known
	var faults []error
	for destination, d := range file.Destinations {
		if d.Timeout+outbox.MarkMargin >= worker.Visibility {
			faults = append(faults, fmt.Errorf("%s: got %v, takes more than the timeout of destination %s (%v) and %v",
				visibility, worker.Visibility, destination, d.Timeout, outbox.MarkMargin))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

// readRoutes returns the routes that are in the environment or in a file.
func readRoutes(getenv func(string) string) (source, error) {
	if inline := getenv(routesText); inline != "" {
		return source{[]byte(inline), routesText}, nil
	}
	path, variable := getenv(routesFile), routesFile
	if strings.Contains(path, "\n") { // the routes themselves, which an error would show
		return source{}, fmt.Errorf("%s: holds several lines, takes a path; the routes themselves go into %s", routesFile, routesText)
	}
	if path == "" {
		binary, err := os.Executable()
		if err != nil {
			return source{}, fmt.Errorf("%s: not set, and the binary's folder is unknown: %w", routesFile, err)
		}
		path, variable = filepath.Join(filepath.Dir(binary), "routes.yaml"), routesFile+" (not set)"
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return source{}, fmt.Errorf("%s: takes a readable file, or set %s: %w", variable, routesText, err)
	}
	return source{text, path}, nil
}
