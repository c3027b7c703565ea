// Package chaos_test kills workers in the middle of their work and looks whether the rail keeps its word: no event is lost, no
// row has two holders, first deliveries keep their order, and late acknowledgements change nothing.
//
// Workers are processes of the test's own binary, killed by SIGKILL or stopped for a while. The seed, which is printed, decides
// who and when, not what the machine makes of it. -events and -aggregates change the size, -seed the seed.
package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

var (
	seedFlag       = flag.Uint64("seed", 0, "seed of the chaos; 0 draws one")
	eventsFlag     = flag.Int("events", 100_000, "events of the chaos")
	aggregatesFlag = flag.Int("aggregates", 5_000, "aggregates of the chaos")
)

const workers = 8

// chaos is one run.
type chaos struct {
	*testing.T
	pool      *pgxpool.Pool
	url       string
	directory string
	dice      *rand.Rand
	events    int
	ledger    *ledger
	workers   []*exec.Cmd
	asleep    map[*exec.Cmd]time.Time // since when a worker is stopped
	output    lockedBuffer
	enqueued  struct {
		sync.Mutex
		begun, committed int
	}
	kills, looks, finished int
	faults                 []string
}

// lockedBuffer keeps what all workers print.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newChaos(t *testing.T, events, aggregates int) *chaos {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("the seed is %d: %d events of %d aggregates", seed, events, aggregates)
	c := &chaos{T: t, url: postgrestest.URL(t), directory: t.TempDir(), dice: rand.New(rand.NewPCG(seed, 8)), events: events, asleep: map[*exec.Cmd]time.Time{}}
	var err error
	if c.pool, err = pgxpool.New(t.Context(), c.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.pool.Close)
	c.exec(auditSQL)
	if c.ledger, err = newLedger(c.directory); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.ledger.file.Close() })
	// Four fifths are there when the workers start; the rest is produced while they work.
	c.insert(t.Context(), events*4/5, aggregates)
	return c
}

func (c *chaos) exec(sql string, args ...any) {
	c.Helper()
	if _, err := c.pool.Exec(c.Context(), sql, args...); err != nil {
		c.Fatalf("%.80s: %v", sql, err)
	}
}

func (c *chaos) insert(ctx context.Context, n, aggregates int) {
	c.enqueued.Lock()
	c.enqueued.begun += n
	first := c.enqueued.begun
	c.enqueued.Unlock()
	if _, err := c.pool.Exec(ctx, `
insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
select 'order', md5((hashint4(n) % $3::int)::text)::uuid, $4, n::text, '{"total": 12}'
from generate_series($1::int - $2::int + 1, $1::int) n order by n`, first, n, aggregates, eventType); err != nil {
		c.Errorf("insert: %v", err)
		return
	}
	c.enqueued.Lock()
	c.enqueued.committed += n
	c.enqueued.Unlock()
}

// produce inserts the rest, a few events at a time.
func (c *chaos) produce(ctx context.Context, aggregates int) {
	for left := c.events - c.events*4/5; left > 0 && ctx.Err() == nil; left -= min(left, 100) {
		c.insert(context.WithoutCancel(ctx), min(left, 100), aggregates)
		time.Sleep(5 * time.Millisecond)
	}
}

// start starts a worker in a process of its own.
func (c *chaos) start() *exec.Cmd {
	c.Helper()
	worker := exec.CommandContext(context.WithoutCancel(c.Context()), os.Args[0], "-test.run=^$")
	worker.Env = append(os.Environ(), databaseVariable+"="+c.url, directoryVariable+"="+c.directory)
	worker.Stdout, worker.Stderr = &c.output, &c.output
	if err := worker.Start(); err != nil {
		c.Fatalf("start a worker: %v", err)
	}
	return worker
}

// kill ends a worker as a crash does, and tells whether it lived until then.
func (c *chaos) kill(worker *exec.Cmd) {
	c.Helper()
	if err := worker.Process.Kill(); err != nil {
		c.Errorf("kill: %v", err)
	}
	var exit *exec.ExitError
	if err := worker.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		c.Errorf("a worker ended by itself: %v\n%s", err, c.output.String())
	}
}

// run lets workers work, be killed and restarted, until every event is finished, or until stop says so.
func (c *chaos) run(aggregates int, stop func() bool) {
	ctx, cancel := context.WithCancel(c.Context())
	var group sync.WaitGroup
	group.Go(func() { c.produce(ctx, aggregates) })
	for range workers {
		c.workers = append(c.workers, c.start())
	}
	defer func() {
		cancel()
		for _, worker := range c.workers {
			c.kill(worker)
		}
		group.Wait()
		c.look()
	}()
	at, moved := time.Now(), time.Now()
	for struck := 0; ; {
		before, finished := c.finished, c.look()
		if finished > before {
			moved = time.Now()
		}
		switch {
		case c.Failed() || stop() || finished == c.events:
			return
		case time.Since(moved) > 3*time.Minute: // to end at all, not to judge speed
			c.Errorf("%d of %d events are finished, and none was for three minutes\n%s", finished, c.events, c.output.String())
		case finished > struck+c.events/30 || time.Since(at) > 3*time.Second:
			c.strike(c.dice.IntN(workers))
			struck, at = finished, time.Now()
		}
		c.wake()
		c.age()
		c.haunt()
		time.Sleep(time.Duration(c.dice.IntN(200)) * time.Millisecond)
	}
}

// strike kills a worker and starts another in its place, or stops one for as long as it takes to lose its leases.
func (c *chaos) strike(at int) {
	c.Helper()
	worker := c.workers[at]
	if c.dice.IntN(4) == 0 {
		if err := worker.Process.Signal(syscall.SIGSTOP); err != nil {
			c.Errorf("stop: %v", err)
		}
		c.asleep[worker] = time.Now()
		return
	}
	c.kill(worker)
	delete(c.asleep, worker)
	c.workers[at] = c.start()
	c.kills++
}

// wake lets stopped workers go on, who know nothing of what happened meanwhile.
func (c *chaos) wake() {
	c.Helper()
	for worker, since := range c.asleep {
		if time.Since(since) > 2500*time.Millisecond {
			if err := worker.Process.Signal(syscall.SIGCONT); err != nil {
				c.Errorf("wake: %v", err)
			}
			delete(c.asleep, worker)
		}
	}
}

// age makes leases shorter than the five minutes that they last at least: those a second old, and now and then some of any
// age, whose holders are alive and will answer late.
func (c *chaos) age() {
	share := 0.0
	if c.dice.IntN(4) == 0 {
		share = 0.05
	}
	c.exec(`
update outbox_events set available_at = now()
where unfinished and available_at > now() and status in ('processing', 'failed')
  and (status = 'failed' or (metadata ->> 'lastClaimedAt')::timestamptz < now() - interval '1 second' or random() < $1)`, share)
}

// haunt claims some rows whose leases have just ended, as a worker that dies then: who had them before answers late, while
// somebody else holds them.
func (c *chaos) haunt() {
	c.Helper()
	rows, err := c.pool.Query(c.Context(), `select aggregate_type, aggregate_id::text from outbox_events
where unfinished and status = 'processing' and available_at <= now() limit 10`)
	if err != nil {
		c.Fatalf("haunt: %v", err)
	}
	lanes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[outbox.Aggregate])
	store := &postgres.Store{Pool: c.pool}
	for _, lane := range lanes {
		if err == nil {
			_, err = store.Claim(c.Context(), outbox.ClaimRequest{
				EventTypes: []string{eventType}, MaxAttempts: maxAttempts, Lanes: []outbox.Aggregate{lane}, Recover: true,
			})
		}
	}
	if err != nil {
		c.Fatalf("haunt: %v", err)
	}
}

// look checks what must hold at every moment, and returns how many events are finished.
func (c *chaos) look() (finished int) {
	c.Helper()
	c.looks++
	c.enqueued.Lock()
	atLeast := c.enqueued.committed
	c.enqueued.Unlock()
	var all, processed, discarded, live, held, wrong int
	var done []int64
	err := c.pool.QueryRow(context.WithoutCancel(c.Context()), `
select count(*), count(*) filter (where status = 'processed'), count(*) filter (where status = 'discarded'),
  count(*) filter (where status in ('pending', 'processing', 'failed')),
  count(distinct metadata ->> 'claimToken') filter (where status = 'processing') - count(*) filter (where status = 'processing'),
  coalesce(array_agg(position) filter (where status = 'processed'), '{}'),
  (select count(*) from audit where what <> 'settled')
from outbox_events`).Scan(&all, &processed, &discarded, &live, &held, &done, &wrong)
	if err != nil {
		c.Fatalf("look: %v", err)
	}
	c.enqueued.Lock()
	atMost := c.enqueued.begun
	c.enqueued.Unlock()
	c.faultIf(all != processed+discarded+live || all < atLeast || all > atMost,
		"%d rows: %d processed, %d discarded, %d live; %d to %d were enqueued", all, processed, discarded, live, atLeast, atMost)
	c.faultIf(held != 0, "%d rows are held under a token that holds another one", -held)
	c.faultIf(wrong > 0, "%d rows were claimed from a live lease, or changed when they were finished", wrong)
	if err := c.ledger.read(c.Context(), c.pool); err != nil {
		c.Fatalf("read the deliveries: %v", err)
	}
	for _, position := range done {
		c.faultIf(!c.ledger.delivered[position], "position %d is processed and was not delivered", position)
	}
	c.finished = processed + discarded
	return c.finished
}

func (c *chaos) faultIf(wrong bool, format string, args ...any) {
	if wrong && len(c.faults) < 20 {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
}

// inversions are first deliveries behind a younger one of their aggregate. An event that was discarded owes no order: its
// delivery under a lost lease may come at any time.
func (c *chaos) inversions() []string {
	var texts []string
	for position, before := range c.ledger.inverted {
		var discarded bool
		err := c.pool.QueryRow(context.WithoutCancel(c.Context()), "select status = 'discarded' from outbox_events where position = $1", position).Scan(&discarded)
		if err != nil {
			c.Fatalf("look for an inversion: %v", err)
		}
		if !discarded {
			texts = append(texts, fmt.Sprintf("aggregate %s: position %d first arrived behind %d", c.ledger.aggregates[position], position, before))
		}
	}
	return texts
}

// judge tells every fault so far, and what the workers heard.
func (c *chaos) judge() (faults []string, heard answers) {
	c.Helper()
	more, err := heard.check(context.WithoutCancel(c.Context()), c.pool, c.directory)
	if err != nil {
		c.Fatalf("check the answers: %v", err)
	}
	return slices.Concat(c.faults, c.inversions(), more), heard
}
