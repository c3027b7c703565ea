package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/openlup/outbox-dispatch/outbox"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// What tells a process of this binary that it is a worker, and where it works.
const (
	databaseVariable  = "OUTBOX_CHAOS_DATABASE_URL"
	directoryVariable = "OUTBOX_CHAOS_DIRECTORY"
)

const (
	eventType   = "order.placed"
	maxAttempts = 20
)

// TestMain runs the tests, or is a worker that one of them has started.
func TestMain(m *testing.M) {
	if url := os.Getenv(databaseVariable); url != "" {
		if err := workForEver(context.Background(), url, os.Getenv(directoryVariable)); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// Both files are appended to by every worker, a record in one write, which survives the process. A delivery takes sixteen
// bytes, so that none lies on two pages: a kill between these would leave a half.
const deliveryFormat = "%015d\n"

func deliveriesFile(directory string) string { return filepath.Join(directory, "deliveries") }
func answersFile(directory string) string    { return filepath.Join(directory, "answers") }

func openToAppend(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// workForEver makes pass after pass until it is killed.
func workForEver(ctx context.Context, url, directory string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	deliveries, err := openToAppend(deliveriesFile(directory))
	if err != nil {
		return err
	}
	answers, err := openToAppend(answersFile(directory))
	if err != nil {
		return err
	}
	worker, err := outbox.NewWorker(outbox.Config{
		Store:     &writtenDown{Store: postgres.Store{Pool: pool}, file: answers},
		Registry:  outbox.Registry{eventType: {Handler: &shop{file: deliveries}, Timeout: 5 * time.Second}},
		BatchSize: 50, MaxAttempts: maxAttempts, BackoffBase: 5 * time.Second, BackoffCap: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	for {
		budget := 8*time.Second + rand.N(3*time.Second)
		if _, err := worker.Run(ctx, outbox.Pass{SoftBudget: budget}); err != nil {
			if _, ok := errors.AsType[*outbox.StoreError](err); !ok {
				return err
			}
			fmt.Fprintln(os.Stderr, "pass:", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lost is written down for an outcome whose answer did not come: a worker that stood still for longer than a call may take.
const lost = "lost"

// writtenDown is a store that writes down what became of each outcome.
type writtenDown struct {
	postgres.Store
	file *os.File
}

func (w *writtenDown) Settle(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
	answers, err := w.Store.Settle(ctx, batch, backoff)
	var text strings.Builder
	for i, s := range batch {
		answer := outbox.Answer(lost)
		if err == nil {
			answer = answers[i]
		}
		fmt.Fprintln(&text, s.EventID, s.ClaimToken, answer)
	}
	if _, fault := w.file.WriteString(text.String()); err == nil {
		err = fault
	}
	return answers, err
}

// shop is the destination: it writes down the positions that arrive, in the order in which they do.
type shop struct{ file *os.File }

// discardedPositions are the events that no delivery is possible of: one in so many.
const discardedPositions = 97

func (s *shop) Handle(ctx context.Context, e outbox.Event) (outbox.Receipt, error) {
	switch dice := rand.IntN(2000); {
	case e.Position%discardedPositions == 0:
		return nil, outbox.Discard(errors.New("gone"))
	case dice < 10:
		return nil, errors.New("refused")
	case dice < 16: // long enough for the lease to be gone
		if err := wait(ctx, time.Duration(dice-8)*400*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if _, err := fmt.Fprintf(s.file, deliveryFormat, e.Position); err != nil {
		return nil, err
	}
	switch dice := rand.IntN(2000); {
	case dice < 4:
		return nil, errors.New("delivered, but no answer came")
	case dice < 5:
		return nil, wait(ctx, 700*time.Millisecond)
	}
	return nil, nil //nolint:nilnil // delivered, and nothing to tell
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
