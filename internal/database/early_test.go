package database

import (
	"context"
	"sync"
	"testing"
	"time"
)

func TestFirstReadyTakesTheEarlyConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	pool.Connect(t.Context())
	for range 2 {
		if err := pool.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(s.attempts()); got != 1 {
		t.Errorf("got %d logins, want the early one alone", got)
	}
}

func TestEarlyConnectionIsDroppedAfterALongPause(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	pool.Connect(t.Context())
	<-pool.early.done
	pool.lastUse.Add(-int64(thawAfter + time.Second))
	if err := pool.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(s.attempts()); got != 2 {
		t.Errorf("got %d logins, want 2: what a sandbox held that froze before its first invocation may be dead", got)
	}
}

func TestReadyDoesNotWaitForAnAttemptFromBeforeAPause(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{2 * joinWithin, connectTimeout, thawAfter + time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			t.Parallel()
			reached, hold := make(chan struct{}, 2), make(chan struct{})
			s := startServer(t, nil, func(string) bool {
				reached <- struct{}{}
				if len(reached) == 1 {
					<-hold
				}
				return true
			})
			pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
			t.Cleanup(func() { close(hold) }) // before the pool is closed
			pool.Connect(t.Context())
			for len(reached) == 0 {
				time.Sleep(time.Millisecond)
			}
			pool.lastUse.Add(-int64(pause))
			if err := pool.Ready(t.Context()); err != nil {
				t.Error(err)
			}
			select {
			case <-pool.early.done:
				t.Error("the attempt under way came to its end, and so the test proves nothing")
			default:
			}
		})
	}
}

func TestEarlyFailureOfBeforeIsNoNews(t *testing.T) {
	t.Parallel()
	answers := make(chan bool, 2)
	answers <- false
	answers <- true
	s := startServer(t, nil, func(string) bool { return <-answers })
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	pool.Connect(t.Context())
	<-pool.early.done
	if !LoginRefused(pool.early.err) {
		t.Fatalf("the early attempt came to %v, want a refused login", pool.early.err)
	}
	if err := pool.Ready(t.Context()); err != nil {
		t.Errorf("got %v, want a new attempt to count", err)
	}
}

// watched is a context that tells when somebody begins to wait for its end.
type watched struct {
	context.Context //nolint:containedctx // it is one
	waited          func()
}

func (w watched) Done() <-chan struct{} {
	w.waited()
	return w.Context.Done()
}

func TestAttemptUnderWayIsReadysFirst(t *testing.T) {
	t.Parallel()
	reached, hold := make(chan struct{}, 3), make(chan struct{})
	s := startServer(t, nil, func(string) bool { reached <- struct{}{}; <-hold; return false })
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	pool.Connect(t.Context())
	<-reached
	if err := pool.Ready(watched{t.Context(), sync.OnceFunc(func() { close(hold) })}); !LoginRefused(err) {
		t.Errorf("got %v, want a refused login", err)
	}
	if got := len(s.attempts()); got != 2 {
		t.Errorf("got %d logins, want 2: the one under way, and another as after any refusal", got)
	}
}

func TestWaitForTheEarlyConnectionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	reached, hold := make(chan struct{}, 1), make(chan struct{})
	s := startServer(t, nil, func(string) bool { reached <- struct{}{}; <-hold; return true })
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	t.Cleanup(func() { close(hold) })
	pool.Connect(t.Context())
	<-reached
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pool.Ready(ctx); err == nil {
		t.Error("got no error, want that of the context")
	}
}

func TestCloseEndsAnAttemptUnderWay(t *testing.T) {
	t.Parallel()
	reached, hold := make(chan struct{}, 1), make(chan struct{})
	s := startServer(t, nil, func(string) bool { reached <- struct{}{}; <-hold; return true })
	defer close(hold)
	pool, err := Open(t.Context(), fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	if err != nil {
		t.Fatal(err)
	}
	pool.Connect(t.Context())
	<-reached
	pool.Close()
	if pool.early.err == nil {
		t.Error("the attempt came to no error")
	}
}
