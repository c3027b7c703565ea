package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/openlup/outbox-dispatch/internal/database"
	"github.com/openlup/outbox-dispatch/outbox"
)

const testRoutes = `
version: 1
known: [order.archived]
destinations:
  hook: {http: {url: "${HOOK_URL}", timeout: 10s, allow_http: true, allow_ports: [1-65535], allow_private: [127.0.0.0/8]}}
routes:
  order.placed: {to: hook}
  order.paid: {to: hook}
`

// environment is a usable one, with changes; an empty value unsets.
func environment(changes map[string]string) func(string) string {
	env := map[string]string{
		"DATABASE_URL": "postgres://app:hunter2@127.0.0.1:1/shop", "OUTBOX_ROUTES": testRoutes, "HOOK_URL": "http://127.0.0.1:1/",
	}
	maps.Copy(env, changes)
	return func(name string) string { return env[name] }
}

// noAWS is for what must not need AWS.
func noAWS(context.Context, ...func(*awsconfig.LoadOptions) error) (aws.Config, error) {
	return aws.Config{}, errors.New("the AWS configuration was loaded")
}

func load(t *testing.T, changes map[string]string) (config, error) {
	t.Helper()
	return loadConfig(t.Context(), environment(changes), noAWS)
}

func TestDefaultsAreTheCores(t *testing.T) {
	t.Parallel()
	c, err := load(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := c.worker
	if got.BatchSize != outbox.DefaultBatchSize || got.Visibility != outbox.DefaultVisibility || got.MaxAttempts != outbox.DefaultMaxAttempts ||
		got.BackoffBase != outbox.DefaultBackoffBase || got.BackoffCap != outbox.DefaultBackoffCap || got.Snooze != outbox.DefaultSnooze ||
		got.MaxSnoozes != outbox.DefaultMaxSnoozes || got.Concurrency != outbox.DefaultConcurrency {
		t.Errorf("got %+v, want the defaults of package outbox", got)
	}
	if route := got.Registry["order.paid"]; len(got.Registry) != 2 || route.Destination != "hook" || route.Timeout != 10*time.Second {
		t.Errorf("got routes %v", got.Registry)
	}
	if !slices.Equal(got.KnownTypes, []string{"order.archived"}) {
		t.Errorf("got known types %v", got.KnownTypes)
	}
}

func TestEachNumberReachesTheWorker(t *testing.T) {
	t.Parallel()
	changes := map[string]string{}
	for _, n := range numbers() {
		changes[n.name] = fmt.Sprint(n.most)
	}
	c, err := load(t, changes)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.worker.BatchSize, c.worker.Visibility, c.worker.MaxAttempts, c.worker.BackoffBase, c.worker.BackoffCap,
		c.worker.Snooze, c.worker.MaxSnoozes, c.worker.Concurrency, c.worker.Linger)
	if want := "1000 1h0m0s 20 1h0m0s 24h0m0s 1h0m0s 1000 256 14m0s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNumbersOutOfRangeAreFaults(t *testing.T) {
	t.Parallel()
	for _, n := range numbers() {
		for _, text := range []string{fmt.Sprint(n.lowest - 1), fmt.Sprint(n.most + 1), "many", "1.5", " 7", "99999999999999999999"} {
			_, err := load(t, map[string]string{n.name: text})
			want := fmt.Sprintf("%s: got %q, takes a whole number from %d to %d", n.name, text, n.lowest, n.most)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
}

func TestRetentionReachesTheWorker(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": outbox.DefaultKeepProcessed, "never": outbox.KeepForever, "0": outbox.PruneAtOnce, "0d": outbox.PruneAtOnce,
		"1s": time.Second, "15m": 15 * time.Minute, "12h": 12 * time.Hour, "7d": 7 * 24 * time.Hour, "36500d": 36500 * 24 * time.Hour,
	} {
		c, err := load(t, map[string]string{"OUTBOX_RETENTION_PROCESSED": text})
		if got := (outbox.Retention{Processed: want, Discarded: outbox.DefaultKeepDiscarded}); err != nil || c.worker.Retention != got {
			t.Errorf("%q: got %v, %v, want %v", text, c.worker.Retention, err, got)
		}
	}
	c, err := load(t, map[string]string{"OUTBOX_RETENTION_DISCARDED": "2d"})
	if want := (outbox.Retention{Processed: outbox.DefaultKeepProcessed, Discarded: 48 * time.Hour}); err != nil || c.worker.Retention != want {
		t.Errorf("got %v, %v, want %v", c.worker.Retention, err, want)
	}
}

func TestRetentionsThatCannotBeReadAreFaults(t *testing.T) {
	t.Parallel()
	for _, a := range ages() {
		for _, text := range []string{"30", "d", "-1d", "+1d", "1.5d", "1d12h", "30 d", "30D", "Never", "36501d", "99999999999999999999d", "3153600001s", "1w", "∞"} {
			_, err := load(t, map[string]string{a.name: text})
			want := fmt.Sprintf("%s: got %q, takes a whole number and its unit like 30d", a.name, text)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := load(t, map[string]string{
		"OUTBOX_BATCH_SIZE": "0", "OUTBOX_CONCURRENCY": "x", "OUTBOX_BACKOFF_BASE_SECONDS": "600", "OUTBOX_BACKOFF_CAP_SECONDS": "60",
		"DATABASE_URL": "", "HOOK_URL": "", "OUTBOX_DB_EXEC_MODE": "fast",
	})
	if _, ok := errors.AsType[*ConfigError](err); !ok {
		t.Fatalf("got %T, want *ConfigError", err)
	}
	for _, want := range []string{
		"OUTBOX_BATCH_SIZE", "OUTBOX_CONCURRENCY", "OUTBOX_BACKOFF_CAP_SECONDS: got 60, takes at least the 600 of OUTBOX_BACKOFF_BASE_SECONDS",
		"DATABASE_URL: not set", "OUTBOX_DB_EXEC_MODE", "OUTBOX_ROUTES:5:", "HOOK_URL is not set",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got:\n%v\nwant it to contain %s", err, want)
		}
	}
}

func TestLeaseMustExceedEveryTimeout(t *testing.T) {
	t.Parallel()
	long := strings.ReplaceAll(testRoutes, "timeout: 10s", "timeout: 298s")
	_, err := load(t, map[string]string{"OUTBOX_ROUTES": long})
	want := "OUTBOX_VISIBILITY_SECONDS: got 5m0s, takes more than the timeout of destination hook (4m58s) and 2s"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := load(t, map[string]string{"OUTBOX_ROUTES": long, "OUTBOX_VISIBILITY_SECONDS": "301"}); err != nil {
		t.Errorf("a longer lease: got %v", err)
	}
}

func TestRoutesComeFromTheFirstPlaceThatIsSet(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "my-routes.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(testRoutes, "order.paid", "order.shipped")), 0o600); err != nil {
		t.Fatal(err)
	}
	faulty := filepath.Join(t.TempDir(), "faulty.yaml")
	if err := os.WriteFile(faulty, []byte("version: 2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ inline, secret, file, want string }{
		"file":                 {"", "", file, "[order.placed order.shipped] <nil>"},
		"secret wins":          {"", testARN, file, "secret " + testARN + " [] <nil>"},
		"inline wins":          {testRoutes, testARN, file, "secret  [order.paid order.placed] <nil>"},
		"missing":              {"", "", file + ".none", "OUTBOX_ROUTES_FILE: takes a readable file, or set OUTBOX_ROUTES"},
		"beside this binary":   {"", "", "", "OUTBOX_ROUTES_FILE (not set): takes a readable file"},
		"a fault's name":       {"version: 2", "", "", "OUTBOX_ROUTES:1:"},
		"a fault's path":       {"", "", faulty, faulty + ":1:"},
		"a folder, not a file": {"", "", filepath.Dir(file), "is a directory"},
		"routes as a path":     {"", "", "version: 1\nx: hunter2", "OUTBOX_ROUTES_FILE: holds several lines, takes a path"},
		"no ARN":               {"", "hunter2", file, "OUTBOX_ROUTES_SECRET_ARN: not an ARN, takes arn:aws:secretsmanager:"},
		"no ARN beside inline": {testRoutes, "hunter2", "", "OUTBOX_ROUTES_SECRET_ARN: not an ARN"},
		"ARN of a topic":       {"", "arn:aws:sns:eu-west-1:123456789012:hunter2", "", "OUTBOX_ROUTES_SECRET_ARN: not an ARN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := load(t, map[string]string{
				"OUTBOX_ROUTES": test.inline, "OUTBOX_ROUTES_SECRET_ARN": test.secret, "OUTBOX_ROUTES_FILE": test.file,
			})
			got := fmt.Sprint("secret ", c.routesSecret, " ", slices.Sorted(maps.Keys(c.worker.Registry)), " ", err)
			if !strings.Contains(got, test.want) || strings.Contains(got, "hunter2") {
				t.Errorf("got %s, want it to contain %s", got, test.want)
			}
		})
	}
}

func TestSchemaVersionIsANumberOrUnmanaged(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "0 <nil>", "unmanaged": "0 <nil>", "1": "1 <nil>", "12": "12 <nil>",
		"0": "takes a whole number from 1, or unmanaged", "-1": "takes a", "1.5": "takes a", "Unmanaged": `got "Unmanaged", takes a`, "latest": "takes a",
	} {
		c, err := load(t, map[string]string{"OUTBOX_SCHEMA_VERSION": text})
		if got := fmt.Sprint(c.schema, " ", err); !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestSampleRoutesAreValid(t *testing.T) {
	t.Parallel()
	_, err := load(t, map[string]string{
		"OUTBOX_ROUTES": "", "OUTBOX_ROUTES_FILE": "routes.yaml",
		"WEBHOOK_URL": "https://hooks.example.com/orders", "WEBHOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	})
	if err != nil {
		t.Error(err)
	}
}

// variables lists all variables of the function.
func variables() []database.Variable {
	list := []database.Variable{
		{Name: routesText, Default: "", Takes: "YAML", Meaning: "The routes themselves; wins over the secret and the file."},
		{Name: routesARN, Default: "", Takes: "ARN of a Secrets Manager secret", Meaning: "The secret whose text is the routes; wins over the file."},
		{Name: routesFile, Default: "`routes.yaml` beside the binary", Takes: "path", Meaning: "The file of the routes."},
	}
	for _, n := range numbers() {
		list = append(list, database.Variable{
			Name: n.name, Default: fmt.Sprintf("`%d`", n.otherwise),
			Takes: fmt.Sprintf("%d..%d %s", n.lowest, n.most, n.unit), Meaning: n.meaning,
		})
	}
	for _, a := range ages() {
		list = append(list, database.Variable{
			Name: a.name, Default: fmt.Sprintf("`%dd`", a.otherwise/day),
			Takes: "a duration like `30d`, `12h`, `15m`, `10s`, up to `36500d`; `0`; `never`", Meaning: a.meaning,
		})
	}
	return append(list, database.Variable{
		Name: schemaVersion, Default: "`unmanaged`", Takes: "whole number from 1, or `unmanaged`",
		Meaning: "The version that the deployment's migration left behind. Logged at a cold start; another one than this binary was built for is a warning.",
	})
}

func TestEveryVariableIsListed(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	getenv := environment(map[string]string{"OUTBOX_ROUTES": ""})
	_, _ = loadConfig(t.Context(), func(name string) string { read[name] = true; return getenv(name) }, noAWS)
	delete(read, "AWS_LAMBDA_FUNCTION_NAME") // Lambda's own
	for _, v := range slices.Concat(variables(), database.Variables()) {
		delete(read, v.Name)
	}
	if len(read) > 0 {
		t.Errorf("read but not listed: %v", slices.Sorted(maps.Keys(read)))
	}
}

var update = flag.Bool("update", false, "rewrite the tables of docs/configuration.md")

func TestDocumentationIsCurrent(t *testing.T) {
	t.Parallel()
	const path = "../../docs/configuration.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for name, list := range map[string][]database.Variable{"dispatch": variables(), "database": database.Variables()} {
		begin, end := "<!-- "+name+": generated by go test ./functions/dispatch -update -->\n", "<!-- "+name+" ends -->\n"
		head, rest, ok := strings.Cut(want, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no lines %q and %q", path, begin, end)
		}
		want = head + begin + table(list) + end + tail
	}
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is not what the code says; run go test ./functions/dispatch -update", path)
	}
}

func table(list []database.Variable) string {
	var b strings.Builder
	b.WriteString("| variable | default | takes | meaning |\n| --- | --- | --- | --- |\n")
	for _, v := range list {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.Name, v.Default, v.Takes, v.Meaning)
	}
	return b.String()
}
