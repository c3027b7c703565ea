package main

import (
	"context"
	"os"

	"github.com/openlup/outbox-dispatch/internal/stack/rail"
)

// runRail plays the whole rail and tells the story on standard output.
func runRail(ctx context.Context, noColour bool) error {
	info, err := os.Stdout.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return rail.Run(ctx, rail.Config{Root: ".", Out: os.Stdout, Colour: terminal && !noColour})
}
