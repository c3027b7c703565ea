#!/usr/bin/env bash
# The consumer proof: a module of a stranger's, outside the tree, imports every public package and uses it.
# Argument: the repository's root. OUTBOX_TEST_DATABASE_URL names a PostgreSQL server.
set -euo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$root/internal/stack/consumer/consumer_test.go.txt" "$folder/consumer_test.go"
cd "$folder"
export GOWORK=off GOFLAGS=-mod=mod
go mod init example.org/consumer >/dev/null 2>&1
go mod edit -require github.com/openlup/outbox-dispatch@v0.0.0 -replace "github.com/openlup/outbox-dispatch=$root"
# The versions that the product was tested with.
cp "$root/go.sum" go.sum
go mod edit -require "github.com/jackc/pgx/v5@$(cd "$root" && go list -m -f '{{.Version}}' github.com/jackc/pgx/v5)"
go mod tidy >/dev/null 2>&1
go vet ./...
go test ./...
