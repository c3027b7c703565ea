// Package database opens the PostgreSQL pool of both functions: where the credentials come from, how the server is
// verified, and how a pool lives in a sandbox that freezes between invocations.
package database

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Defaults of a [Config].
const (
	DefaultPort     = 5432
	DefaultName     = "postgres"
	DefaultMaxConns = 4
)

// Config says how to reach the database. It comes from [FromEnv] only; printing it shows no secret.
type Config struct {
	source source
	// url is DATABASE_URL parsed; nil for the other sources.
	url *pgxpool.Config
	// secretARN names the secret that holds the credentials; host, port and name override what it says.
	secretARN  string
	host       string
	port       uint16
	name, user string

	sslMode     string // empty: chosen by host, see tlsRules
	rootCert    string // a file, "system", or empty for the embedded roots and the system's
	execMode    pgx.QueryExecMode
	maxConns    int32
	application string
	// loadAWS is replaced by tests; it is called when the first connection needs AWS, never before.
	loadAWS func(ctx context.Context, options ...func(*config.LoadOptions) error) (aws.Config, error)
}

type source string

const (
	fromURL    source = "DATABASE_URL"
	fromSecret source = "DATABASE_SECRET_ARN"
	fromIAM    source = "OUTBOX_DB_IAM_AUTH"
)

// String names the source of the credentials.
func (c Config) String() string { return "database by " + string(c.source) }

// GoString is String, so that no verb prints a password.
func (c Config) GoString() string { return c.String() }

// Variable describes one environment variable, for documentation.
type Variable struct{ Name, Default, Takes, Meaning string }

// Variables lists every variable that [FromEnv] reads as configuration, in the order of the documentation.
func Variables() []Variable {
	return []Variable{
		{"DATABASE_URL", "", "`postgres://user:password@host:5432/dbname`", "The database, credentials included. One of three sources."},
		{"DATABASE_SECRET_ARN", "", "ARN of a Secrets Manager secret", "The secret with the credentials, in the JSON form of RDS. One of three sources."},
		{"OUTBOX_DB_IAM_AUTH", "`false`", "`true` or `false`", "Log in with an IAM token instead of a password. One of three sources."},
		{"OUTBOX_DB_HOST", "the secret's", "host name, address, or socket folder", "The server; required with IAM authentication."},
		{"OUTBOX_DB_PORT", "the secret's, else `5432`", "1..65535", "The server's port."},
		{"OUTBOX_DB_NAME", "the secret's, else `postgres`", "name", "The database."},
		{"OUTBOX_DB_USER", "", "role name", "The role of IAM authentication; required there, refused elsewhere."},
		{"OUTBOX_DB_SSLMODE", "`verify-full`; `disable` for loopback and sockets", "`disable`, `require`, `verify-ca`, `verify-full`", "How the server is verified. Overrides the URL's `sslmode`."},
		{"OUTBOX_DB_SSLROOTCERT", "Amazon's and the system's roots", "path of a PEM file, or `system`", "The only roots to trust. Overrides the URL's `sslrootcert`."},
		{"OUTBOX_DB_EXEC_MODE", "`cache_statement`", "`cache_statement`, `cache_describe`, `describe_exec`, `exec`, `simple_protocol`", "How statements are sent; matters behind a pooler."},
		{"OUTBOX_DB_MAX_CONNS", "`4`", "2..50", "Connections per sandbox."},
	}
}

// FromEnv reads the configuration from the environment and reports every fault at once, each naming its variable,
// what it got unless that is secret, and what it takes. An empty variable counts as unset. It reads files named by
// the configuration but connects to nothing.
func FromEnv(getenv func(string) string) (Config, error) {
	r := reader{getenv: getenv}
	c := Config{
		secretARN:   r.secretARN(),
		host:        getenv("OUTBOX_DB_HOST"),
		port:        uint16(r.number("OUTBOX_DB_PORT", 0, 1, 65535)), //nolint:gosec // number keeps it in range
		name:        getenv("OUTBOX_DB_NAME"),
		user:        getenv("OUTBOX_DB_USER"),
		sslMode:     r.oneOf("OUTBOX_DB_SSLMODE", sslModes()),
		rootCert:    getenv("OUTBOX_DB_SSLROOTCERT"),
		execMode:    r.execMode(),
		maxConns:    int32(r.number("OUTBOX_DB_MAX_CONNS", DefaultMaxConns, 2, 50)), //nolint:gosec // number keeps it in range
		application: "outbox-dispatch",
		loadAWS:     config.LoadDefaultConfig,
	}
	if function := getenv("AWS_LAMBDA_FUNCTION_NAME"); function != "" {
		c.application = function
	}
	r.checkRoots("OUTBOX_DB_SSLROOTCERT", c.rootCert)
	c.source = r.source(c)
	if c.source == fromURL {
		c.url = r.url(getenv("DATABASE_URL"), c)
	}
	if c.source == fromIAM && c.sslMode == "disable" {
		r.fault("OUTBOX_DB_SSLMODE", "disable", "anything but disable: an IAM token must not travel unencrypted")
	}
	if err := errors.Join(r.faults...); err != nil {
		return Config{}, err
	}
	return c, nil
}
