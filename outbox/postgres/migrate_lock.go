package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	lockPoll           = 250 * time.Millisecond // between two tries for the migration lock
	lockReleaseTimeout = time.Second
)

// errLockHeld ends the wait for the lock to be given back: the server does that when the connection closes.
var errLockHeld = errors.New("the migration lock was not given back in time")

// migrationLock is an open transaction on a connection of its own that holds the advisory lock. It rests between
// statements without a snapshot: a snapshot would make create index concurrently wait for it for ever.
type migrationLock struct {
	conn *pgxpool.Conn
}

// Sent as one simple query. Read committed, whatever the role's default is, because the stricter levels keep their
// snapshot. The timeouts would end the transaction while it rests; transaction_timeout exists from PostgreSQL 17 on.
// The key is "outboxmg" in ASCII; advisory locks are per database. The last column names who holds the lock.
const lockSQL = `
begin isolation level read committed;
select set_config(name, '0', true) from pg_settings
where name in ('idle_in_transaction_session_timeout', 'transaction_timeout');
select pg_try_advisory_xact_lock(8031453476610927975),
    (select pid from pg_locks
     where locktype = 'advisory' and granted and objsubid = 1
       and database = (select oid from pg_database where datname = current_database())
       and classid::bigint = 8031453476610927975 >> 32
       and objid::bigint = 8031453476610927975 & 4294967295
     limit 1)`

// acquireMigrationLock tries until ctx ends. Every try is a transaction that ends at once and gives its connection
// back, so a waiting runner hinders neither the pool nor the runner's concurrent index builds.
func acquireMigrationLock(ctx context.Context, pool *pgxpool.Pool) (*migrationLock, error) {
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for holder := ""; ; timer.Reset(lockPoll) {
		var err error
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-timer.C:
			var lock *migrationLock
			if lock, holder, err = tryMigrationLock(ctx, pool, holder); lock != nil {
				return lock, nil
			}
		}
		if err != nil && ctx.Err() != nil && holder != "" {
			return nil, &MigrationLockError{Waited: time.Since(start), Holder: holder, Err: context.Cause(ctx)}
		}
		if err != nil {
			return nil, fmt.Errorf("take the migration lock: %w", withCause(ctx, err))
		}
	}
}

// tryMigrationLock returns the lock, or nil and who holds it, which is holder as before if nobody was seen.
func tryMigrationLock(ctx context.Context, pool *pgxpool.Pool, holder string) (*migrationLock, string, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, holder, err
	}
	lock := &migrationLock{conn: conn}
	results, err := conn.Conn().PgConn().Exec(ctx, lockSQL).ReadAll()
	if err != nil {
		lock.release(ctx)
		return nil, holder, err
	}
	row := results[len(results)-1].Rows[0]
	if string(row[0]) == "t" {
		return lock, "", nil
	}
	lock.release(ctx)
	if len(row[1]) > 0 {
		holder = string(row[1])
	}
	return nil, holder, nil
}

// check fails if the connection is lost, and with it the lock.
func (l *migrationLock) check(ctx context.Context) error {
	if err := l.conn.Ping(ctx); err != nil {
		return fmt.Errorf("keep the migration lock: %w", withCause(ctx, err))
	}
	return nil
}

// release works after ctx has ended, too. If it fails the pool closes the connection, which also frees the lock.
func (l *migrationLock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lockReleaseTimeout, errLockHeld)
	defer cancel()
	if pg := l.conn.Conn().PgConn(); pg.TxStatus() != txIdle {
		_, _ = pg.Exec(ctx, "rollback").ReadAll()
	}
	l.conn.Release()
}

// Transaction states as PostgreSQL reports them.
const (
	txIdle = 'I'
	txOpen = 'T'
)
