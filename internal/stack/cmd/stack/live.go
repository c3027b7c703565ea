package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/openlup/outbox-dispatch/internal/stack/live"
)

// keep runs up, serve or down: a stack for exploration; serve is its process, started by up.
func keep(ctx context.Context, command string, args []string) error {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	folder := flags.String("folder", ".local", "for the stack's own files; each folder has its own stack")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config := live.Config{Root: ".", Folder: *folder, Out: os.Stdout}
	switch command {
	case "serve":
		return live.Serve(ctx, config.Root, *folder)
	case "down":
		return live.Down(ctx, config)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	config.Program = []string{program, "serve", "-folder", *folder}
	if err := live.Up(ctx, config); err != nil {
		// Not wrapped: the exit code of a compiler that failed on the way is not this command's.
		return errors.New(err.Error())
	}
	return nil
}
