package postgres_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// refusal runs a statement and returns what the database calls its fault, "" for none.
func refusal(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) string {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql, args...)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &refused):
		t.Fatalf("%s: %v", sql, err)
	case refused.Code == "22023":
		return refused.Message
	}
	return refused.ConstraintName
}

func TestEndpointAddTakesWhatCanBeDelivered(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	for _, tc := range []struct{ arguments, want string }{
		{`'a', 'https://a.example/hook?x=1'`, ""},
		{`'a', 'https://other.example'`, "outbox_endpoint_exists"},
		{`'a2', 'https://other.example', p_tenant => 'a'`, "outbox_endpoint_overlap"}, // a is the only one of tenant a
		{`'a', 'https://other.example', p_tenant => 'z'`, "outbox_endpoint_exists"},
		{`'b', 'http://b.example:8080', array['arn:aws:secretsmanager:eu-central-1:1:secret:b-x#key', 'env:B_OLD']`, ""},
		{`'c', 'ftp://c.example'`, "outbox_endpoint_url"},
		{`'c', 'https://user:word@c.example'`, "outbox_endpoint_url"},
		{`'c', 'https://c.example/#part'`, "outbox_endpoint_url"},
		{`'c', 'https:///path'`, "outbox_endpoint_url"},
		{`'c', 'https://c.example', array['whsec_bXktc2VjcmV0LW15LXNlY3JldC1teQ==']`, "outbox_endpoint_secret_ref"},
		{`'c', 'https://c.example', array['env:A', 'env:B', 'env:C']`, "outbox_endpoint_secret_ref"},
		{`'c', 'https://c.example', array['env:A', null]`, "outbox_endpoint_secret_ref"},
		{`'c', 'https://c.example', array['']`, "outbox_endpoint_secret_ref"},
		{`'d/e', 'https://d.example'`, "outbox_endpoint_id"},
		{`'d', 'https://d.example', p_tenant => ' '`, "outbox_endpoint_tenant"},
		{`'d', 'https://d.example', p_event_types => '{}'`, "outbox_endpoint_event_types"},
		{`'d', 'https://d.example', p_event_types => array['x', null]`, "outbox_endpoint_event_types"},
		{`'e', 'https://e.example', p_tenant => 't', p_event_types => array['order.placed', 'order.paid']`, ""},
		{`'f', 'https://f.example', p_tenant => 't', p_event_types => array['order.paid', 'order.shipped']`, "outbox_endpoint_overlap"},
		{`'f', 'https://f.example', p_tenant => 't'`, "outbox_endpoint_overlap"},
		{`'f', 'https://f.example', p_tenant => 't', p_event_types => array['order.shipped']`, ""},
		{`'g', 'https://g.example', p_tenant => 'u', p_event_types => array['order.paid']`, ""},
	} {
		if got := refusal(t, pool, `select outbox_endpoint_add(`+tc.arguments+`)`); got != tc.want {
			t.Errorf("add(%s): refused by %q, want %q", tc.arguments, got, tc.want)
		}
	}
	for _, tc := range []struct{ types, want string }{
		{`array['order.placed', 'order.lost']`, ""},
		{`array['order.shipped']`, "outbox_endpoint_overlap"},
		{`null`, "outbox_endpoint_overlap"},
	} {
		if got := refusal(t, pool, `select outbox_endpoint_subscribe('e', `+tc.types+`)`); got != tc.want {
			t.Errorf("subscribe to %s: refused by %q, want %q", tc.types, got, tc.want)
		}
	}
}

// TestOverlappingAddsAreRefusedWhenTheyRunAtOnce: neither sees the other's row when it looks first.
func TestOverlappingAddsAreRefusedWhenTheyRunAtOnce(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	const callers = 4
	refusals := make([]string, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			refusals[i] = refusal(t, pool, `select outbox_endpoint_add($1, 'https://x.example', p_tenant => 't')`, fmt.Sprint(i))
		})
	}
	all.Wait()
	slices.Sort(refusals)
	if want := []string{"", "outbox_endpoint_overlap", "outbox_endpoint_overlap", "outbox_endpoint_overlap"}; !slices.Equal(refusals, want) {
		t.Errorf("refusals %q, want %q", refusals, want)
	}
}

func TestEndpointRotateKeepsTheOldSecretUntilTheSecondCall(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	execute(t, pool, `select outbox_endpoint_add('a', 'https://a.example', array['env:ONE'])`)
	for _, tc := range []struct {
		argument string
		want     []string
	}{
		{`'env:TWO'`, []string{"env:TWO", "env:ONE"}},
		{`'env:THREE'`, []string{"env:THREE", "env:TWO"}},
		{`'env:THREE'`, []string{"env:THREE", "env:TWO"}},
		{`'env:TWO'`, []string{"env:TWO", "env:THREE"}},
		{`null`, []string{"env:TWO"}},
		{`null`, []string{"env:TWO"}},
	} {
		if !scalar[bool](t, pool, `select outbox_endpoint_rotate('a', `+tc.argument+`)`) {
			t.Errorf("rotate to %s: false, want true", tc.argument)
		}
		if got := scalar[[]string](t, pool, `select secret_refs from outbox_endpoints`); !slices.Equal(got, tc.want) {
			t.Errorf("after rotating to %s: %q, want %q", tc.argument, got, tc.want)
		}
	}
	for _, call := range []string{`rotate('none', 'env:X')`, `move('none', 'https://x.example')`, `subscribe('none', null)`, `disable('none')`, `enable('none')`, `remove('none')`} {
		if scalar[bool](t, pool, `select outbox_endpoint_`+call) {
			t.Errorf("%s: true, want false: there is no such endpoint", call)
		}
	}
}

func TestEndpointDisableKeepsTheFirstReasonAndEnableClosesItsCircuits(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	execute(t, pool, `select outbox_endpoint_add('a', 'https://a.example')`)
	state := func() string {
		return scalar[string](t, pool, `select coalesce(reason, '-') || ' ' || (disabled_at is not null) from outbox_endpoints`)
	}
	for _, tc := range []struct{ call, want string }{
		{`disable('a', 'gone', 'https://elsewhere.example')`, "- false"},
		{`disable('a', 'gone', 'https://a.example')`, "gone true"},
		{`disable('a', 'later')`, "gone true"},
		{`enable('a')`, "- false"},
	} {
		execute(t, pool, `select outbox_endpoint_`+tc.call)
		if got := state(); got != tc.want {
			t.Errorf("after %s: %s, want %s", tc.call, got, tc.want)
		}
	}
	for _, key := range []string{"crm/a", "shop/a", "crm/ba", "a", "crm"} {
		execute(t, pool, `select outbox_circuit_report('`+key+`', 'failure')`)
	}
	execute(t, pool, `select outbox_circuit_hold('held/a'); select outbox_endpoint_enable('a')`)
	got := scalar[[]string](t, pool, `select array_agg(key order by key) from outbox_circuit_states where state <> 'closed'`)
	if want := []string{"a", "crm", "crm/ba", "held/a"}; !slices.Equal(got, want) {
		t.Errorf("circuits %q are not closed, want %q", got, want)
	}
}

func TestEndpointsRemembersWhatItFoundAndWhatItDidNot(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	execute(t, pool, `
select outbox_endpoint_add('a1', 'https://a.example/1', array['env:A', 'env:B'], 'a', array['x']);
select outbox_endpoint_add('a2', 'https://a.example/2', p_tenant => 'a', p_event_types => array['y', 'z']);
select outbox_endpoint_add('b', 'http://b.example');
select outbox_endpoint_disable('b', 'on holiday');`)
	asked := []string{"a", "b", "c", "a", "\x00", "\xff", ""}
	want := map[string][]postgres.Endpoint{
		"a": {
			{ID: "a1", Tenant: "a", URL: "https://a.example/1", SecretRefs: []string{"env:A", "env:B"}, EventTypes: []string{"x"}},
			{ID: "a2", Tenant: "a", URL: "https://a.example/2", SecretRefs: []string{}, EventTypes: []string{"y", "z"}},
		},
		"b": {{ID: "b", Tenant: "b", URL: "http://b.example", SecretRefs: []string{}, Disabled: true, Reason: "on holiday"}},
	}
	endpoints := &postgres.Endpoints{Pool: pool, TTL: time.Hour}
	brief := &postgres.Endpoints{Pool: pool, TTL: time.Nanosecond}
	of := func(e *postgres.Endpoints) map[string][]postgres.Endpoint {
		t.Helper()
		got, err := e.Of(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, e := range []*postgres.Endpoints{endpoints, brief} {
		if got := of(e); !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v\nwant\n%+v", got, want)
		}
	}
	execute(t, pool, `select outbox_endpoint_remove('a1'); select outbox_endpoint_remove('b'); select outbox_endpoint_add('c', 'https://c.example')`)
	if got := of(endpoints); !reflect.DeepEqual(got, want) {
		t.Errorf("within its time the answer is\n%+v\nwant the old one\n%+v", got, want)
	}
	if got := of(brief); len(got["a"]) != 1 || len(got["b"]) != 0 || len(got["c"]) != 1 {
		t.Errorf("after its time the answer is\n%+v\nwant a2 and c", got)
	}
	if err := endpoints.Disable(t.Context(), want["a"][1], "http_410"); err != nil {
		t.Fatal(err)
	}
	moved := want["a"][1]
	moved.URL = "https://elsewhere.example"
	if err := endpoints.Disable(t.Context(), moved, "http_410"); err == nil || err.Error() != "disable endpoint a2: it is no longer there" {
		t.Errorf("disabling it where it is not: %v, want an error", err)
	}
	if got := of(endpoints)["a"]; len(got) != 1 || !got[0].Disabled || got[0].Reason != "http_410" {
		t.Errorf("after disabling it the endpoint is %+v, want one, disabled", got)
	}
}

// TestEndpointsStaysWithinItsSize: whatever was forgotten is asked for again.
func TestEndpointsStaysWithinItsSize(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	execute(t, pool, `select outbox_endpoint_add('t' || n, 'https://a.example/' || n) from generate_series(1, 50) n`)
	endpoints := &postgres.Endpoints{Pool: pool, Size: 7, TTL: time.Hour}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for n := range 50 {
				tenants := []string{fmt.Sprint("t", n+1), fmt.Sprint("t", (n+20)%50+1)}
				found, err := endpoints.Of(t.Context(), tenants)
				if err != nil || len(found) != 2 {
					t.Errorf("endpoints of %q: %+v, %v, want one each", tenants, found, err)
				}
			}
		})
	}
	callers.Wait()
	all := make([]string, 50)
	for n := range all {
		all[n] = fmt.Sprint("t", n+1)
	}
	if found, err := endpoints.Of(t.Context(), all); err != nil || len(found) != 50 {
		t.Errorf("found %d, %v, want 50", len(found), err)
	}
	execute(t, pool, `delete from outbox_endpoints`)
	found, err := endpoints.Of(t.Context(), all)
	if err != nil || len(found) != 7 {
		t.Errorf("remembers %d, %v, want 7", len(found), err)
	}
}

// TestEndpointsAndDiscardsInEveryQueryMode: a pooler may leave no other.
func TestEndpointsAndDiscardsInEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := postgrestest.New(t)
			execute(t, pool, `
select outbox_endpoint_add('a', 'https://a.example', array['env:A'], 't', array['x', 'it''s']);
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, error)
values ('o', gen_random_uuid(), 'x', 'k', '{}', 'discarded', 'by hand')`)
			config := pool.Config().Copy()
			config.ConnConfig.DefaultQueryExecMode = mode
			own, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			endpoints, store := &postgres.Endpoints{Pool: own}, &postgres.Store{Pool: own}
			found, err := endpoints.Of(t.Context(), []string{"t", `it's "{,}`})
			if err != nil || len(found) != 1 || len(found["t"]) != 1 || !slices.Equal(found["t"][0].EventTypes, []string{"x", "it's"}) {
				t.Fatalf("endpoints %+v, error %v, want that of t", found, err)
			}
			if err := endpoints.Disable(t.Context(), found["t"][0], "http_410"); err != nil {
				t.Error(err)
			}
			untold, err := store.Untold(t.Context(), []string{"x"}, 0)
			if err != nil || len(untold) != 1 || untold[0].Reason != "by hand" || untold[0].DiscardReason != "" {
				t.Fatalf("untold %+v, error %v, want one", untold, err)
			}
			if err := store.Told(t.Context(), untold); err != nil {
				t.Error(err)
			}
			if untold, err = store.Untold(t.Context(), []string{"x"}, 0); err != nil || len(untold) != 0 {
				t.Errorf("untold %+v, error %v, want none", untold, err)
			}
		})
	}
}
