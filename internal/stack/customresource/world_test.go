// Package customresource plays CloudFormation against the real migrate function, under the runtime emulator, with a
// real PostgreSQL and a local endpoint in the place of the signed S3 URL.
package customresource_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/cfn"
	"github.com/jackc/pgx/v5"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/sql"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

const (
	// signature stands for what signs a ResponseURL; whoever reads it can answer.
	signature = "X-Amz-Signature=verysecret"
	// unreachable is a database that refuses connections.
	unreachable = "postgres://user:verysecret@127.0.0.1:1/db?sslmode=disable"
)

// tools builds the emulator and the function once for all tests.
var tools = sync.OnceValues(func() (lambda.Config, error) {
	builder := lambda.Builder{Root: "../../..", Log: io.Discard}
	emulator, err := builder.Emulator(context.Background())
	if err != nil {
		return lambda.Config{}, err
	}
	binary, err := builder.Function(context.Background(), "migrate")
	return lambda.Config{Emulator: emulator, Binary: binary}, err
})

// world is one test's sandbox and CloudFormation.
type world struct {
	*testing.T
	function *lambda.Function
	endpoint string

	mu      sync.Mutex
	told    []string
	release chan struct{} // nil, or what the endpoint waits for before it answers
	log     strings.Builder
}

// newWorld starts a sandbox with that timeout and environment.
func newWorld(t *testing.T, timeout time.Duration, env ...string) *world {
	t.Helper()
	config, err := tools()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	w := &world{T: t}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.endpoint = server.URL + "/answer?" + signature
	config.Timeout, config.Env, config.Log = timeout, env, w
	if w.function, err = lambda.Start(t.Context(), config); err != nil {
		t.Fatalf("start the function: %v", err)
	}
	t.Cleanup(func() {
		w.function.Stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		if strings.Contains(w.log.String(), "verysecret") {
			t.Error("the log shows a secret")
		}
		if t.Failed() {
			t.Logf("the function's log:\n%s", w.log.String())
		}
	})
	return w
}

// Write keeps what the function prints.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// ServeHTTP takes an answer as S3 does: signed for PUT and no content type, the length known.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPut || r.Header["Content-Type"] != nil || r.ContentLength != int64(len(body)) || r.URL.RawQuery != signature {
		w.Errorf("%s %s, content type %v, length %d (%v); want a PUT as it was signed", r.Method, r.URL, r.Header["Content-Type"], r.ContentLength, err)
	}
	w.mu.Lock()
	w.told = append(w.told, string(body))
	release := w.release
	w.mu.Unlock()
	if release != nil {
		<-release
	}
	out.WriteHeader(http.StatusOK)
}

// send invokes the function with a sample event, changed if change is not nil, and returns its reply and the answers.
func (w *world) send(sample string, change func(*cfn.Event)) (event cfn.Event, reply string, told []string) {
	w.Helper()
	raw, err := os.ReadFile("../../../events/custom-resource-" + sample + ".json")
	if err != nil {
		w.Fatal(err)
	}
	if err := json.Unmarshal(raw, &event); err != nil {
		w.Fatalf("%s: %v", sample, err)
	}
	event.ResponseURL = w.endpoint
	if change != nil {
		change(&event)
	}
	if raw, err = json.Marshal(event); err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	w.told = nil
	w.mu.Unlock()
	out, err := w.function.Invoke(w.Context(), raw)
	if err != nil {
		w.Fatalf("invoke: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return event, string(out), slices.Clone(w.told)
}

// play is send for an event that gets exactly one answer, which fits, is for this event and is the reply, too.
func (w *world) play(sample string, change func(*cfn.Event)) cfn.Response {
	w.Helper()
	event, reply, told := w.send(sample, change)
	if len(told) != 1 || reply != told[0] {
		w.Fatalf("told %q, reply %s; want one answer, and the same as reply", told, reply)
	}
	if len(told[0]) >= 4096 {
		w.Errorf("answer of %d bytes, takes less than 4,096", len(told[0]))
	}
	var a cfn.Response
	if err := json.Unmarshal([]byte(told[0]), &a); err != nil {
		w.Fatalf("answer %s: %v", told[0], err)
	}
	if a.PhysicalResourceID != "outbox-schema" {
		w.Errorf("physical id %q, want outbox-schema whatever happens", a.PhysicalResourceID)
	}
	if a.RequestID != event.RequestID || a.StackID != event.StackID || a.LogicalResourceID != event.LogicalResourceID {
		w.Errorf("answer %s, want the ids of the event", told[0])
	}
	if strings.Contains(told[0], "verysecret") {
		w.Errorf("answer %s shows a secret", told[0])
	}
	return a
}

// succeeded fails the test unless the answer says so, with that version; empty means no data.
func (w *world) succeeded(a cfn.Response, version string) {
	w.Helper()
	want := map[string]any{"Version": version}
	if version == "" {
		want = nil
	}
	if a.Status != cfn.StatusSuccess || !maps.Equal(a.Data, want) {
		w.Errorf("%s with data %v (%s), want SUCCESS with %v", a.Status, a.Data, a.Reason, want)
	}
}

// failed fails the test unless the answer says so, with a reason that starts and goes on like that.
func (w *world) failed(a cfn.Response, prefix, part string) {
	w.Helper()
	if a.Status != cfn.StatusFailed || !strings.HasPrefix(a.Reason, prefix) || !strings.Contains(a.Reason, part) {
		w.Errorf("%s with reason %q, want FAILED with %q and %q", a.Status, a.Reason, prefix, part)
	}
}

// wantLog fails the test unless the function printed a line with all the words.
func (w *world) wantLog(words ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.log.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return
		}
	}
	w.Errorf("no line of the log has all of %q", words)
}

// latest is the version that the function ships.
func latest(t *testing.T) string {
	t.Helper()
	n, err := postgres.Latest(sql.Files)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(n)
}

// connect opens a connection that ends with the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
