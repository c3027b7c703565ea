package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

var _ lambda.Handler = (*app)(nil)

// logs is a logger's output, safe to read while it is written.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// results are the result lines logged so far.
func (l *logs) results(t *testing.T) (results []outbox.Result) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		var entry struct {
			Msg    string
			Result outbox.Result
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("log line %s: %v", line, err)
		}
		if entry.Msg == "[outbox-dispatch] result" {
			results = append(results, entry.Result)
		}
	}
	return results
}

func start(t *testing.T, l *logs, changes map[string]string) *app {
	t.Helper()
	a := newApp(t.Context(), environment(changes), noAWS, l.logger())
	if a.pool != nil {
		t.Cleanup(a.pool.Close)
	}
	return a
}

func invoke(t *testing.T, a *app, payload string) (outbox.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	reply, err := a.Invoke(ctx, []byte(payload))
	if err != nil {
		return outbox.Result{}, err
	}
	var result outbox.Result
	if err := json.Unmarshal(reply, &result); err != nil {
		t.Fatalf("reply %s: %v", reply, err)
	}
	return result, nil
}

// receiver is a webhook that keeps what it gets.
func receiver(t *testing.T) (url string, bodies func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(body))
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []string { mu.Lock(); defer mu.Unlock(); return append([]string(nil), got...) }
}

func execute(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

const insert = `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
	select 'order', ('00000000-0000-4000-8000-00000000000' || a)::uuid, event_type, a::text, jsonb_build_object('a', a)
	from generate_series(1, 3) a, unnest(array['order.placed', 'order.paid']) with ordinality as e (event_type, o)
	order by o`

func TestInvocationDeliversAndAnswersTheResult(t *testing.T) {
	t.Parallel()
	db := postgrestest.URL(t)
	execute(t, db, insert)
	hook, bodies := receiver(t)
	var l logs
	a := start(t, &l, map[string]string{"DATABASE_URL": db, "HOOK_URL": hook})

	manual, err := invoke(t, a, `{"eventTypes":["order.placed"],"batchSize":1}`)
	if err != nil {
		t.Fatal(err)
	}
	if !manual.OK || manual.Processed != 3 || manual.Batches != 3 || manual.ByEventType["order.placed"].Processed != 3 {
		t.Errorf("manual: got %+v, want 3 of order.placed in batches of 1", manual)
	}
	rest, err := invoke(t, a, `{"source":"schedule"}`)
	if err != nil {
		t.Fatal(err)
	}
	if !rest.OK || rest.Processed != 3 || rest.ByEventType["order.paid"].Processed != 3 || len(rest.Queue) == 0 {
		t.Errorf("schedule: got %+v, want 3 of order.paid and the queue's figures", rest)
	}
	if got := bodies(); len(got) != 6 {
		t.Errorf("got %d deliveries %v, want 6", len(got), got)
	}
	if got := l.results(t); len(got) != 2 || got[0].Processed != 3 || got[1].RunMs != rest.RunMs {
		t.Errorf("got %d result lines %+v, want one for each invocation", len(got), got)
	}
}

// The statement that docs/routes.md gives an operator, as it stands there.
func TestADiscardedEventIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, statement, _ := strings.Cut(string(content), "```sql\n")
	statement, _, found := strings.Cut(statement, "```")
	if !found {
		t.Fatal("docs/routes.md holds no statement")
	}
	db := postgrestest.URL(t)
	execute(t, db, `insert into outbox_events (id, aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, attempts, metadata)
		select ('00000000-0000-4000-8000-00000000000' || a)::uuid, 'order', gen_random_uuid(), 'order.placed', a::text,
			jsonb_build_object('a', a), 'discarded', 8, '{"snoozeCount": 20, "discardReason": "max_attempts"}'
		from generate_series(1, 2) a`)
	hook, bodies := receiver(t)
	a := start(t, &logs{}, map[string]string{"DATABASE_URL": db, "HOOK_URL": hook})
	if before, err := invoke(t, a, `{}`); err != nil || before.Processed != 0 {
		t.Errorf("before: got %+v, %v; want nothing delivered", before, err)
	}
	execute(t, db, statement)
	if after, err := invoke(t, a, `{}`); err != nil || after.Processed != 1 {
		t.Errorf("after: got %+v, %v; want one event processed", after, err)
	}
	if got := bodies(); len(got) != 1 || !strings.HasSuffix(got[0], `"data":{"a": 1}}`) {
		t.Errorf("got deliveries %v, want the first event's alone", got)
	}
}

func TestBadConfigurationAnswersEveryInvocation(t *testing.T) {
	t.Parallel()
	a := start(t, &logs{}, map[string]string{"OUTBOX_BATCH_SIZE": "0", "OUTBOX_DB_SSLMODE": "prefer"})
	for range 2 {
		_, err := invoke(t, a, `{}`)
		if got := errorType(t, a, `{}`); got != "ConfigError" {
			t.Errorf("got errorType %s, want ConfigError", got)
		}
		if err == nil || !strings.Contains(err.Error(), "OUTBOX_BATCH_SIZE") || !strings.Contains(err.Error(), "OUTBOX_DB_SSLMODE") {
			t.Errorf("got %v, want both faults", err)
		}
	}
}

func TestBadEventClaimsNothing(t *testing.T) {
	t.Parallel()
	// The database does not exist: an event that were let through would be a StoreError.
	a := start(t, &logs{}, nil)
	if got := errorType(t, a, `{"eventTypes":["order.lost"]}`); got != "EventError" {
		t.Errorf("got errorType %s, want EventError", got)
	}
}

func TestStoreFailureIsLoggedThenAnswered(t *testing.T) {
	t.Parallel()
	empty := postgrestest.Empty(t)
	silent := silentServer(t)
	for name, test := range map[string]struct{ url, want string }{
		"schema missing":  {empty, "outbox claim: "},
		"hint of it":      {empty, "run the migrate function"},
		"database down":   {"postgres://app:hunter2@127.0.0.1:1/shop", "outbox connect: connect: "},
		"no database":     {strings.Replace(empty, "/outbox_", "/no_such_", 1), "there is no such database"},
		"silent database": {"postgres://app:hunter2@" + silent + "/shop?connect_timeout=1", "the server was not reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l logs
			a := start(t, &l, map[string]string{"DATABASE_URL": test.url})
			_, err := invoke(t, a, `{}`)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if got := l.results(t); len(got) != 1 || got[0].OK || got[0].ByEventType == nil || got[0].DiscardedEventIDs == nil {
				t.Errorf("got result lines %+v, want one with ok false", got)
			}
			if got := errorType(t, a, `{}`); got != "StoreError" {
				t.Errorf("got errorType %s, want StoreError", got)
			}
		})
	}
}

func TestAnswerComesBeforeTheDeadlineWhenTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	a := start(t, &logs{}, map[string]string{"DATABASE_URL": "postgres://" + silentServer(t) + "/shop"})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // two of them are kept for the answer
	defer cancel()
	_, err := a.Invoke(ctx, nil)
	if err == nil || !strings.Contains(err.Error(), errNotReady.Error()) {
		t.Errorf("got %v, want %v", err, errNotReady)
	}
	if ctx.Err() != nil {
		t.Error("the answer came after the deadline")
	}
}

func TestInvocationsMayOverlap(t *testing.T) {
	t.Parallel()
	db := postgrestest.URL(t)
	execute(t, db, insert)
	hook, bodies := receiver(t)
	a := start(t, &logs{}, map[string]string{"DATABASE_URL": db, "HOOK_URL": hook})
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			if _, err := invoke(t, a, `{}`); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if _, err := invoke(t, a, `{}`); err != nil { // what one of them handed back
		t.Error(err)
	}
	if got := bodies(); len(got) != 6 {
		t.Errorf("got %d deliveries %v, want 6", len(got), got)
	}
}

// silentServer accepts connections and says nothing.
func silentServer(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// errorType is the type that Lambda reports for the error of an invocation.
func errorType(t *testing.T, a *app, payload string) string {
	t.Helper()
	_, err := invoke(t, a, payload)
	if err == nil {
		t.Fatal("got no error")
	}
	// The rule of aws-lambda-go.
	kind := reflect.TypeOf(err)
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	return kind.Name()
}

func TestInvocationPrunes(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	execute(t, url, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, created_at, processed_at)
		select 'order', gen_random_uuid(), 'order.placed', days::text, '{}', 'processed', now() - interval '1 year', now() - days * interval '1 day'
		from unnest(array[1, 20, 31, 40]) days`)
	for _, c := range []struct {
		keep string
		want int
	}{{"never", 0}, {"", 2}, {"19d", 1}, {"0", 1}} {
		a := start(t, &logs{}, map[string]string{"DATABASE_URL": url, "OUTBOX_RETENTION_PROCESSED": c.keep})
		if got, err := invoke(t, a, "{}"); err != nil || got.Pruned != c.want {
			t.Errorf("%q: %d pruned, %v, want %d", c.keep, got.Pruned, err, c.want)
		}
	}
}
