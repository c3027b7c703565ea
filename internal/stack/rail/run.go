package rail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
)

const maxPasses = 40

// Config of a run.
type Config struct {
	Root   string    // of the repository
	Out    io.Writer // the story, for a person
	Colour bool
}

// run is one run's parts.
type run struct {
	Config
	conn     *pgx.Conn
	receiver *receiver
	amazon   *amazon
	journal  *journal
	log      *os.File
	passes   []pass
	reply    []byte // of the last pass
	left     int64  // events that were not finished after it
}

// pass is one invocation's counters.
type pass struct {
	Claimed, Processed, Retried, Snoozed, Discarded, Released int
	Reason                                                    string
	RunMs                                                     int64
}

// Run plays the scenario and reports it. The error says that something could not be run, or that what arrived differs
// from what should have; the end of the functions' log is then printed. When ctx ends everything started is stopped.
func Run(ctx context.Context, config Config) (err error) {
	started := time.Now()
	journal := &journal{}
	r := &run{Config: config, journal: journal, receiver: newReceiver(journal)}
	defer func() {
		r.receiver.CloseClientConnections()
		r.receiver.Close()
	}()
	emulator := cloud.Boot()
	defer emulator.Close()
	if r.amazon, err = newAmazon(ctx, emulator, journal); err != nil {
		return err
	}
	defer r.amazon.Close()
	logPath := filepath.Join(config.Root, ".local", "run.log")
	if err := os.MkdirAll(filepath.Dir(logPath), 0o750); err != nil {
		return err
	}
	if r.log, err = os.Create(logPath); err != nil { //nolint:gosec // in the repository's own folder
		return err
	}
	defer func() { err = errors.Join(err, r.log.Close()) }()

	err = r.whole(ctx, started)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted, and everything stopped: %w", err)
	case err != nil:
		r.reportLog(logPath)
	}
	return err
}

// whole is the run around which the log is open.
func (r *run) whole(ctx context.Context, started time.Time) (err error) {
	server, err := postgres.Start(ctx, postgres.Config{Log: r.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	r.say("%s private, from %s\n", r.bold("PostgreSQL"), server.From)
	r.say("%s in this process: webhooks; SNS, SQS and SES by kumo\n", r.bold("receivers "))
	r.say("%s the functions and the runtime emulator (the first time this takes a minute)\n", r.bold("building  "))
	if r.conn, err = pgx.Connect(ctx, server.URL); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.conn.Close(context.WithoutCancel(ctx))) }()
	if err := r.play(ctx, server.URL); err != nil {
		return err
	}
	rows, err := r.rows(ctx)
	if err != nil {
		return err
	}
	got := arrivals{requests: r.receiver.received(), journal: r.journal.all()}
	if err := r.amazon.received(ctx, &got); err != nil {
		return err
	}
	faults := append(differences(scenario(), rows, got), r.unplayed(rows, got)...)
	r.report(rows, got, faults, time.Since(started))
	if len(faults) > 0 {
		return fmt.Errorf("%d differences", len(faults))
	}
	return nil
}

// unplayed tells whether the queue was not drained, and which of the troubles never happened: a run without them shows
// nothing about them.
func (r *run) unplayed(rows []row, got arrivals) []string {
	snoozed, retried, lost := map[string]int{}, 0, map[string]int{}
	for _, end := range rows {
		where := place(end.eventType)
		snoozed[where] += end.snoozes
		lost[where] += got.lost[end.id]
		if end.status == "processed" && end.attempts > 1 {
			retried++
		}
	}
	var found []string
	if r.left > 0 {
		found = append(found, fmt.Sprintf("not drained: %d events left after %d passes", r.left, len(r.passes)))
	}
	for _, c := range []struct {
		times int
		what  string
	}{
		{retried, "no event was retried"},
		{snoozed[billing], "no event waited for the webhook that was out"},
		{snoozed[shipments], "no event waited for the missing topic"},
		{snoozed[ses], "no event waited for the paused mail"},
		{lost[shipments], "no answer of the standard topic was lost"},
		{lost[stock], "no answer of the FIFO topic was lost"},
	} {
		if c.times == 0 {
			found = append(found, c.what+", so the run shows nothing about it")
		}
	}
	return found
}

// play migrates, inserts and dispatches until nothing is left to do, or maxPasses are over.
func (r *run) play(ctx context.Context, url string) error {
	migrate, err := r.function(ctx, "migrate", url)
	if err != nil {
		return err
	}
	defer migrate.Stop()
	reply, err := migrate.Invoke(ctx, []byte("{}"))
	if err != nil {
		return err
	}
	var schema struct{ VersionBefore, VersionAfter int }
	if err := json.Unmarshal(reply, &schema); err != nil || !lambda.Succeeded(reply) {
		return fmt.Errorf("the migrate function failed: %s", reply)
	}
	r.say("%s schema version %d to %d\n", r.bold("migrated  "), schema.VersionBefore, schema.VersionAfter)
	if err := r.insert(ctx, scenario()); err != nil {
		return err
	}
	dispatch, err := r.function(ctx, "dispatch", url)
	if err != nil {
		return err
	}
	defer dispatch.Stop()
	for len(r.passes) < maxPasses {
		if err := r.dispatch(ctx, dispatch); err != nil {
			return err
		}
		if len(r.passes) == 1 {
			if err := r.amazon.mend(ctx); err != nil {
				return err
			}
		}
		if r.left, err = r.age(ctx); err != nil {
			return err
		}
		if r.left == 0 {
			return nil
		}
	}
	return nil // what is left is a difference, to be reported among the others
}

func (r *run) function(ctx context.Context, name, url string) (*lambda.Function, error) {
	builder := lambda.Builder{Root: r.Root, Log: r.log}
	config := lambda.Config{Log: r.log, Timeout: 30 * time.Second, Env: []string{
		"DATABASE_URL=" + url, "OUTBOX_ROUTES=" + routesFile, "OUTBOX_ROUTES_FILE=",
		"DATABASE_SECRET_ARN=", "OUTBOX_DB_IAM_AUTH=", "OUTBOX_ROUTES_SECRET_ARN=", // whatever the shell has
		"OUTBOX_MAX_ATTEMPTS=" + strconv.Itoa(maxAttempts), "OUTBOX_BATCH_SIZE=50",
	}}
	config.Env = append(config.Env, r.receiver.env()...)
	config.Env = append(config.Env, r.amazon.env()...)
	var err error
	if config.Emulator, err = builder.Emulator(ctx); err != nil {
		return nil, err
	}
	if config.Binary, err = builder.Function(ctx, name); err != nil {
		return nil, err
	}
	return lambda.Start(ctx, config)
}

func (r *run) dispatch(ctx context.Context, f *lambda.Function) error {
	var err error
	if r.reply, err = f.Invoke(ctx, []byte("{}")); err != nil {
		return err
	}
	var p pass
	if err := json.Unmarshal(r.reply, &p); err != nil || !lambda.Succeeded(r.reply) {
		return fmt.Errorf("the dispatch function failed: %s", r.reply)
	}
	r.passes = append(r.passes, p)
	return nil
}
