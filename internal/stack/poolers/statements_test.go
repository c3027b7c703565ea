package poolers_test

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"

	"github.com/openlup/outbox-dispatch/internal/stack/dispatchtest"
)

const twoDestinations = `
version: 1
destinations:
  hook: {http: {url: "${HOOK_URL}", timeout: 1s, allow_http: true, allow_ports: [1-65535], allow_private: ["127.0.0.0/8"]}}
  down: {http: {url: "http://127.0.0.1:1/", timeout: 1s, allow_http: true, allow_ports: [1-65535], allow_private: ["127.0.0.0/8"]}}
routes:
  order.placed: {to: hook}
  order.shipped: {to: down}
`

// allowed is a single call of one of our functions, or the read of one payload.
var allowed = regexp.MustCompile(`^select [^;]*\bpublic\.outbox_[a-z_]+\b[^;]*$`)

// literals are what simple_protocol puts into a statement's text.
var literals = regexp.MustCompile(`'(?:[^']|'')*'`)

// A pass that claims, processes, retries, discards, opens a circuit and reads the statistics says nothing to the server but
// pings and single calls of our functions: nothing that would need a session of its own.
func TestDispatchPathNeedsNoSession(t *testing.T) {
	t.Parallel()
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.URL(t)
			heard, through := listen(t, url)
			w := dispatchtest.New(t, url)
			f := w.Function(20*time.Second, "DATABASE_URL="+through, "OUTBOX_DB_EXEC_MODE="+mode, "OUTBOX_ROUTES="+twoDestinations,
				"OUTBOX_MAX_ATTEMPTS=1")
			statuses := []int{http.StatusNoContent, http.StatusNoContent, http.StatusInternalServerError, http.StatusNoContent}
			w.Insert(40, 40)
			w.Exec(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
				select 'parcel', gen_random_uuid(), 'order.shipped', n::text, '{}' from generate_series(1, 20) n`)
			w.Hook.Answer(func(string) int { return statuses[w.Hook.Distinct()%len(statuses)] })
			w.Dispatch(f)
			w.Dispatch(f)
			if got := w.Count("status = 'processed'"); got == 0 {
				t.Error("nothing was processed: the case shows little")
			}
			if got := w.Count("status <> 'processed'"); got == 0 {
				t.Error("nothing failed: the case shows little")
			}
			noLocks(w)
			heard.check(t, mode)
		})
	}
}

// noLocks looks at the server, while the function's sessions are open: statements that call functions may leave in a session
// what their text doesn't show.
func noLocks(w *dispatchtest.World) {
	w.Helper()
	var locks, temporary int
	err := w.Pool.QueryRow(w.Context(), `select
		(select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())),
		(select count(*) from pg_class where relpersistence = 't')`).Scan(&locks, &temporary)
	if err != nil || locks != 0 || temporary != 0 {
		w.Errorf("left behind: %d advisory locks, %d temporary relations, %v, want none", locks, temporary, err)
	}
}

func (w *wire) check(t *testing.T, mode string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	called := map[string]bool{}
	for _, statement := range w.statements {
		plain := strings.ToLower(strings.Join(strings.Fields(literals.ReplaceAllString(statement, "''")), " "))
		if plain == "" || plain == ";" || plain == "-- ping" {
			continue
		}
		if !allowed.MatchString(plain) {
			t.Errorf("said %q, want calls of our functions only", statement)
		}
		for _, name := range regexp.MustCompile(`public\.(outbox_[a-z_]+)`).FindAllStringSubmatch(plain, -1) {
			called[name[1]] = true
		}
	}
	for _, name := range []string{"outbox_claim_lanes", "outbox_settle", "outbox_circuits_load", "outbox_circuit_report", "outbox_queue_stats"} {
		if !called[name] {
			t.Errorf("%s was not called, but %v: the case shows little", name, slices.Sorted(maps.Keys(called)))
		}
	}
	if len(w.parameters) == 0 {
		t.Error("no connection was made through the wire")
	}
	for _, parameters := range w.parameters {
		got := slices.Sorted(maps.Keys(parameters))
		if want := []string{"application_name", "client_encoding", "database", "user"}; !slices.Equal(got, want) {
			t.Errorf("startup parameters are %v, want %v: poolers refuse others", got, want)
		}
	}
	// Query, or Parse, Bind, Describe, Execute, Sync and Close; and Terminate.
	takes := map[string]string{
		"simple_protocol": "QX", "exec": "QPBDESX", "describe_exec": "QPBDESX", "cache_describe": "QPBDESX", "cache_statement": "QPBDESCX",
	}[mode]
	for _, kind := range w.kinds {
		if !strings.ContainsRune(takes, rune(kind)) {
			t.Errorf("messages of kind %c, want %s only", kind, takes)
		}
	}
}
