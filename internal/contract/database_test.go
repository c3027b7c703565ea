package contract

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// session is one connection that speaks the simple protocol: several statements a round trip, text answers.
type session struct {
	t    testing.TB
	url  string
	conn *pgx.Conn
}

func newSession(t testing.TB, url string) *session {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	s := &session{t, url, conn}
	s.do("set lock_timeout = '20s'") // a claim that waits for a lock fails the test, it doesn't hang it
	return s
}

// another is a second connection to the same database.
func (s *session) another() *session { return newSession(s.t, s.url) }

// answer is the rows of one statement; a nil field is null.
type answer [][]*string

// try runs the statements and answers the results of those that return rows.
func (s *session) try(sql string) ([]answer, error) {
	results, err := s.conn.PgConn().Exec(s.t.Context(), sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var answers []answer
	for _, result := range results {
		if !result.CommandTag.Select() && len(result.Rows) == 0 {
			continue
		}
		rows := answer{}
		for _, fields := range result.Rows {
			row := make([]*string, len(fields))
			for i, field := range fields {
				if field != nil {
					text := string(field)
					row[i] = &text
				}
			}
			rows = append(rows, row)
		}
		answers = append(answers, rows)
	}
	return answers, nil
}

// do is try for statements that must succeed.
func (s *session) do(sql string, args ...any) []answer {
	s.t.Helper()
	if len(args) > 0 {
		sql = fmt.Sprintf(sql, args...)
	}
	answers, err := s.try(sql)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, clip(sql))
	}
	return answers
}

// one is do for a statement that returns one field; null reads "null".
func (s *session) one(sql string, args ...any) string {
	s.t.Helper()
	answers := s.do(sql, args...)
	rows := answers[len(answers)-1]
	if len(rows) != 1 || len(rows[0]) != 1 {
		s.t.Fatalf("%d rows, want one field: %s", len(rows), clip(sql))
	}
	return show(rows[0][0])
}

// column is do for a statement that returns one field a row.
func (s *session) column(sql string) []string {
	s.t.Helper()
	answers := s.do(sql)
	var out []string
	if len(answers) == 0 { // an insert that returned nothing
		return nil
	}
	for _, row := range answers[len(answers)-1] {
		out = append(out, show(row[0]))
	}
	return out
}

// fault runs statements that must fail and answers how.
func (s *session) fault(sql string) *pgconn.PgError {
	s.t.Helper()
	_, err := s.try(sql)
	pgErr := pgError(err)
	if pgErr == nil {
		s.t.Fatalf("got error %v, want one from the server: %s", err, clip(sql))
	}
	return pgErr
}

// event inserts one pending event of an aggregate and answers its id; sets are assignments made to it after.
func (s *session) event(eventType string, aggregate int, sets ...string) string {
	s.t.Helper()
	id := s.one(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		values ('order', lpad(%d::text, 32, '0')::uuid, '%s', gen_random_uuid()::text, '{}') returning id`, aggregate, eventType)
	for _, set := range sets {
		s.do("update outbox_events set %s where id = '%s'", set, id)
	}
	return id
}

// leased inserts one event that is processing under the token 'held'.
func (s *session) leased(sets ...string) string {
	s.t.Helper()
	return s.event("a", rand.IntN(1_000_000_000), append([]string{
		`status = 'processing', attempts = 1, available_at = now() + interval '5 minutes', metadata = '{"claimToken": "held"}'`,
	}, sets...)...)
}

// claim claims type a with the defaults and answers the ids in the order of their positions.
func (s *session) claim() []string {
	s.t.Helper()
	return s.column("select id from outbox_claim_batch(array['a']) order by position")
}

// field reads an expression over one row.
func (s *session) field(id, expression string) string {
	s.t.Helper()
	return s.one("select (%s)::text from outbox_events where id = '%s'", expression, id)
}

func (s *session) equal(what string, got, want any) {
	s.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// runClauses gives every clause a database of its own.
func runClauses(t *testing.T, clauses map[string]func(*session)) {
	t.Helper()
	for name, check := range clauses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(newSession(t, postgrestest.URL(t)))
		})
	}
}

func pgError(err error) *pgconn.PgError {
	pgErr, _ := errors.AsType[*pgconn.PgError](err)
	return pgErr
}

func show(field *string) string {
	if field == nil {
		return "null"
	}
	return *field
}

func clip(text string) string {
	if len(text) > 2000 {
		return text[:2000] + "…"
	}
	return text
}

// micros writes a timestamptz as the model keeps it.
func micros(column string) string {
	return fmt.Sprintf(`case %[1]s when 'infinity' then 9223372036854775807
		when '-infinity' then -9223372036854775807 else (extract(epoch from %[1]s) * 1000000)::bigint end`, column)
}

// rowColumns are the fields that parseRow reads.
func rowColumns() string {
	return strings.Join([]string{
		"id", "position", micros("created_at"), micros("available_at"), micros("processed_at"),
		"aggregate_type", "aggregate_id", "event_type", "idempotency_key", "status", "attempts",
		"payload::text", "error", "metadata::text",
	}, ", ")
}

func clockQuery() string { return "select " + micros("now()") + ", to_jsonb(now()) #>> '{}';" }

func parseRow(fields []*string) (*Row, error) {
	var problem error
	number := func(field *string) int64 {
		value, err := strconv.ParseInt(show(field), 10, 64)
		if err != nil {
			problem = err
		}
		return value
	}
	row := &Row{
		ID: show(fields[0]), Position: number(fields[1]), CreatedAt: number(fields[2]), AvailableAt: number(fields[3]),
		AggregateType: show(fields[5]), AggregateID: show(fields[6]), EventType: show(fields[7]), Key: show(fields[8]),
		Status: show(fields[9]), Attempts: number(fields[10]), Payload: show(fields[11]), Error: fields[12],
	}
	if fields[4] != nil {
		processed := number(fields[4])
		row.ProcessedAt = &processed
	}
	document, err := NewDocument(show(fields[13]))
	if err != nil {
		problem = err
	}
	row.Metadata = document
	return row, problem
}

// quote writes a text literal; nil writes null.
func quote(text *string) string {
	if text == nil {
		return "null"
	}
	return "'" + strings.ReplaceAll(*text, "'", "''") + "'"
}

// literal writes a text[] or uuid[] argument.
func (l List) literal(kind string) string {
	if l.Null {
		return "null::" + kind
	}
	items := make([]string, len(l.Items))
	for i, item := range l.Items {
		items[i] = quote(item)
		if l.Nested {
			items[i] = "array[" + items[i] + "]"
		}
	}
	return "array[" + strings.Join(items, ", ") + "]::" + kind
}

func integer(value *int64) string {
	if value == nil {
		return "null"
	}
	return strconv.FormatInt(*value, 10)
}
