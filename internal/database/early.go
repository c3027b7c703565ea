package database

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// early is a first connection that is made while the process still starts. Its zero value is none.
type early struct {
	done chan struct{} // nil: none
	err  error         // to be read when done is closed
}

// Connect starts to make the first connection and returns at once, so that what is left of a cold start and the way to the
// database take place side by side. It is to be called before the first [Pool.Ready], once at most; [Pool.Close] ends it.
func (p *Pool) Connect(ctx context.Context) {
	p.lastUse.Store(time.Now().UnixNano()) // a sandbox may freeze before its first invocation, too
	p.early.done = make(chan struct{})
	go func() {
		defer close(p.early.done)
		p.early.err = p.touch(ctx)
	}()
	pgtype.NewMap() // what all connections share is made with the first; here, while the server is waited for
}

// Close ends all connections and waits for them: up to 15 s for one that is broken.
func (p *Pool) Close() {
	p.Pool.Close()
	if p.early.done != nil {
		<-p.early.done
	}
}

// join waits for the attempt under way and returns what it comes to. One that came to its end before is no news of the
// database: nil.
func (e *early) join(ctx context.Context) error {
	if e.done == nil {
		return nil
	}
	select {
	case <-e.done:
		return nil
	default:
	}
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
