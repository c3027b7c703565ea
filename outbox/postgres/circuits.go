package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/outbox"
)

var _ outbox.Circuits = (*Store)(nil)

const (
	// Mostly there is nothing to tell. Then the function is not called: what it is made of would have to be read and planned by each
	// new connection, just before the first claim.
	loadCircuitsSQL = `
select key, state, wait_seconds, openings, retried from public.outbox_circuits_load($1::text[], $2::int)
where exists (select from public.outbox_circuits c
              where c.key = any ($1::text[]) and (c.mode = 'held' or c.open_until is not null or c.retried <> '{}'))`
	reportCircuitSQL = `
select $1::text, state, wait_seconds, 0, '{}'::text[]
from public.outbox_circuit_report($1::text, $2::text, $3::text[]::uuid[], $4::text, $5::int)`
)

// Load implements [outbox.Circuits].
func (s *Store) Load(ctx context.Context, destinations []string, lease time.Duration) ([]outbox.Circuit, error) {
	var circuits []outbox.Circuit
	err := again(ctx, func() error {
		rows, err := s.Pool.Query(ctx, loadCircuitsSQL, s.unprepared(), orEmpty(destinations), seconds(lease))
		if err != nil {
			return err
		}
		circuits, err = pgx.CollectRows(rows, scanCircuit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load circuits: %w", err)
	}
	return circuits, nil
}

// unprepared is the mode for a statement that a pass sends once: where others are prepared, this one is not, which saves
// the first pass of a connection a round trip before its first claim.
func (s *Store) unprepared() pgx.QueryExecMode {
	mode := s.Pool.Config().ConnConfig.DefaultQueryExecMode
	if mode == pgx.QueryExecModeCacheStatement {
		return pgx.QueryExecModeExec
	}
	return mode
}

// Report implements [outbox.Circuits].
func (s *Store) Report(ctx context.Context, report outbox.CircuitReport) (outbox.Circuit, error) {
	outcome := "retries"
	switch {
	case report.Success:
		outcome = "success"
	case report.Failure:
		outcome = "failure"
	case report.Hold:
		outcome = "hold"
	}
	var circuit outbox.Circuit
	err := again(ctx, func() error {
		rows, err := s.Pool.Query(ctx, reportCircuitSQL, report.Destination, outcome, orEmpty(report.Retried),
			clean(report.Error), seconds(report.Wait))
		if err != nil {
			return err
		}
		circuit, err = pgx.CollectExactlyOneRow(rows, scanCircuit)
		return err
	})
	if err != nil {
		return outbox.Circuit{}, fmt.Errorf("report on circuit %s: %w", report.Destination, err)
	}
	return circuit, nil
}

func scanCircuit(row pgx.CollectableRow) (outbox.Circuit, error) {
	var c outbox.Circuit
	var state string
	var wait *float64
	err := row.Scan(&c.Destination, &state, &wait, &c.Openings, &c.Retried)
	c.Open, c.Probe = state == "open", state == "probe"
	c.Wait = -1
	if wait != nil {
		c.Wait = time.Duration(*wait * float64(time.Second))
	}
	return c, err
}
