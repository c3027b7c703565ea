package outbox

import (
	"context"
	"errors"
)

// errLate is the error of a call that did not end in its time.
var errLate = errors.New("deadline_exceeded")

// within makes a call that the pass can do without. One that ignores ctx is not waited for: it has a slot of its own for its
// answer. A panic is an error.
func within[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() { answers <- a }()
		defer func() {
			if v := recover(); v != nil {
				a = answer{err: errors.New("panic: " + panicked(v))}
			}
		}()
		a.value, a.err = call(ctx)
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	if a.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		a.err = errLate
	}
	return a.value, a.err
}

// safeText is an error as a log line shows it.
func safeText(err error) string { return cut(cleanText(err.Error()), safeMessage) }
