package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// TestMain turns the test binary into the function itself when a test starts it as such.
func TestMain(m *testing.M) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheProcessAnswersInvocationAfterInvocation(t *testing.T) {
	t.Parallel()
	invoke := startFunction(t, "DATABASE_URL="+postgrestest.Empty(t))
	for _, step := range []struct{ event, path, want string }{
		{`{"action":"verify"}`, "error", `"errorType":"PendingError"`},
		{`{"action":"sideways"}`, "error", `"errorType":"RequestError"`},
		{`{}`, "response", `"applied":[{"version":1,`},
		{`{"action":"verify"}`, "response", `{"ok":true,"action":"verify",`},
	} {
		path, body := invoke(step.event)
		if path != step.path || !strings.Contains(body, step.want) {
			t.Errorf("%s: posted to %s: %s; want %s with %s", step.event, path, body, step.path, step.want)
		}
	}
}

func TestTheProcessOutlivesABadConfiguration(t *testing.T) {
	t.Parallel()
	invoke := startFunction(t, "DATABASE_URL=", "DATABASE_SECRET_ARN=")
	for range 2 {
		path, body := invoke(`{}`)
		if path != "error" || !strings.Contains(body, `"errorType":"ConfigError"`) || !strings.Contains(body, "DATABASE_URL") {
			t.Errorf("posted to %s: %s; want a ConfigError that names DATABASE_URL", path, body)
		}
	}
}

// startFunction runs main in a process of its own against a runtime API in this one. The returned func delivers an
// event and returns where the process posted its answer, response or error, and the answer.
func startFunction(t *testing.T, variables ...string) func(event string) (path, body string) {
	t.Helper()
	type answer struct{ path, body string }
	events, answers := make(chan string), make(chan answer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-ctx.Done():
		case event := <-events:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "request-1")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(30*time.Second).UnixMilli()))
			_, _ = io.WriteString(w, event)
		}
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/request-1/{path}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		select {
		case <-ctx.Done():
		case answers <- answer{r.PathValue("path"), string(body)}:
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(cancel)

	process := exec.CommandContext(ctx, os.Args[0])
	process.Env = append(os.Environ(), append(variables, "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"), "AWS_LAMBDA_LOG_FORMAT=JSON")...)
	output := &strings.Builder{}
	process.Stdout, process.Stderr = output, output
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = process.Wait()
		for line := range strings.Lines(output.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("log line %q, want JSON", line)
			}
		}
	})
	return func(event string) (path, body string) {
		select {
		case <-ctx.Done():
			t.Fatal("the process takes no event")
		case events <- event:
		}
		select {
		case <-ctx.Done():
			t.Fatal("the process gives no answer")
		case a := <-answers:
			return a.path, a.body
		}
		return "", ""
	}
}
