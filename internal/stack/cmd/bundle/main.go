// Command bundle builds the functions for Lambda, arm64. `make build` and, by way of the Makefile, `sam build` call it,
// so that both make the same bytes. It links nothing beyond the standard library, so that sam build need not wait for
// the local stack.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

const usage = `usage, in the repository's root:
  bundle                               both functions, zipped, into dist/
  bundle -function NAME -into FOLDER   what is in the zip of one function, into FOLDER
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bundle", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	name := flags.String("function", "", "")
	folder := flags.String("into", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	builder := lambda.Builder{Root: ".", Log: os.Stderr}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected %q\n%s", flags.Arg(0), usage)
	case *name == "" && *folder == "":
		return all(ctx, builder)
	case *name != "dispatch" && *name != "migrate":
		return fmt.Errorf("-function is %q, takes dispatch or migrate", *name)
	case *folder == "":
		return fmt.Errorf("-into is missing, takes the folder for function %s", *name)
	}
	_, err := place(ctx, builder, *name, *folder)
	return err
}
