package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const endpointRoutes = `
version: 1
destinations:
  customers: {endpoints: {by: payload.tenant, allow_http: true, allow_ports: [1-65535], allow_private: [127.0.0.0/8]}}
routes:
  order.placed: {to: customers}
`

// customers is the server of all of them: it keeps by which secrets the requests of each path are signed.
type customers struct {
	*httptest.Server
	secrets map[string]string

	mu     sync.Mutex
	signed map[string][]string
	status map[string]int
}

func startCustomers(t *testing.T, secrets map[string]string) *customers {
	t.Helper()
	c := &customers{secrets: secrets, signed: map[string][]string{}, status: map[string]int{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		at, _ := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
		var by []string
		for name, text := range c.secrets {
			secret, err := handlers.ParseSecret(text)
			if err != nil {
				t.Errorf("parse %s: %v", name, err)
				continue
			}
			signature := handlers.Sign(r.Header.Get("webhook-id"), time.Unix(at, 0), body, secret)
			if slices.Contains(strings.Fields(r.Header.Get("webhook-signature")), signature) {
				by = append(by, name)
			}
		}
		slices.Sort(by)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.signed[r.URL.Path] = append(c.signed[r.URL.Path], strings.Join(by, "+"))
		if status := c.status[r.URL.Path]; status != 0 {
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *customers) got(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.signed[path], " ")
}

func TestEndpointsOfTenantsAreInTheDatabaseAndTheirSecretsElsewhere(t *testing.T) {
	t.Parallel()
	db := postgrestest.URL(t)
	secrets := map[string]string{
		"env": "whsec_" + strings.Repeat("QUFB", 10), "plain": "whsec_" + strings.Repeat("QkJC", 10), "key": "whsec_" + strings.Repeat("Q0ND", 10),
	}
	server := startCustomers(t, secrets)
	fake := startAWS(t, "")
	fake.name(map[string]string{crmARN: secrets["plain"], keyARN: `{"other": "x", "tenant-b": "` + secrets["key"] + `"}`})
	var l logs
	a := newApp(t.Context(), environment(map[string]string{
		"DATABASE_URL": db, "OUTBOX_ROUTES": endpointRoutes, "SIGNING_KEY": secrets["env"],
	}), fake.load, l.logger())
	if a.fault != nil {
		t.Fatal(a.fault)
	}
	t.Cleanup(a.pool.Close)
	add := func(id, refs string) {
		t.Helper()
		execute(t, db, `select outbox_endpoint_add('`+id+`', '`+server.URL+"/"+id+`', array[`+refs+`]::text[])`)
	}
	add("a", `'env:SIGNING_KEY', '`+crmARN+`'`)
	add("b", `'`+keyARN+`#tenant-b'`)
	add("c", ``)
	add("d", `'env:NO_SUCH_KEY'`)
	add("e", `'`+keyARN+`#none'`)
	add("f", `'arn:aws:s3:::bucket'`)
	add("gone", ``)
	server.status["/gone"] = http.StatusGone
	place := func(tenants ...string) {
		t.Helper()
		for _, tenant := range tenants {
			execute(t, db, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
				values ('order', gen_random_uuid(), 'order.placed', gen_random_uuid(), '{"tenant": "`+tenant+`"}')`)
		}
	}
	place("a", "b", "c", "d", "e", "f", "gone", "nobody")
	result, err := invoke(t, a, "{}")
	if err != nil || result.Processed != 3 || result.Snoozed != 3 || result.Discarded != 2 {
		t.Errorf("result %+v, error %v, want 3 delivered, 3 waiting, 2 discarded", result, err)
	}
	for path, want := range map[string]string{"/a": "env+plain", "/b": "key", "/c": "", "/d": "", "/gone": ""} {
		if got := server.got(path); got != want {
			t.Errorf("%s was signed by %q, want %q", path, got, want)
		}
	}
	rows := texts(t, db, `select payload ->> 'tenant' || ' ' || status || ' ' || error from outbox_events where status <> 'processed' order by 1`)
	want := `d failed endpoint_secret_unread: d, secret 1: the environment variable NO_SUCH_KEY is not set
e failed endpoint_secret_unread: e, secret 1: its JSON object has no such key
f failed endpoint_secret_unread: f, secret 1: the reference is neither env:NAME nor arn:…:secretsmanager:…, with #key for one key of it
gone discarded http_410: gone, endpoint gone is disabled
nobody discarded endpoint_missing: the tenant has none`
	if got := strings.Join(rows, "\n"); got != want {
		t.Errorf("rows are\n%s\nwant\n%s", got, want)
	}
	open := texts(t, db, `select key || ' ' || state from outbox_circuit_states order by 1`)
	if got := strings.Join(open, ", "); got != "customers/d open, customers/e open, customers/f open" {
		t.Errorf("circuits are %s, want one of each endpoint that waits", got)
	}
	if rows := texts(t, db, `select id || ' ' || reason from outbox_endpoints where disabled_at is not null`); len(rows) != 1 || rows[0] != "gone http_410: gone" {
		t.Errorf("disabled are %q, want gone alone", rows)
	}
}

func texts(t *testing.T, url, query string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}
