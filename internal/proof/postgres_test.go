package proof_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

const (
	operations    = 100_000 // on PostgreSQL, its functions as they are: claims, outcomes, rows inserted, what operators and time do
	narrowed      = 20_000  // on top of these, with an edited claim
	databases     = 2       // side by side
	episodeLength = 100
)

// The functions look for names in public first, so this is the time by which they judge. A history thus plays through the
// real store, in transactions of its own each, and yet knows the time of everything to the microsecond.
const clockSQL = `
create function public.now() returns timestamptz language sql stable parallel safe
as $$ select current_setting('proof.now')::timestamptz $$`

// database is a scratch database with a clock of its own, on one connection; producers have others.
type database struct {
	pool      *pgxpool.Pool // one connection
	producers *pgxpool.Pool
	narrow    bool // its claim was edited
	shapes    []shape
	newest    int64 // the transaction that wrote last, of those whose rows were read
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	url := postgrestest.URL(t)
	connect := func(size int32) *pgxpool.Pool {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		config.MaxConns = size
		config.ConnConfig.RuntimeParams["timezone"] = "UTC"
		config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	d := &database{pool: connect(1), producers: connect(4), shapes: shapes()}
	if _, err := d.pool.Exec(t.Context(), clockSQL); err != nil {
		t.Fatal(err)
	}
	return d
}

func (b *database) exec(ctx context.Context, sql string, args ...any) error {
	_, err := b.pool.Exec(ctx, sql, args...)
	return err
}

// target empties the tables.
func (b *database) target(ctx context.Context, now micros) (target, error) {
	if err := b.exec(ctx, "truncate outbox_events, outbox_dormant_event_types"); err != nil {
		return target{}, err
	}
	store := &postgres.Store{Pool: b.pool}
	t := target{
		claim: func(req outbox.ClaimRequest) (outbox.Claim, error) { return store.Claim(ctx, req) },
		settle: func(batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
			return store.Settle(ctx, batch, backoff)
		},
		rows: func(all bool) ([]row, error) { return b.rows(ctx, all) },
		setNow: func(at micros) error {
			return b.exec(ctx, "select set_config('proof.now', $1, false)", timeOf(at).UTC().Format(time.RFC3339Nano))
		},
		insert: func(rows []row) ([]row, error) { return insertRows(ctx, b.pool, rows) },
		begin:  func() (transaction, error) { return b.begin(ctx) },
		change: func(to row) error {
			return b.exec(ctx, "update outbox_events set status = $2, attempts = $3, available_at = $4 where id = $1",
				to.id, to.status, to.attempts, stampOf(to.available))
		},
		remove: func(id string) error { return b.exec(ctx, "delete from outbox_events where id = $1", id) },
		declare: func(eventType string) error {
			return b.exec(ctx, `insert into outbox_dormant_event_types (event_type, owner, reason) values ($1, 'team', 'nobody listens')
				on conflict do nothing`, eventType)
		},
		mark:   func(m mark) (string, error) { return b.mark(ctx, m) },
		claim1: func(c claim1) (map[string]string, error) { return b.claim1(ctx, c) },
	}
	if b.narrow {
		t.claim1 = nil
	}
	return t, t.setNow(now)
}

func (b *database) begin(ctx context.Context) (transaction, error) {
	tx, err := b.producers.Begin(ctx)
	if err != nil {
		return transaction{}, err
	}
	return transaction{
		insert: func(rows []row) ([]row, error) { return insertRows(ctx, tx, rows) },
		end: func(commit bool) error {
			if commit {
				return tx.Commit(ctx)
			}
			return tx.Rollback(ctx)
		},
	}, nil
}

const insertSQL = `
insert into outbox_events (id, aggregate_type, aggregate_id, event_type, idempotency_key, payload,
  status, attempts, created_at, available_at, metadata)
select i.id, i.kind, i.aggregate, i.type, i.id, '{}', i.status, i.attempts, i.created, i.available, i.metadata::jsonb
from unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::int[], $7::timestamptz[], $8::timestamptz[], $9::text[])
  as i (id, kind, aggregate, type, status, attempts, created, available, metadata)
returning position`

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func insertRows(ctx context.Context, db querier, rows []row) ([]row, error) {
	n := len(rows)
	ids, kinds, aggregates := make([]string, n), make([]string, n), make([]string, n)
	types, statuses, attempts := make([]string, n), make([]string, n), make([]int, n)
	created, available, metadata := make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n), make([]string, n)
	for i, r := range rows {
		ids[i], kinds[i], aggregates[i] = r.id, r.aggregate.Type, r.aggregate.ID
		types[i], statuses[i], attempts[i] = r.eventType, r.status, r.attempts
		created[i], available[i], metadata[i] = stampOf(r.created), stampOf(r.available), "{}"
		if r.meta.Kept > 0 {
			metadata[i] = fmt.Sprintf(`{"kept": %d}`, r.meta.Kept)
		}
	}
	answer, err := db.Query(ctx, insertSQL, ids, kinds, aggregates, types, statuses, attempts, created, available, metadata)
	if err != nil {
		return nil, err
	}
	positions, err := pgx.CollectRows(answer, pgx.RowTo[int64])
	for i := range positions {
		rows[i].position = positions[i]
	}
	return rows, err
}

// Whatever changes a row leaves its transaction's number there.
const rowsSQL = `
select xmin::text::bigint, id::text, position, aggregate_type, aggregate_id::text, event_type, status, attempts,
  created_at, available_at, processed_at, coalesce(error, ''), metadata
from outbox_events where xmin::text::bigint > $1 order by position`

// rows reads the rows that were written since it was last called, or all.
func (b *database) rows(ctx context.Context, all bool) ([]row, error) {
	if all {
		b.newest = 0
	}
	answer, err := b.pool.Query(ctx, rowsSQL, b.newest)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(answer, func(from pgx.CollectableRow) (row, error) {
		var r row
		var writer int64
		var created, available, processed pgtype.Timestamptz
		var metadata []byte
		err := from.Scan(&writer, &r.id, &r.position, &r.aggregate.Type, &r.aggregate.ID, &r.eventType, &r.status, &r.attempts,
			&created, &available, &processed, &r.reason, &metadata)
		if err != nil {
			return r, err
		}
		b.newest = max(b.newest, writer)
		r.created, r.available = created.Time.UnixMicro(), microsOfStamp(available)
		if processed.Valid {
			r.processed = processed.Time.UnixMicro()
		}
		return r, json.Unmarshal(metadata, &r.meta)
	})
}

func stampOf(at micros) pgtype.Timestamptz {
	if at == math.MinInt64 {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: time.UnixMicro(at), Valid: true}
}

func microsOfStamp(at pgtype.Timestamptz) micros {
	if at.InfinityModifier == pgtype.NegativeInfinity {
		return math.MinInt64
	}
	return at.Time.UnixMicro()
}

// mark calls the contract's function for one outcome.
func (b *database) mark(ctx context.Context, m mark) (answer string, err error) {
	s := m.settlement
	delay, base, limit := int(s.Delay.Seconds()), int(m.backoff.Base.Seconds()), int(m.backoff.Cap.Seconds())
	one := b.pool.QueryRow
	switch s.Outcome {
	case outbox.Processed:
		err = one(ctx, "select case when outbox_mark_processed($1, $2, coalesce($3::text::jsonb, '{}')) then 'processed' else 'missed' end",
			s.EventID, s.ClaimToken, orNull(string(s.Detail))).Scan(&answer)
	case outbox.Released:
		err = one(ctx, "select case outbox_release_unprocessed(array[$1::uuid], array[$2::text], $3) when 1 then 'released' else 'missed' end",
			s.EventID, s.ClaimToken, delay).Scan(&answer)
	case outbox.Retry, outbox.Discarded, outbox.Snoozed:
		err = one(ctx, "select outbox_mark_failed($1, $2, $3, $4, $5, $6, $7, $8)", s.EventID, s.ClaimToken, s.Reason,
			string(s.Outcome), orNull(base), orNull(limit), orNull(m.backoff.MaxAttempts), orNull(delay)).Scan(&answer)
	default:
		return string(outbox.Missed), nil
	}
	return answer, err
}

func orNull[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

func (b *database) claim1(ctx context.Context, c claim1) (map[string]string, error) {
	answer, err := b.pool.Query(ctx, "select id::text, metadata->>'claimToken' from outbox_claim_batch($1, $2, $3, $4, $5)",
		c.types, c.known, c.batch, c.visibility, c.ceiling)
	if err != nil {
		return nil, err
	}
	tokens := map[string]string{}
	var id, token string
	_, err = pgx.ForEachRow(answer, []any{&id, &token}, func() error {
		if tokens[id] != "" {
			return fmt.Errorf("row %s was claimed twice", id)
		}
		tokens[id] = token
		return nil
	})
	return tokens, err
}

// play plays one history on PostgreSQL; at a fault it answers the step.
func (b *database) play(ctx context.Context, steps []uint64, script *[]string) (failed, done int, err error) {
	tables, err := b.target(ctx, start)
	if err != nil {
		return 0, 0, err
	}
	d := newDice(steps[0])
	h := &history{
		target: tables, model: newModel(start), script: script,
		shape: pick(d, b.shapes...),
	}
	defer func() {
		if closeErr := h.close(); err == nil {
			err = closeErr
		}
	}()
	if h.shape.late > 0 { // a shorter history: what waits is gone before long
		steps = steps[:min(len(steps), 16)]
		for range 6 {
			if err := h.insert(d); err != nil {
				return 0, h.operations, err
			}
		}
	}
	for i, seed := range steps {
		if err := h.step(seed); err != nil {
			return i, h.operations, err
		}
	}
	if err := h.drain(d); err != nil {
		return len(steps) - 1, h.operations, err
	}
	return 0, h.operations, nil
}

// shapes differ in how rows share lanes, and in how many windows of a claim they fill.
func shapes() []shape {
	return []shape{
		{lanes: 3, types: 3, rows: 25},
		{lanes: 3, types: 1, rows: 25},
		{lanes: 12, types: 4, rows: 40},
		{lanes: 60, types: 3, rows: 160},
		{lanes: 8, types: 1, rows: 40, late: 90},
		{lanes: 8, types: 2, rows: 40, late: 90},
	}
}

// player lets what fails be played again.
func (b *database) player(ctx context.Context) player {
	return func(steps []uint64, script *[]string) (int, error) {
		failed, _, err := b.play(ctx, steps, script)
		return failed, err
	}
}

func TestPostgreSQLAgreesWithThePlainModel(t *testing.T) {
	t.Parallel()
	first := firstSeed(t)
	var group sync.WaitGroup
	for n := range databases {
		b := newDatabase(t)
		group.Go(func() {
			source := rand.New(rand.NewPCG(first, uint64(n)))
			for done := 0; done < operations**timesFlag/databases && !t.Failed(); {
				steps := stepsOf(source.Uint64(), episodeLength)
				failed, more, err := b.play(t.Context(), steps, nil)
				if done += more; err != nil {
					t.Errorf("database %d, after %d operations:\n%s", n, done, report(b.player(t.Context()), steps[:failed+1], err))
				}
			}
		})
	}
	group.Wait()
}
