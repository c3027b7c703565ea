# outbox-dispatch. `make help` lists the targets. Needs Go and make; `make test` also a C compiler, `make template` Python.
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory # standard output of migrate and dispatch is the reply alone
.DEFAULT_GOAL := help

MODULES := . internal/stack bench
PUBLIC  := outbox outbox/postgres outbox/outboxtest outbox/postgres/postgrestest handlers sql
LINTER  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
LOCAL   := $(CURDIR)/.local/bin
STACK   := $(LOCAL)/stack
BUNDLE  := $(LOCAL)/bundle
LINT    := $(LOCAL)/golangci-lint
export GOWORK := off
# Beside those of the machine; .ci/pgbouncer builds it.
export OUTBOX_PGBOUNCER ?= $(LOCAL)/pgbouncer

TIMEOUT ?= 30
EVENT   ?=
FILE    ?=
BENCH   ?=
TESTS   ?= ./...
VERSIONS ?= 14 15 16 17 18

.PHONY: help run up down test poolers soak versions check bench bench-quick build migrate dispatch routes-check fmt lint api api-check consumer stack bundle build-Dispatch build-Migrate clean compiler

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: stack ## the whole rail on local parts: 600 events through the real functions to webhooks, SNS and SES
	@$(STACK) run

up: stack ## leave the whole rail running in the background, to try things out; prints how
	@$(STACK) up

down: stack ## end what make up started; cleans up after a crash, too
	@$(STACK) down

test: stack compiler ## every Go test of every module, race detector on, on a private PostgreSQL
	@$(STACK) with-postgres -- bash -c 'set -e; for m in $(MODULES); do echo "== module $$m"; (cd $$m && go test -race -timeout 20m $(TESTS)); done'

poolers: stack ## the store and the functions through PgBouncers in transaction mode, one before 1.21 and one after
	@$(STACK) with-postgres -- bash -c 'cd internal/stack && go test -tags poolers -run PgBouncer -timeout 20m ./poolers'

soak: stack versions ## the long ones, with ledgers: PostgreSQL 14 to 18, breaks of the way to the database, limits (SOAK_ROUNDS, SOAK_SEED)
	@$(STACK) with-postgres -- bash -c 'cd internal/stack && go test -tags soak -run Soak -v -count=1 -timeout 60m -p 1 -parallel 1 ./connections ./limits'

versions: stack ## the store's suite and the SQL contract on a fetched PostgreSQL of each version, 14 to 18
	@set -e; for v in $(VERSIONS); do echo "== PostgreSQL $$v"; OUTBOX_TEST_DATABASE_URL= OUTBOX_POSTGRES_FETCH=$$v $(STACK) with-postgres -- go test -count=1 -timeout 30m ./outbox/postgres ./internal/contract; done

check: test poolers lint api-check consumer build template run ## tests, poolers, linter, API snapshots, consumer proof, bundles, template, the whole rail: what CI runs
	@echo "check: all passed"

bench: stack ## every figure and its target, on a private PostgreSQL whose commits wait for the disk (BENCH="-only drain_noop" for one)
	@cd bench && $(STACK) with-postgres -durable -- go run . $(BENCH)

bench-quick: stack ## the same at smaller sizes, in under three minutes
	@cd bench && $(STACK) with-postgres -durable -- go run . -quick $(BENCH)

build: bundle ## both functions for Lambda, arm64, zipped, in dist/
	@$(BUNDLE)

build-Dispatch: bundle # what sam build calls; its ARTIFACTS_DIR gets what is in the zip
	@$(BUNDLE) -function dispatch -into "$(ARTIFACTS_DIR)"

build-Migrate: bundle
	@$(BUNDLE) -function migrate -into "$(ARTIFACTS_DIR)"

template: ## template.yaml and what sam build makes of it: linters, expansion, policies, bundles (SAM CLI in .local)
	@.ci/template/run

migrate: stack ## the migrate function against DATABASE_URL (EVENT=file, TIMEOUT=seconds)
	@$(STACK) invoke -function migrate -timeout $(TIMEOUT) -event "$(EVENT)"

dispatch: stack ## one pass of the dispatch function against DATABASE_URL (EVENT, TIMEOUT, OUTBOX_ROUTES_FILE)
	@$(STACK) invoke -function dispatch -timeout $(TIMEOUT) -event "$(EVENT)"

routes-check: stack ## a routes file, offline: every fault with its line, or where each type goes (FILE=routes.yaml)
	@$(STACK) routes-check "$(FILE)"

fmt: $(LINT) ## format every module
	@for m in $(MODULES); do (cd $$m && $(LINT) fmt --config $(CURDIR)/.golangci.yaml $$(go list -f '{{.Dir}}' ./...)); done

lint: $(LINT) ## linter, import rules and formatting of every module
	@set -e; for m in $(MODULES); do echo "== lint $$m"; (cd $$m && $(LINT) run --build-tags poolers,soak --config $(CURDIR)/.golangci.yaml && $(LINT) fmt --config $(CURDIR)/.golangci.yaml --diff $$(go list -f '{{.Dir}}' ./...)); done

api: ## refresh the API snapshots in internal/api
	@mkdir -p internal/api; for p in $(PUBLIC); do go doc -all ./$$p > internal/api/$${p//\//-}.txt || exit 1; done

api-check: ## the exported API is what internal/api says
	@for p in $(PUBLIC); do diff -u internal/api/$${p//\//-}.txt <(go doc -all ./$$p) \
	  || { echo "the API of $$p changed: look at the difference, then run make api"; exit 1; }; done; echo "api: as recorded"

consumer: stack ## a stranger's module, outside the tree, can use every public package
	@$(STACK) with-postgres -- bash internal/stack/consumer/prove.sh $(CURDIR)

clean: ## end what make up started, and remove what was built
	@[ ! -e .local/up ] || $(MAKE) down
	rm -rf .local dist

stack: # always asks the Go tool, which knows whether anything changed; renamed so that several makes may run at once
	@mkdir -p $(LOCAL); cd internal/stack && go build -o $(STACK).$$$$ ./cmd/stack && mv -f $(STACK).$$$$ $(STACK)

bundle:
	@mkdir -p $(LOCAL); cd internal/stack && GOOS= GOARCH= go build -o $(BUNDLE).$$$$ ./cmd/bundle && mv -f $(BUNDLE).$$$$ $(BUNDLE)

compiler:
	@command -v $${CC:-cc} >/dev/null || command -v gcc >/dev/null || { echo "make test needs a C compiler for the race detector, and there is none: install gcc or clang"; exit 1; }

$(LINT):
	@mkdir -p $(LOCAL); GOBIN=$(LOCAL) go install $(LINTER)
