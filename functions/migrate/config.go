package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/openlup/outbox-dispatch/internal/database"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// lockTimeoutVariable is a Go duration; see postgres.Migrator.LockTimeout.
const (
	lockTimeoutVariable = "OUTBOX_MIGRATE_LOCK_TIMEOUT"
	lockTimeoutMin      = 10 * time.Millisecond
	lockTimeoutMax      = 5 * time.Minute
)

// config is what the environment says. The variables of the database are named in database.Variables.
type config struct {
	database    database.Config
	lockTimeout time.Duration
}

// loadConfig reports all faults together.
func loadConfig(getenv func(string) string) (config, error) {
	db, dbErr := database.FromEnv(getenv)
	lockTimeout, err := duration(getenv, lockTimeoutVariable, postgres.DefaultLockTimeout)
	return config{database: db, lockTimeout: lockTimeout}, errors.Join(dbErr, err)
}

// duration reads a variable that counts as unset when it is empty.
func duration(getenv func(string) string, name string, otherwise time.Duration) (time.Duration, error) {
	text := getenv(name)
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < lockTimeoutMin || d > lockTimeoutMax {
		return 0, fmt.Errorf("%s: %q, takes a duration like 5s between %v and %v", name, text, lockTimeoutMin, lockTimeoutMax)
	}
	return d, nil
}
