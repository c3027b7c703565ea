package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

// invoke runs one invocation. Standard output is exactly the reply; everything else goes to standard error.
func invoke(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("invoke", flag.ContinueOnError)
	name := flags.String("function", "", "dispatch or migrate")
	eventFile := flags.String("event", "", "file with the event; none is {}")
	seconds := flags.Int("timeout", 30, "the invocation's timeout in whole seconds, 1..900")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *name != "dispatch" && *name != "migrate" {
		return fmt.Errorf("invoke: -function is %q, takes dispatch or migrate", *name)
	}
	if *seconds < 1 || *seconds > 900 {
		return fmt.Errorf("invoke: -timeout is %d, takes 1..900 seconds", *seconds)
	}
	event := []byte("{}")
	if *eventFile != "" {
		var err error
		if event, err = os.ReadFile(*eventFile); err != nil {
			return fmt.Errorf("invoke: %w", err)
		}
	}
	function, err := start(ctx, *name, lambda.Config{Timeout: time.Duration(*seconds) * time.Second, Log: os.Stderr})
	if err != nil {
		return err
	}
	defer function.Stop()
	reply, err := function.Invoke(ctx, event)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(os.Stdout, "%s\n", reply); err != nil {
		return err
	}
	if !lambda.Succeeded(reply) {
		return errors.New("the function did not succeed; its reply is on standard output")
	}
	return nil
}

// start builds what is missing and starts a sandbox of one of the project's functions.
func start(ctx context.Context, name string, config lambda.Config) (*lambda.Function, error) {
	builder := lambda.Builder{Root: ".", Log: os.Stderr}
	var err error
	if config.Emulator, err = builder.Emulator(ctx); err != nil {
		return nil, err
	}
	if config.Binary, err = builder.Function(ctx, name); err != nil {
		return nil, err
	}
	return lambda.Start(ctx, config)
}
