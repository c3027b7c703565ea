// Command bench measures what a claim costs and how fast a pass drains the outbox, beside other ways to do the same
// job, in databases of its own on the PostgreSQL server that OUTBOX_TEST_DATABASE_URL names. It prints a table, and
// one JSON line per figure; docs/performance.md explains them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := os.Getenv("OUTBOX_TEST_DATABASE_URL") //nolint:forbidigo // this is a command: the one place that reads it
	if err := run(ctx, url, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
