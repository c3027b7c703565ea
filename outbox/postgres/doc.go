// Package postgres keeps the outbox in PostgreSQL, on pgx: the [Store] of the worker, [Enqueue] for producers that
// are written in Go, and the [Migrator] of the schema. It needs PostgreSQL 14 or later.
//
// Maturity: experimental. The API may still change between minor versions.
package postgres
