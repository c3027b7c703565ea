// Package outbox is the core of the dispatcher: one soft-budgeted worker pass that claims events from a [Store],
// runs the [Handler] of each event's type, and settles every outcome.
//
// A [Worker] is built once from a [Config]; each [Worker.Run] is one pass and returns a [Result]. Delivery is at
// least once, and in order within an aggregate. The package imports the standard library only: PostgreSQL lives in
// outbox/postgres, transports in handlers.
//
// Maturity: experimental. The API may still change between minor versions.
package outbox
