package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const root = "../../../.."

// binary builds the command once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "stack-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "stack")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func TestInvokePrintsExactlyTheReply(t *testing.T) {
	t.Parallel()
	env := []string{"DATABASE_URL=" + postgrestest.Empty(t)}
	out, code := stack(t, env, "invoke", "-function", "migrate", "-event", "events/migrate-up.json")
	if code != 0 || !bytes.HasSuffix(out, []byte("}\n")) || bytes.Count(out, []byte("\n")) != 1 || !ok(out) {
		t.Errorf("exit %d, standard output %q, want 0 and one line of JSON that says ok", code, out)
	}
}

func TestInvokeFailsWithTheReplyOnStandardOutput(t *testing.T) {
	t.Parallel()
	out, code := stack(t, []string{"DATABASE_URL=not a url"}, "invoke", "-function", "dispatch")
	if code != 1 || ok(out) || bytes.Count(out, []byte("\n")) != 1 || !bytes.Contains(out, []byte(`"errorType":"ConfigError"`)) {
		t.Errorf("exit %d, standard output %q, want 1 and the ConfigError", code, out)
	}
}

// What CloudFormation was told decides, for a provider answers its failures and does not fail itself.
func TestInvokeOfACustomResourceExitsAsCloudFormationWasTold(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(endpoint.Close)
	raw, err := os.ReadFile(filepath.Join(root, "events", "custom-resource-create.json"))
	if err != nil {
		t.Fatal(err)
	}
	var event map[string]any
	if err := json.Unmarshal(raw, &event); err != nil {
		t.Fatal(err)
	}
	event["ResponseURL"] = endpoint.URL
	if raw, err = json.Marshal(event); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]struct {
		code   int
		status string
	}{
		postgrestest.Empty(t): {0, `"Status":"SUCCESS"`},
		"not a url":           {1, `"Status":"FAILED"`},
	} {
		out, code := stack(t, []string{"DATABASE_URL=" + url}, "invoke", "-function", "migrate", "-event", file)
		if code != want.code || !bytes.Contains(out, []byte(want.status)) {
			t.Errorf("%s: exit %d, standard output %q, want %d and %s", url, code, out, want.code, want.status)
		}
	}
}

func TestInvocationsSideBySideDeliverEachEventOnce(t *testing.T) {
	t.Parallel()
	const events, passes = 40, 3
	var received atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	t.Cleanup(receiver.Close)
	url := postgrestest.URL(t)
	insert(t, url, events)
	env := []string{"DATABASE_URL=" + url, fmt.Sprintf(`OUTBOX_ROUTES={version: 1, destinations: {here: {http: {url: "%s",
		allow_http: true, allow_ports: [1-65535], allow_private: ["127.0.0.0/8"]}}}, routes: {test.happened: {to: here}}}`, receiver.URL)}
	replies := make([][]byte, passes)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i], _ = stack(t, env, "invoke", "-function", "dispatch", "-timeout", "20") })
	}
	all.Wait()
	processed := 0
	for _, reply := range replies {
		var r struct{ Processed int }
		if err := json.Unmarshal(reply, &r); err != nil || !ok(reply) {
			t.Errorf("reply %q (%v), want ok", reply, err)
		}
		processed += r.Processed
	}
	if got := int(received.Load()); got != events || processed != events {
		t.Errorf("received %d, processed %d, want %d of both", got, processed, events)
	}
}

func TestMistakesInTheCommandLineAreToldOnStandardError(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"invoke", "invoke -function other", "invoke -function migrate -timeout 0", "invoke -function migrate -timeout 901",
		"invoke -function migrate -event no/such/file", "with-postgres", "nonsense",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			if out, code := stack(t, nil, strings.Fields(line)...); code != 1 || len(out) != 0 {
				t.Errorf("exit %d, standard output %q, want 1 and nothing", code, out)
			}
		})
	}
}

func TestWithPostgresPassesTheExitCodeAndADatabase(t *testing.T) {
	t.Parallel()
	const show = `printf %s "$OUTBOX_TEST_DATABASE_URL"; exit 7`
	out, code := stack(t, []string{"OUTBOX_TEST_DATABASE_URL="}, "with-postgres", "--", "sh", "-c", show)
	if want := "postgres://postgres@127.0.0.1:"; code != 7 || !strings.HasPrefix(string(out), want) {
		t.Errorf("exit %d, standard output %q, want 7 and %s...", code, out, want)
	}
	out, code = stack(t, []string{"OUTBOX_TEST_DATABASE_URL=postgres://mine"}, "with-postgres", "--", "sh", "-c", show)
	if code != 7 || string(out) != "postgres://mine" {
		t.Errorf("exit %d, standard output %q, want 7 and the address that was set", code, out)
	}
}

// stack runs the command in the repository's root and returns its standard output and exit code.
func stack(t *testing.T, env []string, args ...string) (stdout []byte, code int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Errorf("build the command: %v", err)
		return nil, -1
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	t.Logf("stack %s: %s", strings.Join(args, " "), stderr.String())
	if exit, isExit := errors.AsType[*exec.ExitError](err); isExit {
		return out, exit.ExitCode()
	}
	if err != nil {
		t.Errorf("run the command: %v", err)
	}
	return out, 0
}

func insert(t *testing.T, url string, events int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	const query = `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		select 'test', gen_random_uuid(), 'test.happened', n::text, '{}' from generate_series(1, $1) n`
	if _, err := conn.Exec(t.Context(), query, events); err != nil {
		t.Fatal(err)
	}
}

func ok(reply []byte) bool {
	var r struct{ OK bool }
	return json.Unmarshal(reply, &r) == nil && r.OK
}
