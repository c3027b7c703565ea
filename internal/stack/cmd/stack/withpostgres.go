package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
)

const databaseVariable = "OUTBOX_TEST_DATABASE_URL"

// withPostgres runs a command beside the server at url or, when that is empty, a private one.
func withPostgres(ctx context.Context, url string, args []string) (err error) {
	flags := flag.NewFlagSet("with-postgres", flag.ContinueOnError)
	durable := flags.Bool("durable", false, "commits wait for the disk")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("with-postgres: no command given")
	}
	if url == "" {
		server, err := postgres.Start(ctx, postgres.Config{Durable: *durable})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		fmt.Fprintf(os.Stderr, "postgresql: %s\n", server.From)
		url = server.URL
	}
	cmd := exec.CommandContext(ctx, flags.Arg(0), flags.Args()[1:]...) //nolint:gosec // running it is the job
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(cmd.Environ(), databaseVariable+"="+url)
	return cmd.Run()
}
