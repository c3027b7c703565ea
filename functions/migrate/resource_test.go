package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/aws/aws-lambda-go/cfn"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
	"github.com/openlup/outbox-dispatch/sql"
)

// signature stands for what signs a ResponseURL.
const signature = "X-Amz-Signature=verysecret"

// unreachable is a database that refuses connections.
const unreachable = "postgres://user@127.0.0.1:1/db?sslmode=disable"

func TestTheSamplesAreAnswered(t *testing.T) {
	t.Parallel()
	app, _ := testApp(t, map[string]string{"DATABASE_URL": postgrestest.Empty(t)})
	for _, step := range []struct{ sample, data string }{
		{"create", fmt.Sprintf(`"Data":{"Version":"%d"}`, latest(t))},
		{"update", fmt.Sprintf(`"Data":{"Version":"%d"}`, latest(t))},
		{"delete", ""},
	} {
		c := newCloudFormation(t)
		event := sample(t, step.sample)
		told := c.play(app, event)
		if len(told) != 1 || !strings.HasPrefix(told[0], `{"Status":"SUCCESS","RequestId":"`+event.RequestID+`","LogicalResourceId":"Schema",`) ||
			!strings.Contains(told[0], `"PhysicalResourceId":"outbox-schema"`) || !strings.Contains(told[0], step.data) {
			t.Errorf("%s: told %q, want one SUCCESS with %s", step.sample, told, step.data)
		}
		if step.data == "" && strings.Contains(told[0], "Data") {
			t.Errorf("%s: told %q, want no data", step.sample, told)
		}
	}
	if got := databaseVersion(t, app); got != latest(t) {
		t.Errorf("version after Delete %d, want %d", got, latest(t))
	}
}

func TestDeleteSucceedsWithoutConfigurationOrDatabase(t *testing.T) {
	t.Parallel()
	for name, variables := range map[string]map[string]string{
		"configuration": {lockTimeoutVariable: "7 parsecs"},
		"database":      {"DATABASE_URL": unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app, _ := testApp(t, variables)
			c := newCloudFormation(t)
			if told := c.play(app, sample(t, "delete")); len(told) != 1 || !strings.Contains(told[0], `"Status":"SUCCESS"`) {
				t.Errorf("told %q, want one SUCCESS", told)
			}
			if told := newCloudFormation(t).play(app, sample(t, "create")); len(told) != 1 || !strings.Contains(told[0], `"Status":"FAILED"`) {
				t.Errorf("Create: told %q, want one FAILED: the case shows nothing", told)
			}
		})
	}
}

func TestAFailureIsToldWithItsTypeAndCause(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		variables map[string]string
		change    func(*app, *cfn.Event)
		want      string
	}{
		"configuration": {map[string]string{lockTimeoutVariable: "7 parsecs"}, nil, `"Reason":"ConfigError: bad configuration:\n`},
		"database":      {map[string]string{"DATABASE_URL": unreachable}, nil, `"Reason":"DatabaseError: database: connect: `},
		"request": {
			map[string]string{"DATABASE_URL": unreachable},
			func(_ *app, e *cfn.Event) { e.RequestType = "Read" }, `"Reason":"RequestError: event: RequestType \"Read\", takes `,
		},
		"panic": {
			map[string]string{"DATABASE_URL": unreachable},
			func(a *app, _ *cfn.Event) { a.pool = nil }, `"Reason":"PanicError: the function panicked; its log has the stack"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app, logs := testApp(t, tc.variables)
			event := sample(t, "create")
			if tc.change != nil {
				tc.change(app, &event)
			}
			told := newCloudFormation(t).play(app, event)
			if len(told) != 1 || !strings.Contains(told[0], `"Status":"FAILED"`) || !strings.Contains(told[0], tc.want) ||
				!strings.Contains(told[0], `"PhysicalResourceId":"outbox-schema"`) {
				t.Errorf("told %q, want one FAILED with %s", told, tc.want)
			}
			if !strings.Contains(logs.String(), `"level":"ERROR"`) {
				t.Errorf("log %s, want the error", logs)
			}
		})
	}
}

func TestAnyFailureFitsIntoAnAnswer(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"long": strings.Repeat("x", 9000), "escaped": strings.Repeat("<\x01&", 3000), "separators": strings.Repeat("\u2028", 3000),
		"four bytes": "x" + strings.Repeat("🐘", 3000), "quotes": strings.Repeat(`"\`, 3000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app, _ := testApp(t, map[string]string{"DATABASE_URL": postgrestest.Empty(t)})
			app.migrator.Files = fstest.MapFS{"0001_bad.sql": {Data: []byte("do $do$ begin raise exception using message = $text$" + text + "$text$; end $do$;")}}
			event := sample(t, "create")
			event.LogicalResourceID, event.StackID = strings.Repeat("L", 255), strings.Repeat("S", 512)
			told := newCloudFormation(t).play(app, event)
			if len(told) != 1 || len(told[0]) > 2048 {
				t.Fatalf("told %d times, %d bytes, want one of at most 2,048", len(told), len(strings.Join(told, "")))
			}
			var answer cfn.Response
			if err := json.Unmarshal([]byte(told[0]), &answer); err != nil {
				t.Fatal(err)
			}
			if want := "MigrationError: apply 0001_bad.sql, statement 1: "; !strings.HasPrefix(answer.Reason, want) || !strings.HasSuffix(answer.Reason, "…") {
				t.Errorf("reason %.80q, want %q, some of the text, and the mark of the cut", answer.Reason, want)
			}
		})
	}
}

func TestCutCountsWhatJSONMakesOfAText(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text  string
		limit int
		want  string
	}{
		{"abcdef", 6, "abcdef"},
		{"abcdef", 5, "ab…"},
		{"<", 6, "<"},
		{"<", 5, "…"},
		{"a<bcd", 9, "a…"},
		{"ab<cdef", 11, "ab<…"},
		{"a\xffb", 3, "a?b"},
		{"éééé", 7, "éé…"},
		{"", 3, ""},
	} {
		if got := cut(tc.text, tc.limit); got != tc.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tc.text, tc.limit, got, tc.want)
		}
	}
}

func TestARollbackOfTheStackSucceeds(t *testing.T) {
	t.Parallel()
	files := func(n int) fstest.MapFS {
		all := fstest.MapFS{}
		for i := range n {
			all[fmt.Sprintf("%04d_a.sql", i+1)] = &fstest.MapFile{Data: fmt.Appendf(nil, "create table t%d();", i+1)}
		}
		return all
	}
	for name, tc := range map[string]struct {
		database, ships int // versions of the database and the binary; -1 is a database out of reach
		wanted, before  any
		told            string
		version         int // of the database afterwards
	}{
		"database ahead":                      {3, 2, "2", nil, `"SUCCESS" {"Version":"3"}`, 3},
		"database ahead, older function":      {3, 2, "2", "3", `"SUCCESS" {"Version":"3"}`, 3},
		"function still the newer one":        {2, 3, "2", "3", `"SUCCESS" {"Version":"2"}`, 2},
		"nothing to do":                       {2, 2, "2", "3", `"SUCCESS" {"Version":"2"}`, 2},
		"back, and the database needs it":     {1, 2, "2", "3", `"SUCCESS" {"Version":"2"}`, 2},
		"back, and the database is empty":     {0, 3, "2", "3", `"SUCCESS" {"Version":"2"}`, 0},
		"back, and the database is away":      {-1, 2, "2", "3", `"SUCCESS" {"Version":"2"}`, 0},
		"numbers":                             {-1, 2, 2, 3, `"SUCCESS" {"Version":"2"}`, 0},
		"forward, and the database is away":   {-1, 3, "3", "2", `"FAILED" null`, 0},
		"the same, and the database is away":  {-1, 3, "3", "3", `"SUCCESS" {"Version":"3"}`, 0},
		"the same, and the database needs it": {1, 3, "3", "3", `"SUCCESS" {"Version":"3"}`, 3},
		"unknown versions":                    {-1, 3, "a", "b", `"FAILED" null`, 0},
		"template and function differ":        {1, 2, "7", "1", `"SUCCESS" {"Version":"2"}`, 2},
		"no version at all":                   {1, 2, nil, nil, `"SUCCESS" {"Version":"2"}`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := unreachable
			if tc.database >= 0 {
				url = postgrestest.Empty(t)
			}
			app, logs := testApp(t, map[string]string{"DATABASE_URL": url})
			if tc.database > 0 {
				app.migrator.Files = files(tc.database)
				if _, err := app.migrator.Up(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			app.migrator.Files = files(tc.ships)
			event := sample(t, "update")
			event.ResourceProperties = map[string]any{"Version": tc.wanted}
			event.OldResourceProperties = map[string]any{"Version": tc.before}
			told := newCloudFormation(t).play(app, event)
			var answer struct {
				Status string
				Data   json.RawMessage
			}
			if len(told) != 1 || json.Unmarshal([]byte(told[0]), &answer) != nil {
				t.Fatalf("told %q, want one answer", told)
			}
			if answer.Data == nil {
				answer.Data = json.RawMessage("null")
			}
			if got := fmt.Sprintf("%q %s", answer.Status, answer.Data); got != tc.told {
				t.Errorf("told %s, want %s", got, tc.told)
			}
			if tc.database > 0 {
				if got := databaseVersion(t, app); got != tc.version {
					t.Errorf("database at version %d, want %d", got, tc.version)
				}
			}
			warned := tc.database > tc.ships || tc.database < 0 && strings.Contains(tc.told, "SUCCESS") || fmt.Sprint(tc.wanted) == "7" || tc.ships == 3 && fmt.Sprint(tc.wanted) == "2"
			if got := strings.Contains(logs.String(), `"level":"WARN"`); got != warned {
				t.Errorf("log %s, want a warning: %t", logs, warned)
			}
		})
	}
}

// What fails CloudFormation undoes by an update whose properties have changed places; were that to fail too, the stack
// would be stuck in UPDATE_ROLLBACK_FAILED. So no failure may fail both ways, and none passes unseen on its way forward.
func TestWhatFailsForwardSucceedsOnTheWayBack(t *testing.T) {
	t.Parallel()
	changes := map[string]struct{ old, new map[string]any }{
		"a version":   {map[string]any{"Version": "1", "Run": ""}, map[string]any{"Version": "2", "Run": ""}},
		"both":        {map[string]any{"Version": "1", "Run": "7"}, map[string]any{"Version": "2", "Run": "1"}},
		"a first run": {map[string]any{"Version": "2", "Run": ""}, map[string]any{"Version": "2", "Run": "1"}},
		"a tenth run": {map[string]any{"Version": "2", "Run": "9", "ServiceTimeout": "330"}, map[string]any{"Version": "2", "Run": "10", "ServiceTimeout": "90"}},
		"no run yet":  {map[string]any{"Version": "2"}, map[string]any{"Version": 2, "Run": 1}},
	}
	good, other := fstest.MapFS{"0001_a.sql": {Data: []byte("create table a();")}}, fstest.MapFS{"0001_a.sql": {Data: []byte("create table b();")}}
	bad := fstest.MapFS{"0001_a.sql": good["0001_a.sql"], "0002_b.sql": {Data: []byte("create table a();")}}
	for failure, tc := range map[string]struct {
		variables map[string]string // nil is a database that has what good makes
		files     fstest.MapFS
	}{
		"database away": {map[string]string{"DATABASE_URL": unreachable}, good},
		"configuration": {map[string]string{lockTimeoutVariable: "7 parsecs"}, nil},
		"drift":         {nil, other},
		"migration":     {nil, bad},
	} {
		for change, properties := range changes {
			t.Run(failure+", "+change, func(t *testing.T) {
				t.Parallel()
				variables := tc.variables
				if variables == nil {
					variables = map[string]string{"DATABASE_URL": postgrestest.Empty(t)}
				}
				app, logs := testApp(t, variables)
				if tc.variables == nil {
					app.migrator.Files = good
					if _, err := app.migrator.Up(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if app.migrator != nil {
					app.migrator.Files = tc.files
				}
				event := sample(t, "update")
				event.ResourceProperties, event.OldResourceProperties = properties.new, properties.old
				if told := newCloudFormation(t).play(app, event); len(told) != 1 || !strings.Contains(told[0], `"Status":"FAILED"`) {
					t.Errorf("forward: told %q, want one FAILED", told)
				}
				event.ResourceProperties, event.OldResourceProperties = properties.old, properties.new
				if told := newCloudFormation(t).play(app, event); len(told) != 1 || !strings.Contains(told[0], `"Status":"SUCCESS"`) {
					t.Errorf("back: told %q, want one SUCCESS", told)
				}
				if !strings.Contains(logs.String(), `"level":"WARN"`) {
					t.Errorf("log %s, want a warning", logs)
				}
			})
		}
	}
}

func TestHalfACustomResourcesEventIsRefused(t *testing.T) {
	t.Parallel()
	app, logs := testApp(t, nil)
	for event, want := range map[string]string{
		`{"RequestType":"Create"}`:                                                                          "RequestType without ResponseURL",
		`{"ResponseURL":"https://host/?` + signature + `"}`:                                                 "ResponseURL without RequestType",
		`{"RequestType":"Create","ResponseURL":""}`:                                                         "ResponseURL is no https or http URL",
		`{"RequestType":"Create","ResponseURL":"/?` + signature + `"}`:                                      "ResponseURL is no https or http URL",
		`{"RequestType":"Create","ResponseURL":"ftp://host/?` + signature + `"}`:                            "ResponseURL is no https or http URL",
		`{"RequestType":"Create","ResponseURL":"https://a b/?` + signature + `"}`:                           "ResponseURL is no https or http URL",
		`{"RequestType":"Create","ResponseURL":"https://host/?` + signature + `","ResourceProperties":[1]}`: "no custom resource's event: ",
	} {
		_, err := app.handle(t.Context(), json.RawMessage(event))
		if got := errorType(t, err); got != "RequestError" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s: %v, want a RequestError with %q", event, got, err, want)
		}
		if strings.Contains(err.Error()+logs.String(), "verysecret") {
			t.Errorf("%s: error or log shows the URL: %v, %s", event, err, logs)
		}
	}
}

func TestAnAnswerThatIsNotTakenIsRepeatedOrReported(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		statuses []int // one after the other; the last stays; 0 hangs up
		puts     int
		want     string // the error; empty for none
	}{
		"twice out of order": {[]int{503, 500, 200}, 3, ""},
		"hung up":            {[]int{0, 200}, 2, ""},
		"throttled":          {[]int{429, 204}, 2, ""},
		"refused":            {[]int{403}, 1, "answer CloudFormation: status 403"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app, logs := testApp(t, nil)
			c := newCloudFormation(t)
			c.statuses = tc.statuses
			_, err := app.handle(t.Context(), c.address(t, sample(t, "delete")))
			if got := len(c.told()); got != tc.puts {
				t.Errorf("%d answers, want %d", got, tc.puts)
			}
			if got := errorText(err); got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
			if err != nil && errorType(t, err) != "AnswerError" {
				t.Errorf("error type %T, want AnswerError", err)
			}
			if strings.Contains(errorText(err)+logs.String(), "verysecret") {
				t.Errorf("error or log shows the URL: %v, %s", err, logs)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func latest(t *testing.T) int {
	t.Helper()
	n, err := postgres.Latest(sql.Files)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// databaseVersion asks the database itself.
func databaseVersion(t *testing.T, app *app) (n int) {
	t.Helper()
	if err := app.pool.QueryRow(t.Context(), "select coalesce(max(version), 0) from outbox_schema_migrations").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// sample is one of events/custom-resource-*.json.
func sample(t *testing.T, name string) cfn.Event {
	t.Helper()
	var event cfn.Event
	if err := json.Unmarshal([]byte(fixture(t, "custom-resource-"+name+".json")), &event); err != nil {
		t.Fatal(err)
	}
	return event
}

// cloudFormation takes answers.
type cloudFormation struct {
	*testing.T
	url      string
	mu       sync.Mutex
	statuses []int // to answer with; the last one stays; 0 hangs up
	bodies   []string
}

func newCloudFormation(t *testing.T) *cloudFormation {
	t.Helper()
	c := &cloudFormation{T: t, statuses: []int{200}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL + "/answer?" + signature
	return c
}

func (c *cloudFormation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	// S3 verifies a signature over an empty content type, and takes no body of unknown length.
	if err != nil || r.Method != http.MethodPut || r.Header["Content-Type"] != nil || r.ContentLength != int64(len(body)) || r.URL.RawQuery != signature {
		c.Errorf("%s %s, content type %v, length %d (%v); want a PUT as it was signed", r.Method, r.URL, r.Header["Content-Type"], r.ContentLength, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies = append(c.bodies, string(body))
	status := c.statuses[0]
	if len(c.statuses) > 1 {
		c.statuses = c.statuses[1:]
	}
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "the server's own words: "+signature)
}

func (c *cloudFormation) told() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.bodies)
}

// address makes the event answerable here.
func (c *cloudFormation) address(t *testing.T, event cfn.Event) json.RawMessage {
	t.Helper()
	event.ResponseURL = c.url
	raw, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// play invokes the function and returns what it told; the reply is the same.
func (c *cloudFormation) play(app *app, event cfn.Event) []string {
	c.Helper()
	reply, err := app.handle(c.Context(), c.address(c.T, event))
	told := c.told()
	if raw, ok := reply.(json.RawMessage); err != nil || !ok || len(told) == 0 || string(raw) != told[len(told)-1] {
		c.Fatalf("reply %s, error %v, told %q; want the reply that was told", reply, err, told)
	}
	return told
}
