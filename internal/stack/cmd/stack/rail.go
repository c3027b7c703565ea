package main

import (
	"context"
	"errors"
)

func runRail(context.Context) error { return errors.New("not yet") }
