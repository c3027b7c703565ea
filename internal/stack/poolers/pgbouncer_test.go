//go:build poolers

package poolers_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"

	"github.com/openlup/outbox-dispatch/internal/stack/dispatchtest"
	"github.com/openlup/outbox-dispatch/internal/stack/pgbouncer"
)

// Three connections of the store, and the suite's concurrent cases, share two of the server: what a client said to one
// is soon gone for the other.

func TestStoreHoldsThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for _, program := range programs(t) {
		for name, mode := range pooled(program) {
			t.Run(program.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				pooler := start(t, pgbouncer.Config{Program: program, Prepared: 100})
				testStore(t, mode, pooler.Via)
			})
		}
	}
}

// pooled are the modes that are safe through a pooler in transaction mode. With cache_describe and describe_exec pgx prepares
// the unnamed statement in one round trip and uses it in the next, which may reach another connection of the server, whoever
// the pooler is: docs/configuration.md calls them not safe there, so there is nothing they could be held to. cache_statement
// needs a pooler that tracks statements; TestUntrackedStatementsAreNamedThroughPgBouncer shows what it does without.
func pooled(program pgbouncer.Program) map[string]pgx.QueryExecMode {
	safe := maps.Clone(modes)
	delete(safe, "cache_describe")
	delete(safe, "describe_exec")
	if !program.TracksStatements() {
		delete(safe, "cache_statement")
	}
	return safe
}

func programs(t *testing.T) []pgbouncer.Program {
	t.Helper()
	all, err := pgbouncer.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, pgbouncer.Program.TracksStatements) {
		t.Fatalf("found %v, want one from 1.21 on as well: .ci/pgbouncer builds it on Debian; or name one in %s", all, pgbouncer.Variable)
	}
	if all[0].TracksStatements() {
		t.Fatalf("found %v, want one before 1.21 as well, such as Debian 12's package; or name one in %s", all, pgbouncer.Variable)
	}
	return all
}

func start(t *testing.T, config pgbouncer.Config) *pgbouncer.Server {
	t.Helper()
	config.Upstream = cmp.Or(config.Upstream, server(t))
	pooler, err := pgbouncer.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pooler.Stop)
	return pooler
}

// Through every pooler and in every mode that it allows the function delivers as if there were none.
func TestFunctionDeliversThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for _, program := range programs(t) {
		for mode := range pooled(program) {
			t.Run(program.String()+" "+mode, func(t *testing.T) {
				t.Parallel()
				const n = 300
				w, url := world(t, start(t, pgbouncer.Config{Program: program, Prepared: 100}))
				w.Insert(n, 60)
				f := w.Function(30*time.Second, "DATABASE_URL="+url, "OUTBOX_DB_EXEC_MODE="+mode)
				for passes := 0; w.Count("status <> 'processed'") > 0 && passes < 5; passes++ {
					w.Dispatch(f)
				}
				w.Arrived(n)
				if got := w.Hook.Repeated(); got != 0 {
					t.Errorf("%d deliveries were repeated, want none", got)
				}
			})
		}
	}
}

// A pooler that does not track prepared statements fails the pass, loses nothing, and the answer names what to set.
func TestUntrackedStatementsAreNamedThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for _, program := range programs(t) {
		t.Run(program.String(), func(t *testing.T) {
			t.Parallel()
			const n = 100
			// One connection to the server, so that the second sandbox certainly meets what the first one prepared.
			w, url := world(t, start(t, pgbouncer.Config{Program: program, PoolSize: 1}))
			w.Insert(n, 60)
			_ = w.Invoke(w.Function(20*time.Second, "DATABASE_URL="+url))
			r := w.Invoke(w.Function(20*time.Second, "DATABASE_URL="+url))
			if r.ErrorType != "StoreError" || !strings.Contains(r.ErrorMessage, "OUTBOX_DB_EXEC_MODE=exec") {
				t.Errorf("the answer is %s, want a StoreError that names OUTBOX_DB_EXEC_MODE=exec", r.Raw)
			}
			w.AgeLeases()
			f := w.Function(20*time.Second, "DATABASE_URL="+url, "OUTBOX_DB_EXEC_MODE=exec")
			for passes := 0; w.Count("status <> 'processed'") > 0 && passes < 5; passes++ {
				w.Dispatch(f)
				w.AgeLeases()
			}
			w.Arrived(n)
		})
	}
}

// A pooler's refusal of an old password lets the secret be read again at once, as a server's does.
func TestRotatedPasswordIsReadAgainThroughPgBouncer(t *testing.T) {
	t.Parallel()
	for _, program := range programs(t) {
		for _, auth := range []string{"md5", "scram-sha-256"} {
			t.Run(program.String()+" "+auth, func(t *testing.T) {
				t.Parallel()
				upstream, err := url.Parse(server(t))
				if err != nil {
					t.Fatal(err)
				}
				upstream.User = url.UserPassword(upstream.User.Username(), "two")
				w, through := world(t, start(t, pgbouncer.Config{Program: program, AuthType: auth, Upstream: upstream.String()}))
				way, err := url.Parse(through)
				if err != nil {
					t.Fatal(err)
				}
				secret := map[string]string{
					"host": way.Hostname(), "port": way.Port(), "dbname": way.Path[1:], "username": way.User.Username(), "password": "one",
				}
				var calls atomic.Int32
				manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if calls.Add(1) > 1 {
						secret["password"] = "two"
					}
					text, _ := json.Marshal(secret)
					w.Header().Set("Content-Type", "application/x-amz-json-1.1")
					_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": string(text)})
				}))
				t.Cleanup(manager.Close)
				w.Insert(20, 20)
				w.Dispatch(w.Function(20*time.Second, "OUTBOX_DB_EXEC_MODE=exec", "OUTBOX_DB_SSLMODE=disable", "AWS_REGION=eu-central-1",
					"DATABASE_SECRET_ARN=arn:aws:secretsmanager:eu-central-1:123456789012:secret:outbox-AbCdEf",
					"AWS_ENDPOINT_URL_SECRETS_MANAGER="+manager.URL))
				w.Arrived(20)
				if got := calls.Load(); got != 2 {
					t.Errorf("the secret was read %d times, want 2", got)
				}
			})
		}
	}
}

func world(t *testing.T, pooler *pgbouncer.Server) (*dispatchtest.World, string) {
	t.Helper()
	direct := postgrestest.URL(t)
	through, err := pooler.Via(direct)
	if err != nil {
		t.Fatal(err)
	}
	return dispatchtest.New(t, direct), through
}
