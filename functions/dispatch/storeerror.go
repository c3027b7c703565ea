package main

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/openlup/outbox-dispatch/internal/database"
	"github.com/openlup/outbox-dispatch/outbox"
)

// StoreError is a failure of the database that ended the invocation; its name is the answer's errorType. Its text ends
// with what an operator can do, where that is known.
type StoreError struct{ failure *outbox.StoreError }

func (e *StoreError) Error() string {
	if hint := hint(e.failure); hint != "" {
		return e.failure.Error() + "; " + hint
	}
	return e.failure.Error()
}

func (e *StoreError) Unwrap() error { return e.failure }

// hint says what an error of PostgreSQL asks of the operator.
func hint(err error) string {
	if said := database.Hint(err); said != "" {
		return "hint: " + said
	}
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if _, unreached := errors.AsType[*pgconn.ConnectError](err); unreached {
			return "hint: the server was not reached; check host, port, network, TLS and that it is up"
		}
		return ""
	}
	if database.LoginRefused(err) {
		return "hint: the login was refused; check user, password or secret, and for IAM the grant of rds_iam"
	}
	switch refusal.Code {
	case "42P01", "42883", "42703", "3F000":
		return "hint: the schema is missing or too old; run the migrate function"
	case "42501":
		return "hint: the role lacks a right; it needs select, insert, update and delete on the outbox tables"
	case "3D000":
		return "hint: there is no such database; check the name in DATABASE_URL, the secret or OUTBOX_DB_NAME"
	case "53300":
		return "hint: too many connections; lower OUTBOX_DB_MAX_CONNS or the function's concurrency, or use a pooler"
	case "25006":
		return "hint: the server is read-only, perhaps a replica after a failover; check the host"
	case "57P01", "57P02", "57P03":
		return "hint: the server is stopping or starting; the next invocation tries again"
	default:
		return ""
	}
}
