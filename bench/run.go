package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// run measures everything that the arguments ask for. Figures found before an error are printed all the same.
func run(ctx context.Context, databaseURL string, args []string, stdout io.Writer) (err error) {
	o, err := parseOptions(args, os.Stderr)
	if err != nil {
		return err
	}
	if databaseURL == "" {
		return errors.New("OUTBOX_TEST_DATABASE_URL is not set: run `make bench`, which sets it, " +
			"or name a PostgreSQL server on which databases may be created")
	}
	ws, err := openWorkspace(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.close(ctx)) }()

	report := &report{machine: describeMachine(ctx, ws)}
	defer func() { err = errors.Join(err, report.write(stdout, o.json)) }()
	if err := measureClaims(ctx, ws, o, report); err != nil {
		return fmt.Errorf("claim cost: %w", err)
	}
	if o.events == 0 {
		return nil
	}
	if err := measureDrains(ctx, ws, o, report); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}
