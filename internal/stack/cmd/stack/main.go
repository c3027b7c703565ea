// Command stack runs the project on local parts: see `stack help`. The Makefile calls it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
)

const usage = `usage, in the repository's root:
  stack with-postgres [-durable] -- COMMAND...   run COMMAND with OUTBOX_TEST_DATABASE_URL set to a private PostgreSQL
  stack invoke -function NAME [-event FILE] [-timeout SECONDS]
                                                 run a function under the emulator; standard output is its reply
  stack routes-check FILE                        checks a routes file without a network
  stack run                                      the whole rail on local parts, 600 events
  stack up [-folder DIR]                         the whole rail in the background, for exploration; prints how to use it
  stack down [-folder DIR]                       ends it, and cleans up after a crash
`

func main() {
	postgres.Helper()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(max(exit.ExitCode(), 1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stack:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "with-postgres":
		return withPostgres(ctx, os.Getenv(databaseVariable), args[1:])
	case "invoke":
		return invoke(ctx, args[1:])
	case "routes-check":
		return checkRoutes(args[1:], os.Getenv, os.Stdout, os.Stderr)
	case "run":
		return runRail(ctx, os.Getenv("NO_COLOR") != "")
	case "up", "serve", "down":
		return keep(ctx, args[0], args[1:])
	case "help", "-h", "--help":
		_, err := os.Stdout.WriteString(usage)
		return err
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}
