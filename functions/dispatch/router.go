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

// router turns the routes' text into what a worker needs. It is not safe for concurrent use.
type router struct {
	getenv func(string) string
	cloud  cloud
}

// route fills in the worker's registry and known types. name stands before the line in every fault.
func (r *router) route(ctx context.Context, worker *outbox.Config, text []byte, name string) error {
	file, err := routes.Parse(text, name, func(variable string) (string, bool) {
		value := r.getenv(variable)
		return value, value != ""
	})
	if err != nil {
		return err
	}
	options := routes.Options{Concurrency: worker.Concurrency}
	if destination := file.FirstOnAWS(); destination != "" {
		if options.AWS, err = r.cloud.config(ctx); err != nil {
			return fmt.Errorf("%s: destination %s: %w", name, destination, err)
		}
	}
	registry, err := routes.Registry(file, options)
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

// readRoutes returns the routes that are in the environment or in a file, and the name that their faults carry.
func readRoutes(getenv func(string) string) (text []byte, name string, err error) {
	if inline := getenv(routesText); inline != "" {
		return []byte(inline), routesText, nil
	}
	path, source := getenv(routesFile), routesFile
	if strings.Contains(path, "\n") { // the routes themselves, which an error would show
		return nil, "", fmt.Errorf("%s: holds several lines, takes a path; the routes themselves go into %s", routesFile, routesText)
	}
	if path == "" {
		binary, err := os.Executable()
		if err != nil {
			return nil, "", fmt.Errorf("%s: not set, and the binary's folder is unknown: %w", routesFile, err)
		}
		path, source = filepath.Join(filepath.Dir(binary), "routes.yaml"), routesFile+" (not set)"
	}
	text, err = os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, "", fmt.Errorf("%s: takes a readable file, or set %s: %w", source, routesText, err)
	}
	return text, path, nil
}
