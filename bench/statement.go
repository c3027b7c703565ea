package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// statement is a claim as it goes over the wire, by the part of the figure's name that it fills.
type statement struct {
	name string
	sql  string
	args []any
}

// claimStatements are the contract's claim, and the worker's own as its store sends them: they are listened to, so
// that they are measured as they are, but can be explained and rolled back.
func (b *bench) claimStatements(ctx context.Context) ([]statement, error) {
	db, err := b.outbox(ctx, "listen")
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.drop(ctx, db) }()
	ear := new(listener)
	heard, err := b.connect(ctx, db.name, func(c *pgxpool.Config) { c.ConnConfig.Tracer = ear })
	if err != nil {
		return nil, err
	}
	defer heard.Close()
	store := &postgres.Store{Pool: heard.Pool}
	all := []statement{{
		name: "batch", sql: "select * from outbox_claim_batch($1::text[], $2::text[], 100)",
		args: []any{[]string{eventType}, knownTypes()},
	}}
	for _, c := range []struct {
		name  string
		depth int
	}{{"lanes", claimSize}} {
		_, err := store.Claim(ctx, outbox.ClaimRequest{
			EventTypes: []string{eventType}, KnownTypes: knownTypes(), BatchSize: claimSize, LaneDepth: c.depth,
		})
		if err != nil {
			return nil, fmt.Errorf("listen to a claim: %w", err)
		}
		said := ear.last()
		if said.sql == "" {
			return nil, errors.New("listen to a claim: nothing was said")
		}
		said.name = c.name
		all = append(all, said)
	}
	return all, nil
}

// listener is a tracer that keeps the last query.
type listener struct {
	lock sync.Mutex
	said statement
}

var _ pgx.QueryTracer = (*listener)(nil)

// TraceQueryStart implements [pgx.QueryTracer].
func (l *listener) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.said = statement{sql: query.SQL, args: query.Args}
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (*listener) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (l *listener) last() statement {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.said
}
