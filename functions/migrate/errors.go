package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/openlup/outbox-dispatch/internal/database"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// The name of a returned error's type is the errorType of the reply, which callers and alarms branch on. Besides
// these there are MigrationError, MigrationLockError, DriftError, DatabaseAheadError and PendingError.

// ConfigError lists everything that is wrong with the environment.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return "bad configuration:\n" + e.Err.Error() }

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }

// RequestError refuses an event.
type RequestError struct{ Got string }

func (e *RequestError) Error() string { return "event: " + e.Got + ", " + takes }

// DatabaseError means that the database could not be reached, or not be asked.
type DatabaseError struct{ Err error }

func (e *DatabaseError) Error() string {
	if hint := database.Hint(e.Err); hint != "" {
		return "database: " + e.Err.Error() + "; hint: " + hint
	}
	return "database: " + e.Err.Error()
}

// Unwrap returns Err.
func (e *DatabaseError) Unwrap() error { return e.Err }

// AnswerError means that CloudFormation did not get the answer. The invocation may be repeated: migrations may.
type AnswerError struct{ Err error }

func (e *AnswerError) Error() string {
	return "answer CloudFormation: " + e.Err.Error()
}

// Unwrap returns Err.
func (e *AnswerError) Unwrap() error { return e.Err }

// PanicError is a mistake in the program, which CloudFormation must hear of, too.
type PanicError struct{}

func (e *PanicError) Error() string { return "the function panicked; its log has the stack" }

// typeName is what aws-lambda-go makes the errorType of.
func typeName(err error) string {
	return reflect.Indirect(reflect.ValueOf(err)).Type().Name()
}

// named finds the error whose type tells the caller most.
func named(ctx context.Context, err error) error {
	if migration, ok := errors.AsType[*postgres.MigrationError](err); ok {
		return migration
	}
	if lock, ok := errors.AsType[*postgres.MigrationLockError](err); ok {
		return lock
	}
	if drift, ok := errors.AsType[*postgres.DriftError](err); ok {
		return drift
	}
	if ahead, ok := errors.AsType[*postgres.DatabaseAheadError](err); ok {
		return ahead
	}
	if pending, ok := errors.AsType[*postgres.PendingError](err); ok {
		return pending
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return &DatabaseError{Err: err}
}
