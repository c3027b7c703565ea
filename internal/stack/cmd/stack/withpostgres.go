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

// withPostgres runs a command beside a private server, or beside the one that the environment names already.
func withPostgres(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("with-postgres", flag.ContinueOnError)
	durable := flags.Bool("durable", false, "commits wait for the disk")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("with-postgres: no command given")
	}
	url := os.Getenv(databaseVariable)
	if url == "" {
		server, err := postgres.Start(ctx, postgres.Config{Durable: *durable})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		fmt.Fprintf(os.Stderr, "postgresql: %s\n", server.From)
		url = server.URL
	}
	cmd := exec.CommandContext(ctx, flags.Arg(0), flags.Args()[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), databaseVariable+"="+url)
	return cmd.Run()
}
