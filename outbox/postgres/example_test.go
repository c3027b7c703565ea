package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/sql"
)

// A producer enqueues in its own transaction, and a worker delivers what was committed.
func Example() {
	ctx := context.Background()
	pool, drop, err := scratchDatabase(ctx, os.Getenv("OUTBOX_TEST_DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer drop()

	migrator := &postgres.Migrator{Pool: pool, Files: sql.Files}
	if _, err := migrator.Up(ctx); err != nil {
		fmt.Println(err)
		return
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// update orders set … — in the same transaction
		_, err := postgres.Enqueue(ctx, tx, postgres.NewEvent{
			AggregateType: "order", AggregateID: "7b0e4a52-8f0c-4a53-9d0b-0d2b8e0a6f11",
			Type: "order.placed", IdempotencyKey: "order-4711-placed", Payload: json.RawMessage(`{"total": "99.90"}`),
		})
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	store := &postgres.Store{Pool: pool}
	worker, err := outbox.NewWorker(outbox.Config{Store: store, Stats: store, Registry: outbox.Registry{
		"order.placed": {Handler: outbox.HandlerFunc(func(_ context.Context, e outbox.Event) (outbox.Receipt, error) {
			fmt.Println("delivered", e.Type, string(e.Payload))
			return outbox.Receipt{"messageId": "m-1"}, nil
		})},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := worker.Run(ctx, outbox.Pass{SoftBudget: time.Minute})
	fmt.Println("processed", result.Processed, err)
	// Output:
	// delivered order.placed {"total": "99.90"}
	// processed 1 <nil>
}

// Endpoints of customers are rows; a handler finds them by tenant, and may disable one that is gone.
func ExampleEndpoints() {
	ctx := context.Background()
	pool, drop, err := scratchDatabase(ctx, os.Getenv("OUTBOX_TEST_DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer drop()
	if _, err := (&postgres.Migrator{Pool: pool, Files: sql.Files}).Up(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := pool.Exec(ctx, `select outbox_endpoint_add('ep-17', 'https://hooks.acme.example/in', p_tenant => 'acme')`); err != nil {
		fmt.Println(err)
		return
	}

	endpoints := &postgres.Endpoints{Pool: pool}
	found, err := endpoints.Of(ctx, []string{"acme", "globex"})
	fmt.Println(len(found), found["acme"][0].URL, err)

	fmt.Println(endpoints.Disable(ctx, found["acme"][0], "http_410: gone"))
	found, err = endpoints.Of(ctx, []string{"acme"})
	fmt.Println(found["acme"][0].Disabled, found["acme"][0].Reason, err)
	// Output:
	// 1 https://hooks.acme.example/in <nil>
	// <nil>
	// true http_410: gone <nil>
}

// scratchDatabase makes an empty database beside the one that server names.
func scratchDatabase(ctx context.Context, server string) (*pgxpool.Pool, func(), error) {
	const name = "outbox_example"
	admin, err := pgx.Connect(ctx, server)
	if err != nil {
		return nil, nil, err
	}
	for _, statement := range []string{"drop database if exists " + name + " with (force)", "create database " + name} {
		if _, err := admin.Exec(ctx, statement); err != nil {
			return nil, nil, err
		}
	}
	address, err := url.Parse(server)
	if err != nil {
		return nil, nil, err
	}
	address.Path = "/" + name
	pool, err := pgxpool.New(ctx, address.String())
	return pool, func() {
		pool.Close()
		_, _ = admin.Exec(ctx, "drop database "+name+" with (force)")
		_ = admin.Close(ctx)
	}, err
}
