// Command bench measures what the outbox can do and what it costs, beside other ways to do the same job, in databases
// of its own on the PostgreSQL server that OUTBOX_TEST_DATABASE_URL names. It prints tables, and one JSON line per
// figure; docs/performance.md explains them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
)

func main() {
	postgres.Helper()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if order := os.Getenv(childVariable); order != "" { //nolint:forbidigo // this is a command: the one place that reads it
		err = runChild(ctx, order, os.Stdout)
	} else {
		url := os.Getenv("OUTBOX_TEST_DATABASE_URL") //nolint:forbidigo // as above
		err = run(ctx, url, os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
