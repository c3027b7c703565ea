package connections_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

const secretARN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:outbox-AbCdEf"

// A rotation sets the password and moves the secret, one soon after the other. Sessions outlive it; whatever is opened in
// between is refused.
func TestPasswordRotatesInMidPass(t *testing.T) {
	t.Parallel()
	t.Run("secret and password together", func(t *testing.T) {
		t.Parallel()
		r := newRotation(t)
		r.broken(func() {
			r.setPassword("two")
			r.secret.Store("two")
			r.terminate()
		})
		r.resumes()
	})
	t.Run("the secret comes later", func(t *testing.T) {
		t.Parallel()
		r := newRotation(t)
		r.broken(func() {
			r.setPassword("two")
			r.terminate()
		})
		if got := r.Invoke(r.f); !strings.Contains(got.ErrorMessage, "28P01") || !strings.Contains(got.ErrorMessage, "hint: the login was refused") {
			t.Errorf("with the old secret the answer is %s, want 28P01 and a hint", got.Raw)
		}
		r.secret.Store("two")
		r.resumes()
	})
	t.Run("idle sessions end", func(t *testing.T) {
		t.Parallel()
		// A session that was idle may have begun a claim when it is ended: that pass ends with it, and shows nothing.
		for range 5 {
			r := newRotation(t)
			reply := r.broken(func() {
				r.setPassword("two")
				r.secret.Store("two")
				r.Exec(`select pg_terminate_backend(pid) from pg_stat_activity
					where datname = current_database() and application_name = 'test_function' and state = 'idle'`)
			})
			r.resumes()
			if reply.OK {
				return
			}
			if !strings.Contains(reply.ErrorMessage, "57P01") {
				t.Fatalf("the reply is %s, want ok: the refused login is tried again with the new secret", reply.Raw)
			}
		}
		t.Error("five passes ended with a session in the midst of a claim, want one that goes on")
	})
	t.Run("sessions go on", func(t *testing.T) {
		t.Parallel()
		r := newRotation(t)
		r.broken(func() {
			r.setPassword("two")
			r.secret.Store("two")
		})
		r.resumes()
	})
}

// rotation is a scene whose function logs in by a secret, on a server that asks for passwords.
type rotation struct {
	*scene
	secret atomic.Value // the password in it
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	direct := private(t)
	r := &rotation{scene: newScene(t, direct)}
	r.Exec("create role app login; grant all on all tables in schema public to app; grant all on all sequences in schema public to app")
	r.setPassword("one")
	r.secret.Store("one")
	var file string
	if err := r.Pool.QueryRow(t.Context(), "show hba_file").Scan(&file); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append([]byte("host all app 127.0.0.1/32 scram-sha-256\n"), old...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Exec("select pg_reload_conf()")
	r.await()
	r.refuses("wrong")
	way, err := url.Parse("postgres://" + r.way.Listen)
	if err != nil {
		t.Fatal(err)
	}
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		secret, err := json.Marshal(map[string]string{
			"host": way.Hostname(), "port": way.Port(), "dbname": "postgres", "username": "app", "password": r.secret.Load().(string),
		})
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if err = errors.Join(err, json.NewEncoder(w).Encode(map[string]string{"SecretString": string(secret)})); err != nil {
			t.Errorf("answer the secret: %v", err)
		}
	}))
	t.Cleanup(manager.Close)
	r.f = r.Function(timeout, "DATABASE_SECRET_ARN="+secretARN, "OUTBOX_DB_SSLMODE=disable", "OUTBOX_BATCH_SIZE=25",
		"AWS_REGION=eu-central-1", "AWS_ENDPOINT_URL_SECRETS_MANAGER="+manager.URL)
	return r
}

func (r *rotation) setPassword(password string) {
	r.Helper()
	r.Exec("alter role app password '" + password + "'")
}

// refuses fails the test unless the server refuses the password: else a rotation shows nothing.
func (r *rotation) refuses(password string) {
	r.Helper()
	config := r.Pool.Config().ConnConfig
	config.User, config.Password = "app", password
	conn, err := pgx.ConnectConfig(r.Context(), config)
	if err == nil {
		_ = conn.Close(r.Context())
		r.Fatal("the server takes any password: the case shows nothing")
	}
	if !strings.Contains(err.Error(), "28P01") {
		r.Fatalf("got %v, want 28P01", err)
	}
}
