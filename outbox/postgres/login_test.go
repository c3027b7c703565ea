package postgres_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

// refusing opens a pool whose first so many logins the server refuses, as after a password was rotated; where every server
// refuses one is a role that it doesn't have.
func refusing(t *testing.T, refusals int64) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(postgrestest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	var logins atomic.Int64
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if logins.Add(1) <= refusals {
			c.User = "outbox_no_such_role"
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestARefusedLoginIsTriedOnceMore(t *testing.T) {
	t.Parallel()
	request := outbox.ClaimRequest{EventTypes: []string{"order.placed"}}
	if _, err := (&postgres.Store{Pool: refusing(t, 1)}).Claim(t.Context(), request); err != nil {
		t.Errorf("after one refusal: %v, want none", err)
	}
	_, err := (&postgres.Store{Pool: refusing(t, 2)}).Claim(t.Context(), request)
	if err == nil || !strings.Contains(err.Error(), "28000") {
		t.Errorf("after two refusals: %v, want the second one", err)
	}
}
