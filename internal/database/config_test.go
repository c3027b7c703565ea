package database

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestFaultsNameVariableValueAndWhatItTakes(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const good = "postgres://app:hunter2@db.example.com/shop"
	for name, test := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"nothing set": {nil, []string{"DATABASE_URL: not set; set DATABASE_URL, or DATABASE_SECRET_ARN, or OUTBOX_DB_IAM_AUTH=true"}},
		"two sources": {
			map[string]string{"DATABASE_URL": good, "DATABASE_SECRET_ARN": testARN},
			[]string{"DATABASE_URL: set beside [DATABASE_SECRET_ARN], takes one source"},
		},
		"three sources": {
			map[string]string{"DATABASE_URL": good, "DATABASE_SECRET_ARN": testARN, "OUTBOX_DB_IAM_AUTH": "true"},
			[]string{"DATABASE_URL: set beside [DATABASE_SECRET_ARN OUTBOX_DB_IAM_AUTH], takes one source"},
		},
		"a URL beside its parts": {
			map[string]string{"DATABASE_URL": good, "OUTBOX_DB_HOST": "h", "OUTBOX_DB_PORT": "1", "OUTBOX_DB_NAME": "n", "OUTBOX_DB_USER": "u"},
			[]string{`OUTBOX_DB_HOST: got "h", takes nothing: the URL says it`, "OUTBOX_DB_PORT", "OUTBOX_DB_NAME", "OUTBOX_DB_USER"},
		},
		"a user beside a secret": {
			map[string]string{"DATABASE_SECRET_ARN": testARN, "OUTBOX_DB_USER": "u"},
			[]string{`OUTBOX_DB_USER: got "u", takes nothing: the secret says it`},
		},
		"no ARN":               {map[string]string{"DATABASE_SECRET_ARN": "hunter2"}, []string{"DATABASE_SECRET_ARN: not an ARN, takes arn:aws:secretsmanager:"}},
		"IAM without its part": {map[string]string{"OUTBOX_DB_IAM_AUTH": "true"}, []string{"OUTBOX_DB_HOST: not set: IAM", "OUTBOX_DB_USER: not set: IAM"}},
		"IAM in plaintext": {
			map[string]string{"OUTBOX_DB_IAM_AUTH": "1", "OUTBOX_DB_HOST": "h", "OUTBOX_DB_USER": "u", "OUTBOX_DB_SSLMODE": "disable"},
			[]string{`OUTBOX_DB_SSLMODE: got "disable", takes anything but disable`},
		},
		"every number and word at once": {
			map[string]string{
				"DATABASE_URL": good, "OUTBOX_DB_MAX_CONNS": "1", "OUTBOX_DB_PORT": "70000", "OUTBOX_DB_EXEC_MODE": "fast",
				"OUTBOX_DB_SSLMODE": "prefer", "OUTBOX_DB_IAM_AUTH": "perhaps", "OUTBOX_DB_SSLROOTCERT": "/no/such.pem",
			},
			[]string{
				`OUTBOX_DB_MAX_CONNS: got "1", takes a whole number from 2 to 50`,
				`OUTBOX_DB_PORT: got "70000", takes a whole number from 1 to 65535`,
				`OUTBOX_DB_EXEC_MODE: got "fast", takes one of cache_statement, cache_describe, describe_exec, exec, simple_protocol`,
				`OUTBOX_DB_SSLMODE: got "prefer", takes one of disable, require, verify-ca, verify-full`,
				`OUTBOX_DB_IAM_AUTH: got "perhaps", takes true or false`,
				`OUTBOX_DB_SSLROOTCERT: got "/no/such.pem", takes a readable PEM file or system: no such file or directory`,
			},
		},
		"roots without a certificate": {
			map[string]string{"DATABASE_URL": good, "OUTBOX_DB_SSLROOTCERT": empty},
			[]string{"takes a PEM file with at least one certificate, or system"},
		},
		"no URL":                 {map[string]string{"DATABASE_URL": "host=db password=hunter2"}, []string{"DATABASE_URL: not a URL, takes postgres://"}},
		"a URL's mode":           {map[string]string{"DATABASE_URL": good + "?sslmode=prefer"}, []string{"DATABASE_URL: its sslmode is unknown or may fall back to plaintext"}},
		"a URL's roots":          {map[string]string{"DATABASE_URL": good + "?sslrootcert=/no/such.pem"}, []string{`DATABASE_URL sslrootcert: got "/no/such.pem"`}},
		"settings with a place":  {map[string]string{"DATABASE_URL": good + "?pool_max_conns=9&ssl=true"}, []string{"DATABASE_URL: says pool_max_conns, takes it by OUTBOX_DB_MAX_CONNS", "DATABASE_URL: says ssl, takes it by sslmode"}},
		"a bad port":             {map[string]string{"DATABASE_URL": "postgres://app:hunter2@db:none/shop"}, []string{"DATABASE_URL: cannot be parsed"}},
		"a slash in a password":  {map[string]string{"DATABASE_URL": "postgres://app:hunter2/x@db/shop"}, []string{"DATABASE_URL: cannot be parsed"}},
		"a percent in a query":   {map[string]string{"DATABASE_URL": good + "?password=hunter2%zz"}, []string{"DATABASE_URL: its query cannot be read"}},
		"a percent in passwords": {map[string]string{"DATABASE_URL": "postgres://app:hunter2%zz@db/shop"}, []string{"DATABASE_URL: cannot be parsed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := FromEnv(environment(test.env))
			if err == nil {
				t.Fatal("got no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got:\n%v\nwant it to contain:\n%s", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func TestVariablesListsWhatIsRead(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	// Every branch of the source reads its own.
	for _, env := range []map[string]string{nil, {"DATABASE_URL": "postgres://h/d"}, {"DATABASE_SECRET_ARN": testARN}, {"OUTBOX_DB_IAM_AUTH": "true"}} {
		_, _ = FromEnv(func(name string) string { read[name] = true; return env[name] })
	}
	delete(read, "AWS_LAMBDA_FUNCTION_NAME") // Lambda's, not configuration
	var listed []string
	for _, v := range Variables() {
		listed = append(listed, v.Name)
		if v.Takes == "" || v.Meaning == "" {
			t.Errorf("%s is not described", v.Name)
		}
	}
	slices.Sort(listed)
	if got := slices.Sorted(maps.Keys(read)); !slices.Equal(got, listed) {
		t.Errorf("read:   %v\nlisted: %v", got, listed)
	}
}

func TestConfigPrintsNoSecret(t *testing.T) {
	t.Parallel()
	c := fromEnv(t, map[string]string{"DATABASE_URL": "postgres://app:hunter2@localhost/shop"})
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got, want := fmt.Sprintf(verb, c), "database by DATABASE_URL"; got != want {
			t.Errorf("%s: got %q, want %q", verb, got, want)
		}
	}
}

func TestExecMode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]pgx.QueryExecMode{
		"": pgx.QueryExecModeCacheStatement, "cache_statement": pgx.QueryExecModeCacheStatement, "cache_describe": pgx.QueryExecModeCacheDescribe,
		"describe_exec": pgx.QueryExecModeDescribeExec, "exec": pgx.QueryExecModeExec, "simple_protocol": pgx.QueryExecModeSimpleProtocol,
	} {
		c := fromEnv(t, map[string]string{"DATABASE_URL": "postgres://localhost/shop", "OUTBOX_DB_EXEC_MODE": text})
		pool := openPool(t, c)
		if got := pool.Config().ConnConfig.DefaultQueryExecMode; got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}
