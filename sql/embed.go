// Package sql holds the migrations of the outbox rail, embedded so that they ship inside every binary.
//
// Maturity: experimental. Until the first tagged release a migration file may still be rewritten; after it,
// files are only ever added.
package sql

import "embed"

// Files holds the migrations, named NNNN_name.sql and applied in the order of their numbers.
//
//go:embed *.sql
var Files embed.FS
