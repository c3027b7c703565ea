package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const uniqueOrders = "-- outbox: no transaction\ncreate unique index concurrently orders_note\n    on public.orders (note);\n"

func TestAnInvalidIndexIsRebuiltOnRerun(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	m := &postgres.Migrator{Pool: pool, Files: files(
		"0001_orders.sql", createOrders+"insert into orders values (1, 'twin'), (2, 'twin');",
		"0002_index.sql", uniqueOrders,
	)}
	report, err := m.Up(t.Context())
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "23505" {
		t.Fatalf("build over duplicates: error %v, want 23505", err)
	}
	if strings.Contains(err.Error(), "twin") {
		t.Errorf("error %q quotes a row", err)
	}
	if report.VersionAfter != 1 {
		t.Errorf("version after the failed build: %d, want 1", report.VersionAfter)
	}
	const invalid = "select exists (select from pg_index where indexrelid = to_regclass('orders_note') and not indisvalid)"
	if !query[bool](t, pool, invalid) {
		t.Fatal("the failed build left no invalid index: this test tests nothing")
	}
	execSQL(t, pool, "delete from orders where id = 2")
	if got := names(up(t, m)); got != "0002_index.sql" {
		t.Errorf("rerun applied %q, want 0002_index.sql", got)
	}
	if query[bool](t, pool, invalid) {
		t.Error("the index is still invalid after the rerun")
	}
}

func TestAValidIndexBuiltBeforeIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	up(t, &postgres.Migrator{Pool: pool, Files: files("0001_orders.sql", createOrders)})
	execSQL(t, pool, "create index orders_note on orders (note)")
	before := query[uint32](t, pool, "select 'orders_note'::regclass::oid")
	both := files("0001_orders.sql", createOrders, "0002_index.sql", indexOrders)
	up(t, &postgres.Migrator{Pool: pool, Files: both})
	if after := query[uint32](t, pool, "select 'orders_note'::regclass::oid"); after != before {
		t.Errorf("index has oid %d, want the old one, %d", after, before)
	}
}

func TestAnotherIndexOfTheSameNameIsRefused(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	execSQL(t, pool, "create table other (note text); create index orders_note on other (note)")
	m := &postgres.Migrator{Pool: pool, Files: files("0001_orders.sql", createOrders, "0002_index.sql", indexOrders)}
	if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "same name, other table") {
		t.Errorf("error %v, want one about the other index", err)
	}
}

func TestAFileWithoutATransactionTakesOneStatement(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	m := &postgres.Migrator{Pool: pool, Files: files("0001_orders.sql", createOrders, "0002_index.sql", indexOrders+"drop table orders;")}
	if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot insert multiple commands") {
		t.Errorf("error %v, want PostgreSQL's refusal of a second statement", err)
	}
	if query[bool](t, pool, "select to_regclass('orders_note') is not null") {
		t.Error("the first statement ran although the file was refused")
	}
}

func TestVerifyFindsAnIndexGoneMissing(t *testing.T) {
	t.Parallel()
	pool := openPool(t, postgrestest.Empty(t), nil)
	m := &postgres.Migrator{Pool: pool, Files: files("0001_orders.sql", createOrders, "0002_index.sql", indexOrders)}
	up(t, m)
	execSQL(t, pool, "drop index orders_note")
	report, err := m.Verify(t.Context())
	var drift *postgres.DriftError
	if !errors.As(err, &drift) || !strings.Contains(err.Error(), "index orders_note is missing") {
		t.Errorf("error %v, want a DriftError about the missing index", err)
	}
	if report.State != postgres.StateDrift {
		t.Errorf("state %s, want drift", report.State)
	}
}
