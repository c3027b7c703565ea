package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
	"github.com/openlup/outbox-dispatch/sql"
)

func TestEveryActionRepliesInItsShape(t *testing.T) {
	t.Parallel()
	latest, err := postgres.Latest(sql.Files)
	if err != nil {
		t.Fatal(err)
	}
	app, _ := testApp(t, map[string]string{"DATABASE_URL": postgrestest.Empty(t)})
	for _, step := range []struct {
		event, want string // want has the versions before and after, and the state
		applied     int
	}{
		{`{"action":"status"}`, `{"ok":true,"action":"status","versionBefore":0,"versionAfter":0,"state":"pending","applied":[],"pending":[{"version":1,"name":"0001_outbox.sql"}`, 0},
		{` { } `, fmt.Sprintf(`{"ok":true,"action":"up","versionBefore":0,"versionAfter":%d,"state":"current","applied":[{"version":1,"name":"0001_outbox.sql","durationMs":`, latest), latest},
		{`{"action":"up"}`, fmt.Sprintf(`{"ok":true,"action":"up","versionBefore":%d,"versionAfter":%[1]d,"state":"current","applied":[],"pending":[]}`, latest), 0},
		{fixture(t, "migrate-up.json"), fmt.Sprintf(`{"ok":true,"action":"up","versionBefore":%d,`, latest), 0},
		{fixture(t, "migrate-status.json"), fmt.Sprintf(`{"ok":true,"action":"status","versionBefore":%d,"versionAfter":%[1]d,"state":"current","applied":[],"pending":[]}`, latest), 0},
		{fixture(t, "migrate-verify.json"), fmt.Sprintf(`{"ok":true,"action":"verify","versionBefore":%d,"versionAfter":%[1]d,"state":"current","applied":[],"pending":[]}`, latest), 0},
	} {
		reply, err := app.invoke(t.Context(), json.RawMessage(step.event))
		if err != nil {
			t.Fatalf("%s: %v", step.event, err)
		}
		got, err := json.Marshal(reply)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(got), step.want) {
			t.Errorf("%s: reply %s, want it to start with %s", step.event, got, step.want)
		}
		if len(reply.Applied) != step.applied {
			t.Errorf("%s: %d files applied, want %d", step.event, len(reply.Applied), step.applied)
		}
	}
}

func TestOtherEventsAreRefusedWithAListOfWhatIsTaken(t *testing.T) {
	t.Parallel()
	url := postgrestest.Empty(t)
	app, _ := testApp(t, map[string]string{"DATABASE_URL": url})
	for _, event := range []string{
		`null`, `[]`, `"up"`, `7`, `{"action":"down"}`, `{"action":""}`, `{"action":7}`, `{"action":"Up"}`,
		`{"version":"0","source":"aws.events","detail":{}}`, `{"action":"up","force":true}`, `{} {}`, ``, `{`,
	} {
		reply, err := app.handle(t.Context(), json.RawMessage(event))
		var refused *RequestError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), `takes {} or {"action":"up"}, {"action":"status"} or {"action":"verify"}`) {
			t.Errorf("%s: reply %v, error %v; want a RequestError that lists the actions", event, reply, err)
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var objects int
	if err := conn.QueryRow(t.Context(), "select count(*) from pg_class where relnamespace = 'public'::regnamespace").Scan(&objects); err != nil || objects != 0 {
		t.Errorf("objects in the database after refused events: %d, %v; want none", objects, err)
	}
}

func TestABadConfigurationAnswersEveryInvocationWithAllFaults(t *testing.T) {
	t.Parallel()
	app, _ := testApp(t, map[string]string{
		"DATABASE_URL":        "postgres://user:verysecret@host:port/db",
		"OUTBOX_DB_EXEC_MODE": "fast",
		lockTimeoutVariable:   "7 parsecs",
	})
	for range 2 {
		_, err := app.handle(t.Context(), json.RawMessage(`{"action":"status"}`))
		if _, ok := errors.AsType[*ConfigError](err); !ok {
			t.Fatalf("error %v, want a ConfigError", err)
		}
		for _, want := range []string{"DATABASE_URL", "OUTBOX_DB_EXEC_MODE", lockTimeoutVariable + `: "7 parsecs", takes a duration`} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q, want it to contain %q", err, want)
			}
		}
		if strings.Contains(err.Error(), "verysecret") {
			t.Errorf("error %q shows the password", err)
		}
	}
}

func TestLockTimeoutIsReadWithItsBounds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 5 * time.Second, "10ms": 10 * time.Millisecond, "5m": 5 * time.Minute, "9ms": 0, "5m1s": 0, "-5s": 0, "5": 0} {
		got, err := loadConfig(environment(map[string]string{"DATABASE_URL": "postgres://localhost/db", lockTimeoutVariable: text}))
		if got.lockTimeout != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %v, %v; want %v", text, got.lockTimeout, err, want)
		}
	}
}

func TestErrorsCarryTheTypeThatSaysMost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare, event, want string
	}{
		"pending": {"", `{"action":"verify"}`, "PendingError"},
		"drift":   {"update outbox_schema_migrations set checksum = 'other'", `{}`, "DriftError"},
		"ahead":   {"insert into outbox_schema_migrations values (9999, '9999_new.sql', '', now(), 1)", `{}`, "DatabaseAheadError"},
		"failing": {"create table outbox_events (id int)", `{}`, "MigrationError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.Empty(t)
			if strings.Contains(tc.prepare, "outbox_schema_migrations") {
				url = postgrestest.URL(t)
			}
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
			if _, err := conn.Exec(t.Context(), tc.prepare, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			app, logs := testApp(t, map[string]string{"DATABASE_URL": url})
			_, err = app.handle(t.Context(), json.RawMessage(tc.event))
			if got := errorType(t, err); got != tc.want {
				t.Errorf("error type %s (%v), want %s", got, err, tc.want)
			}
			if !strings.Contains(logs.String(), "migrate failed") {
				t.Errorf("log %q, want the failure", logs)
			}
		})
	}
}

func TestAnUnreachableDatabaseIsADatabaseErrorWithoutThePassword(t *testing.T) {
	t.Parallel()
	app, logs := testApp(t, map[string]string{"DATABASE_URL": "postgres://user:verysecret@127.0.0.1:1/db?sslmode=disable"})
	_, err := app.handle(t.Context(), json.RawMessage(`{}`))
	if got := errorType(t, err); got != "DatabaseError" {
		t.Errorf("error type %s (%v), want DatabaseError", got, err)
	}
	if text := fmt.Sprint(err) + logs.String(); strings.Contains(text, "verysecret") {
		t.Errorf("error or log shows the password: %s", text)
	}
}

// The invocation has 3 s left, of which the migration may use one.
func TestTheMigrationStopsBeforeTheInvocationsDeadline(t *testing.T) {
	t.Parallel()
	app, _ := testApp(t, map[string]string{"DATABASE_URL": postgrestest.Empty(t)})
	app.migrator.Files = fstest.MapFS{"0001_slow.sql": {Data: []byte("select pg_sleep(60);")}}
	ctx, cancel := context.WithTimeout(t.Context(), reserve+time.Second)
	defer cancel()
	_, err := app.handle(ctx, json.RawMessage(`{}`))
	if got := errorType(t, err); got != "MigrationError" || !errors.Is(err, errReserve) {
		t.Errorf("error type %s (%v), want a MigrationError caused by the reserve", got, err)
	}
	if ctx.Err() != nil {
		t.Error("the reply came after the deadline")
	}
}

func errorType(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	return typeName(err)
}

func testApp(t *testing.T, variables map[string]string) (*app, *bytes.Buffer) {
	t.Helper()
	var logs bytes.Buffer
	app := newApp(t.Context(), environment(variables), slog.New(slog.NewJSONHandler(&logs, nil)))
	if app.pool != nil {
		t.Cleanup(app.pool.Close)
	}
	return app, &logs
}

func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func fixture(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../../events/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
