package main

import (
	"context"
	"errors"
	"os"

	"github.com/openlup/outbox-dispatch/internal/stack/rail"
)

// runRail plays the whole rail and tells the story on standard output.
func runRail(ctx context.Context, noColour bool) error {
	info, err := os.Stdout.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	if err := rail.Run(ctx, rail.Config{Root: ".", Out: os.Stdout, Colour: terminal && !noColour}); err != nil {
		// Not wrapped: the exit code of a compiler that failed on the way is not this command's, and its text must be told.
		return errors.New(err.Error())
	}
	return nil
}
