package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	server "github.com/openlup/outbox-dispatch/internal/stack/postgres"
	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/sql"
)

// A month of steady load: so many passes a day, and how long finished events are kept. Half a month later as many rows go as
// come.
const (
	passesPerDay  = 4
	keepProcessed = 7 * 24 * time.Hour
	keepDiscarded = 14 * 24 * time.Hour
)

// monthClock makes the database's time what a setting says: the outbox's functions find this now() before the server's, since
// their search path names public first.
const monthClock = `create function public.now() returns timestamptz language sql stable
	as $$ select pg_catalog.now() + current_setting('bench.later')::interval $$`

// day is how the table stands at the end of one.
type day struct {
	footprint
	rows int64
}

// size is in MB.
func (d day) size() float64 { return float64(d.heap+d.indexes) / 1e6 }

// played is a month, and the table after all that was dead or empty was taken out of it.
type played struct {
	days   []day
	packed day
}

func (m played) last() day { return m.days[len(m.days)-1] }

// month measures what a month of steady load leaves of the table's size: beside a copy without any dead row, and beside the
// first day on which retention kept up. The server is one of its own, whose autovacuum is PostgreSQL's but for how often it
// looks: once a second, since the month lasts about a minute.
func (b *bench) month(ctx context.Context) error {
	m, err := b.playMonth(ctx, "select")
	if err != nil {
		return err
	}
	t := table{columns: []string{"day", "rows", "dead rows", "table MB", "indexes MB"}}
	for i := 0; i < b.days-1; i += 5 {
		t.rows = append(t.rows, m.days[i].line(strconv.Itoa(i+1)))
	}
	t.rows = append(t.rows, m.last().line(strconv.Itoa(b.days)), m.packed.line("packed"))
	b.tables = append(b.tables, t)
	b.add(figure{Name: "month_packed", Value: m.packed.size(), Unit: "MB"})
	b.add(figure{Name: "month_half", Value: m.days[(b.days-1)/2].size(), Unit: "MB"})
	b.compare(figure{Name: "month_bloat", Value: m.last().size(), Unit: "MB"}, "month_packed", atMost(2))
	b.compare(figure{Name: "month_growth", Value: m.last().size(), Unit: "MB"}, "month_half", atMost(1.2))
	return nil
}

func (d day) line(name string) []string {
	return []string{name, strconv.FormatInt(d.rows, 10), strconv.FormatInt(d.deadRows, 10), megabytes(d.heap), megabytes(d.indexes)}
}

// playMonth runs a month. change is a statement that may change the fresh table.
func (b *bench) playMonth(ctx context.Context, change string) (m played, err error) {
	private, err := server.Start(ctx, server.Config{Durable: true})
	if err != nil {
		return played{}, err
	}
	defer func() { err = errors.Join(err, private.Stop()) }()
	pool, err := pgxpool.New(ctx, private.URL)
	if err != nil {
		return played{}, fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	if _, err := (&postgres.Migrator{Pool: pool, Files: sql.Files}).Up(ctx); err != nil {
		return played{}, err
	}
	db := &database{Pool: pool, name: "postgres"}
	if err := db.exec(ctx, "alter system set autovacuum_naptime = '1s'", "select pg_reload_conf()", monthClock, change); err != nil {
		return played{}, err
	}
	for n := range b.days {
		d, err := b.playDay(ctx, db, n)
		if err != nil {
			return played{}, fmt.Errorf("day %d: %w", n+1, err)
		}
		m.days = append(m.days, d)
	}
	if err := db.exec(ctx, "vacuum full outbox_events"); err != nil {
		return played{}, err
	}
	m.packed, err = db.day(ctx)
	return m, err
}

// playDay inserts a day's events and delivers them, in a few passes that also prune.
func (b *bench) playDay(ctx context.Context, db *database, n int) (day, error) {
	handler := outbox.HandlerFunc(func(_ context.Context, event outbox.Event) (outbox.Receipt, error) {
		switch {
		case event.ID >= "ffc": // one of a thousand
			return nil, outbox.Discard(errors.New("410"))
		case event.ID < "05" && event.Attempts == 1: // one of fifty
			return nil, errors.New("500")
		}
		return nil, nil //nolint:nilnil // no receipt, no error: delivered
	})
	store := &postgres.Store{Pool: db.Pool}
	config := b.config(store, handler)
	config.Pruner, config.Retention = store, outbox.Retention{Processed: keepProcessed, Discarded: keepDiscarded}
	worker, err := outbox.NewWorker(config)
	if err != nil {
		return day{}, err
	}
	for i := range passesPerDay {
		later := fmt.Sprintf("alter database postgres set bench.later = '%d hours'", (n*passesPerDay+i)*24/passesPerDay)
		if err := db.exec(ctx, later); err != nil {
			return day{}, err
		}
		db.Reset() // sessions have the setting from their start
		if err := db.exec(ctx, fill(max(b.events/20/passesPerDay, 1), spread)); err != nil {
			return day{}, err
		}
		if _, err := worker.Run(ctx, outbox.Pass{}); err != nil {
			return day{}, err
		}
	}
	return db.day(ctx)
}

func (db *database) day(ctx context.Context) (day, error) {
	var d day
	var err error
	if d.footprint, err = db.footprint(ctx); err != nil {
		return day{}, err
	}
	if err := db.QueryRow(ctx, "select count(*) from outbox_events").Scan(&d.rows); err != nil {
		return day{}, fmt.Errorf("count rows: %w", err)
	}
	return d, nil
}
