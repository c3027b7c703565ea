package database

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// thawAfter is the pause between two invocations after which connections are not trusted any more.
	thawAfter = 30 * time.Second
	// joinWithin is how old an early attempt may be that is waited for. The sandbox of an older one was frozen in the midst of it,
	// most likely: its time may have passed meanwhile, or its server.
	joinWithin = time.Second
	// newFor is how long after its login a connection is taken to live.
	newFor = 10 * time.Millisecond
	// pingTimeout is how long a connection has to prove that it lives before it is replaced.
	pingTimeout = 2 * time.Second
	// connectTimeout is the time for a connection to a host unless the URL says another.
	connectTimeout = 5 * time.Second
)

// Pool is a pool of connections for a process that is frozen between invocations.
type Pool struct {
	*pgxpool.Pool
	lastUse    atomic.Int64 // wall clock, Unix nanoseconds; zero before the first use
	distrusted atomic.Bool
	early      early
}

// Open makes the pool. It connects to nothing and calls nobody: [Pool.Connect] and the first query do. The caller owns the
// pool; a Lambda function never closes it, since a connection that is broken takes up to 15 s to close.
func Open(ctx context.Context, c Config) (*Pool, error) {
	cfg := c.url
	if c.source == fromURL {
		cfg = cfg.Copy()
		c.dress(cfg.ConnConfig)
	} else {
		var err error
		// A stand-in: every connection gets its own login in BeforeConnect.
		if cfg, err = pgxpool.ParseConfig("host=localhost sslmode=disable"); err != nil {
			return nil, fmt.Errorf("configure the pool: %w", err)
		}
		keys := &credentials{config: c}
		cfg.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error { return c.prepare(ctx, keys, conn) }
	}
	cfg.MaxConns = c.maxConns
	cfg.MinConns = 0
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // prove does
	p := new(Pool)
	cfg.PrepareConn = p.prove
	cfg.AfterConnect = markMade
	var err error
	if p.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("make the pool: %w", err)
	}
	return p, nil
}

// madeAt is where a connection keeps when it was made, by the wall clock.
const madeAt = "outbox-dispatch: made at"

func markMade(_ context.Context, conn *pgx.Conn) error {
	conn.PgConn().CustomData()[madeAt] = time.Now().Round(0)
	return nil
}

// isNew tells whether a connection was made a moment ago, and so needs no proof: a cold start has several such moments.
func isNew(conn *pgx.Conn) bool {
	at, ok := conn.PgConn().CustomData()[madeAt].(time.Time)
	age := time.Now().Round(0).Sub(at)
	return ok && age >= 0 && age < newFor
}

// errSilent ends the wait for a connection that says nothing.
var errSilent = errors.New("the connection said nothing in time")

// prove tells whether a connection that is about to be used still lives. One that says nothing in time takes the idle ones
// with it: what silenced it has silenced them, and to wait for each would take an invocation's time.
func (p *Pool) prove(ctx context.Context, conn *pgx.Conn) (bool, error) {
	if isNew(conn) {
		return true, ctx.Err()
	}
	ping, cancel := context.WithTimeoutCause(ctx, pingTimeout, errSilent)
	defer cancel()
	err := conn.Ping(ping)
	if err != nil && ping.Err() != nil && ctx.Err() == nil {
		p.Reset()
	}
	return err == nil, ctx.Err()
}

// Distrust lets the next Ready drop all connections. It is for invocations that a database error ended: a server that a
// failover made read-only answers every ping.
func (p *Pool) Distrust() { p.distrusted.Store(true) }

// Ready is to be called at the start of every invocation. After a long pause it drops the connections that the
// pause may have killed, and after [Pool.Distrust] all; then it proves that the database answers. The attempt of
// [Pool.Connect] is its first one if it is still under way and began a moment ago. A refused login is tried once more, with
// the credentials read again.
func (p *Pool) Ready(ctx context.Context) error {
	now := time.Now().UnixNano()
	last := p.lastUse.Swap(now)
	if p.distrusted.Swap(false) || last != 0 && now-last > int64(thawAfter) {
		p.Reset()
	}
	var err error
	if now-last < int64(joinWithin) {
		err = p.early.join(ctx)
	}
	if err == nil {
		err = p.touch(ctx)
	}
	if LoginRefused(err) {
		err = p.touch(ctx)
	}
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// touch proves that the pool has a connection.
func (p *Pool) touch(ctx context.Context) error {
	conn, err := p.Acquire(ctx) // which proves it
	if err == nil {
		conn.Release()
	}
	return err
}

// prepare makes the configuration of one connection from its login.
func (c Config) prepare(ctx context.Context, keys *credentials, conn *pgx.ConnConfig) error {
	l, err := keys.login(ctx)
	if err != nil {
		return err
	}
	mode := c.sslMode
	if mode == "" && c.source == fromIAM {
		mode = defaultMode // also on this machine: the token must not travel unencrypted
	}
	settings := map[string]string{"host": l.host, "sslmode": cmp.Or(mode, defaultMode)}
	if c.rootCert != "" {
		settings["sslrootcert"] = c.rootCert
	}
	made, err := pgx.ParseConfig(keywordValues(settings))
	if err != nil {
		return errors.New("the host, sslmode or sslrootcert cannot be used")
	}
	made.Port, made.Database, made.User, made.Password = l.port, l.name, l.user, l.password
	for _, fallback := range made.Fallbacks {
		fallback.Port = l.port
	}
	tlsRules(&made.Config, mode, c.rootCert)
	c.dress(made)
	closeOnFatal := made.OnPgError
	made.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if LoginRefused(err) {
			keys.refused()
		}
		return closeOnFatal(conn, err)
	}
	*conn = *made
	return nil
}

// dress sets what every connection has. The encoding is sent since a database or role may name another, in which
// payloads would be delivered; poolers know it. No other session parameter is: poolers refuse those they don't know, and
// time limits come from contexts.
func (c Config) dress(conn *pgx.ConnConfig) {
	conn.DefaultQueryExecMode = c.execMode
	if conn.ConnectTimeout <= 0 {
		conn.ConnectTimeout = connectTimeout
	}
	conn.RuntimeParams = maps.Clone(conn.RuntimeParams)
	conn.RuntimeParams["client_encoding"] = "UTF8"
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = c.application
	}
}

// LoginRefused tells whether the server refused the user or password. PgBouncer says so by words only, under the code of
// all its errors.
func LoginRefused(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (refusal.Code == "28P01" || refusal.Code == "28000" ||
		refusal.Code == "08P01" && strings.Contains(refusal.Message, "authentication failed"))
}

// keywordValues writes settings in libpq's keyword form.
func keywordValues(settings map[string]string) string {
	var pairs []string
	escape := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	for key, value := range settings {
		pairs = append(pairs, key+"='"+escape.Replace(value)+"'")
	}
	return strings.Join(pairs, " ")
}
