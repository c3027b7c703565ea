package database

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Hint says what an operator can set when a statement failed for the way in which it was sent; empty when it didn't.
func Hint(err error) string {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	const tell = "set OUTBOX_DB_EXEC_MODE=exec, or simple_protocol for a pooler that speaks nothing else"
	text := refusal.Message
	switch refusal.Code {
	case "26000", "42P05":
		return "a pooler lost or mixed prepared statements; " + tell
	case "08P01":
		// Also what poolers say of much else, a server that they can't reach for one.
		if strings.Contains(text, "prepared statement") || strings.Contains(text, "bind message") {
			return "a pooler mixed statements; " + tell
		}
	case "0A000":
		if strings.Contains(text, "cached plan") {
			return "the tables changed under a prepared statement, once after a migration; the next invocation prepares it anew. " +
				"If that goes on, a pooler keeps it: " + tell
		}
		if strings.Contains(text, "prepared statement") {
			return "a pooler refuses prepared statements; " + tell
		}
	}
	return ""
}
