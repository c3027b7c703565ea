package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

// invocationLimit is the timeout of the functions; routesText fits into it.
const (
	invocationLimit = 20 * time.Second
	routesText      = `{version: 1, destinations: {crm: {http: {url: "https://crm.example.com/hooks", ` +
		`secrets: ["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="], timeout: 5s}}}, routes: {order.placed: {to: crm}}}`
)

// coldStart measures, under the Lambda runtime emulator, from an invocation that has to start the process to the
// first claim on the wire, and to the answer of a function that does nothing.
func (b *bench) coldStart(ctx context.Context) (err error) {
	db, err := b.outbox(ctx, "cold")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.drop(ctx, db)) }()
	builder := lambda.Builder{Root: b.root, Log: os.Stderr}
	emulator, err := builder.Emulator(ctx)
	if err != nil {
		return err
	}
	dispatch, err := builder.Function(ctx, "dispatch")
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "outbox-bench-")
	if err != nil {
		return fmt.Errorf("build the empty function: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	empty := filepath.Join(folder, "bootstrap")
	if err := b.buildEmpty(ctx, empty); err != nil {
		return err
	}
	found, err := medians(ctx, b.starts, []contender{
		{"peer_empty_function", func(ctx context.Context) (float64, error) {
			return invokeCold(ctx, lambda.Config{Emulator: emulator, Binary: empty, Timeout: invocationLimit}, nil)
		}},
		{"cold_start", func(ctx context.Context) (took float64, err error) {
			wire, err := watch(ctx, db.Config().ConnConfig, "outbox_claim")
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, wire.close()) }()
			return invokeCold(ctx, lambda.Config{Emulator: emulator, Binary: dispatch, Timeout: invocationLimit, Env: []string{
				"DATABASE_URL=" + wire.databaseURL(), "OUTBOX_ROUTES=" + routesText, "OUTBOX_ROUTES_FILE=",
			}}, wire)
		}},
	})
	if err != nil {
		return err
	}
	b.add(figure{Name: "peer_empty_function", Value: found["peer_empty_function"], Unit: "ms"})
	b.compare(figure{Name: "cold_start", Value: found["cold_start"], Unit: "ms"}, "peer_empty_function", atMost(3))
	return nil
}

// buildEmpty builds the empty function as the product's functions are built.
func (b *bench) buildEmpty(ctx context.Context, out string) error {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags", "lambda.norpc", "-o", out, "./emptyfunction"}
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // our own folder
	cmd.Dir, cmd.Stderr = filepath.Join(b.root, "bench"), os.Stderr
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the empty function: %w", err)
	}
	return nil
}

// invokeCold starts a sandbox, whose function starts with the first invocation, and returns the milliseconds from
// there to the reply or, with a wire to watch, to what it waits for.
func invokeCold(ctx context.Context, config lambda.Config, wire *wire) (float64, error) {
	config.Log = io.Discard
	function, err := lambda.Start(ctx, config)
	if err != nil {
		return 0, err
	}
	defer function.Stop()
	began := time.Now()
	reply, err := function.Invoke(ctx, []byte("{}"))
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	if wire != nil {
		if !lambda.Succeeded(reply) {
			return 0, fmt.Errorf("the dispatch function failed: %s", reply)
		}
		at, ok := wire.seen()
		if !ok {
			return 0, errors.New("the dispatch function sent no claim")
		}
		took = at.Sub(began)
	}
	return milliseconds(took), nil
}

// databaseURL is where a function finds its database, the wire between.
func (w *wire) databaseURL() string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(w.target.User, w.target.Password), Host: w.listener.Addr().String(),
		Path: "/" + w.target.Database, RawQuery: "sslmode=disable",
	}
	return u.String()
}
