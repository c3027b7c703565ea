package database

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

func secretText(s *server, password string) string {
	return fmt.Sprintf(`{"engine":"postgres","host":"127.0.0.1","port":"%d","dbname":"shop","username":"app","password":%q}`, s.port, password)
}

func withSecret(t *testing.T, sm *secrets, more map[string]string) Config {
	t.Helper()
	env := map[string]string{"DATABASE_SECRET_ARN": testARN}
	maps.Copy(env, more)
	c := fromEnv(t, env)
	c.loadAWS = sm.loadAWS
	return c
}

func TestRealServerAnswers(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		pool := openPool(t, fromEnv(t, map[string]string{
			"DATABASE_URL": postgrestest.URL(t), "OUTBOX_DB_EXEC_MODE": mode, "AWS_LAMBDA_FUNCTION_NAME": "shop-dispatch",
		}))
		if err := pool.Ready(t.Context()); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		var got string
		if err := pool.QueryRow(t.Context(), "select current_setting('application_name') || $1", "!").Scan(&got); err != nil || got != "shop-dispatch!" {
			t.Errorf("%s: got %q, %v", mode, got, err)
		}
		// A role's own encoding would change the payloads that are delivered.
		if err := pool.QueryRow(t.Context(), "select current_setting('client_encoding') || source from pg_settings where name = 'client_encoding'").Scan(&got); err != nil || got != "UTF8client" {
			t.Errorf("%s: encoding and its source are %q, %v, want UTF8 as sent by the client", mode, got, err)
		}
	}
}

func TestSecretIsReadOnceThenCached(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	sm := startSecrets(t, secretText(s, "one"))
	pool := openPool(t, withSecret(t, sm, nil))
	if sm.calls.Load() != 0 {
		t.Error("AWS was called before the first connection")
	}
	for range 3 {
		if err := pool.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		pool.Reset()
	}
	if got := sm.calls.Load(); got != 1 {
		t.Errorf("got %d calls of Secrets Manager, want 1", got)
	}
	got := s.attempts()
	if want := (attempt{user: "app", database: "shop", application: "outbox-dispatch", password: "one"}); len(got) != 3 || got[2] != want {
		t.Errorf("got logins %+v, want three of %+v", got, want)
	}
}

func TestSecretCanBeOverridden(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	for name, text := range map[string]string{
		"managed secret": `{"username":"app","password":"one"}`,
		"another place":  `{"username":"app","password":"one","host":"db.invalid","port":1,"dbname":"other"}`,
		"null port":      `{"username":"app","password":"one","port":null}`,
	} {
		sm := startSecrets(t, text)
		pool := openPool(t, withSecret(t, sm, map[string]string{
			"OUTBOX_DB_HOST": "127.0.0.1", "OUTBOX_DB_PORT": strconv.Itoa(s.port), "OUTBOX_DB_NAME": "shop",
		}))
		if err := pool.Ready(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		all := s.attempts()
		if got := all[len(all)-1]; got.database != "shop" || got.user != "app" {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestRotatedPasswordIsReadAgain(t *testing.T) {
	t.Parallel()
	sm := startSecrets(t, "")
	s := startServer(t, nil, func(password string) bool { return password == "two" })
	sm.value.Store(secretText(s, "one"))
	c := withSecret(t, sm, nil)
	pool := openPool(t, c)
	if err := pool.Ready(t.Context()); !LoginRefused(err) {
		t.Fatalf("got %v, want a refused login", err)
	}
	if got := len(s.attempts()); got != 2 {
		t.Errorf("got %d logins, want 2: the secret is read again once, not for ever", got)
	}
	sm.value.Store(secretText(s, "two"))
	if err := pool.Ready(t.Context()); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
}

func TestRefusalsOfPoolersAreKnown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"password authentication failed": true, "SASL authentication failed": true, `"trust" authentication failed`: true,
		"unsupported startup parameter: search_path": false, `database "shop" does not exist`: false,
	} {
		err := fmt.Errorf("connect: %w", &pgconn.PgError{Code: "08P01", Message: text})
		if got := LoginRefused(err); got != want {
			t.Errorf("%s: got %t, want %t", text, got, want)
		}
	}
}

func TestRefusalOfALaterConnectionMakesTheSecretStale(t *testing.T) {
	t.Parallel()
	sm := startSecrets(t, "")
	valid := make(chan string, 1)
	valid <- "one"
	s := startServer(t, nil, func(password string) bool { now := <-valid; valid <- now; return password == now })
	sm.value.Store(secretText(s, "one"))
	pool := openPool(t, withSecret(t, sm, nil))
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	<-valid
	valid <- "two"
	sm.value.Store(secretText(s, "two"))
	if _, err := pool.Acquire(t.Context()); !LoginRefused(err) {
		t.Fatalf("got %v, want a refused login", err)
	}
	second, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatalf("the next connection still uses the old password: %v", err)
	}
	second.Release()
}

func TestOldSecretOutlivesSecretsManager(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	sm := startSecrets(t, secretText(s, "one"))
	keys := &credentials{config: withSecret(t, sm, nil)}
	if _, err := keys.login(t.Context()); err != nil {
		t.Fatal(err)
	}
	sm.value.Store("")
	keys.fetched = keys.fetched.Add(-secretLife)
	if got, err := keys.login(t.Context()); err != nil || got.password != "one" {
		t.Errorf("expired: got %v, want the old secret", err)
	}
	if got := sm.calls.Load(); got != 2 {
		t.Errorf("got %d calls, want 2: an expired secret is read again", got)
	}
	keys.refused()
	if _, err := keys.login(t.Context()); err == nil || !strings.Contains(err.Error(), "ResourceNotFoundException") {
		t.Errorf("refused: got %v, want the error of Secrets Manager", err)
	}
}

func TestSecretFaultsShowNothingOfIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`hunter2`: "not a JSON object", `["hunter2"]`: "not a JSON object", `{"username":"hunter2"}`: "is missing",
		`{"username":"app","password":"hunter2","port":"hunter2"}`: "not a JSON object",
		`{"username":"app","password":"hunter2"}`:                  "no host",
	} {
		keys := &credentials{config: withSecret(t, startSecrets(t, text), nil)}
		_, err := keys.login(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestIAMTokenIsThePassword(t *testing.T) {
	t.Parallel()
	cert, root := certificate(t, "127.0.0.1")
	s := startServer(t, cert, yes)
	c := fromEnv(t, map[string]string{
		"OUTBOX_DB_IAM_AUTH": "true", "OUTBOX_DB_HOST": "127.0.0.1", "OUTBOX_DB_PORT": strconv.Itoa(s.port),
		"OUTBOX_DB_USER": "app", "OUTBOX_DB_NAME": "shop", "OUTBOX_DB_SSLROOTCERT": root,
	})
	c.loadAWS = (&secrets{}).loadAWS
	if err := openPool(t, c).Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := s.attempts()[0]
	if !got.encrypted || got.user != "app" || got.database != "shop" {
		t.Errorf("got %+v, want app on shop, encrypted although the host is local", got)
	}
	token, err := url.Parse("https://" + got.password)
	if err != nil {
		t.Fatal(err)
	}
	q := token.Query()
	if token.Host != "127.0.0.1:"+strconv.Itoa(s.port) || q.Get("Action") != "connect" || q.Get("DBUser") != "app" || !strings.Contains(q.Get("X-Amz-Credential"), "/eu-central-1/rds-db/") {
		t.Errorf("got a token for %s with %v", token.Host, q)
	}
}

func TestDeadConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	for i := range 3 {
		if err := pool.Ready(t.Context()); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		s.hangUp() // as a proxy or a failover does while the sandbox is frozen
	}
}

func TestOneSilentConnectionIsWaitedForAndNoMore(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	var all []*pgxpool.Conn
	for range DefaultMaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	for _, conn := range all {
		conn.Release()
	}
	time.Sleep(2 * newFor) // a new one needs no proof
	s.goDeaf()
	if err := pool.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.hangUp() // the pool waits for them when it closes
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread != 1 {
		t.Errorf("%d of %d silent connections were waited for, want 1", s.unread, len(all))
	}
}

func TestDistrustedConnectionsAreDropped(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	for i, want := range []int{1, 2, 2} {
		if err := pool.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(s.attempts()); got != want {
			t.Errorf("call %d: %d logins so far, want %d", i, got, want)
		}
		if i == 0 {
			pool.Distrust()
		}
	}
}

func TestConnectionsAreDroppedAfterALongPause(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("")}))
	logins := func() int {
		if err := pool.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(s.attempts())
	}
	if first, second := logins(), logins(); first != 1 || second != 1 {
		t.Errorf("got %d and %d logins, want the connection kept over a short pause", first, second)
	}
	pool.lastUse.Add(-int64(thawAfter + time.Second))
	if got := logins(); got != 2 {
		t.Errorf("got %d logins, want 2: a new connection after a long pause", got)
	}
}

func TestOpenConnectsToNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := fromEnv(t, map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/shop"})
	pool, err := Open(ctx, c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer pool.Close()
	if err := pool.Ready(t.Context()); err == nil {
		t.Error("Ready: got no error from a closed port")
	}
	if got := pool.Config(); got.MaxConns != DefaultMaxConns || got.MinConns != 0 || got.ConnConfig.ConnectTimeout != connectTimeout {
		t.Errorf("got %d..%d connections, connect timeout %v", got.MinConns, got.MaxConns, got.ConnConfig.ConnectTimeout)
	}
}
