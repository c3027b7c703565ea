package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/openlup/outbox-dispatch/outbox"
)

// Times are read as microseconds: their text follows the session's DateStyle, and infinity is no time in Go.
const claimColumns = `
select id::text, position, case when isfinite(created_at) then (extract(epoch from created_at) * 1000000)::bigint end,
       aggregate_type, aggregate_id::text, event_type, idempotency_key, attempts, state::text,
       case when isfinite(created_at) then (extract(epoch from now() - created_at) * 1000000)::bigint end, `

const claimFrom = `
from public.outbox_claim_lanes($1::text[], $2::text[], $3::text[], $4::int, $5::int, $6::int, $7::int, $8::text::jsonb,
                               $9::text[], $10::text[]::uuid[], $11::text, $12::boolean)`

const (
	claimSQL = claimColumns + `payload::text, metadata::text` + claimFrom
	// claimBareSQL reads of the metadata only what a pass needs, and no payload.
	claimBareSQL = claimColumns + `null::text,
       jsonb_build_object('claimToken', metadata->'claimToken', 'snoozeCount', left(metadata->>'snoozeCount', 20))::text` + claimFrom
	payloadSQL = `select payload::text from public.outbox_events where id = $1::text::uuid`
)

// stateColumn is the place of the state, a text, among the columns.
const stateColumn = 8

// maxBatch is the largest number of events of a claim.
const maxBatch = 1000

// maxAge is the longest age in microseconds that a time.Duration can tell.
const maxAge = math.MaxInt64 / int64(time.Microsecond)

// Claim implements [outbox.Store]. One call reads about 10,000 rows of the queue at most, and takes no more than 8 MB of
// payloads as they are stored, or one event. An event whose JSON PostgreSQL cannot print (a small jsonb may stand for a
// gigabyte of text) must not hold up all others: when a claim fails for that, the next one reads payloads one by one,
// and such an event is settled as a retry with the reason payload_unreadable. A [outbox.Event.CreatedAt] of infinity
// reads as zero.
func (s *Store) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	claim, err := s.claim(ctx, claimSQL, req)
	if refused(err) {
		claim, err = s.claimOneByOne(ctx, req)
	}
	if err != nil {
		return outbox.Claim{}, fmt.Errorf("claim batch: %w", err)
	}
	return claim, nil
}

func (s *Store) claim(ctx context.Context, sql string, req outbox.ClaimRequest) (claim outbox.Claim, err error) {
	lost := "report"
	if req.Recover {
		lost = "recover"
	}
	types, ids := make([]string, len(req.Lanes)), make([]string, len(req.Lanes))
	for i, lane := range req.Lanes {
		types[i], ids[i] = lane.Type, lane.ID
	}
	cursor := req.Cursor
	if cursor == "" {
		cursor = "{}"
	}
	err = again(ctx, func() error {
		rows, err := s.Pool.Query(ctx, sql, req.EventTypes, orEmpty(req.KnownTypes), orEmpty(req.HeldTypes),
			orNull(req.BatchSize), orNull(req.LaneDepth), orNull(seconds(req.Visibility)), orNull(req.MaxAttempts),
			cursor, types, ids, lost, req.Again)
		if err != nil {
			return err
		}
		claim, err = collect(rows, min(max(req.BatchSize, 0), maxBatch))
		return err
	})
	for i := range claim.Events {
		claim.Events[i].Recovered = req.Recover
	}
	return claim, err
}

// collect reads the claimed events, and the state, which comes as a row of its own without an id. Values go straight into
// their fields: through pointers, as for values that may be null, it takes twice the time.
func collect(rows pgx.Rows, most int) (outbox.Claim, error) {
	defer rows.Close()
	var claim outbox.Claim
	var state []byte
	var e outbox.Event
	var attempts int32
	var created, age pgtype.Int8
	fields := []any{
		&e.ID, &e.Position, &created, &e.AggregateType, &e.AggregateID, &e.Type, &e.IdempotencyKey, &attempts,
		nil, &age, (*[]byte)(&e.Payload), (*[]byte)(&e.Metadata),
	}
	for rows.Next() {
		if raw := rows.RawValues(); raw[0] == nil {
			state = bytes.Clone(raw[stateColumn])
			continue
		}
		if err := rows.Scan(fields...); err != nil {
			return claim, err
		}
		e.Attempts, e.CreatedAt, e.Age = int(attempts), time.Time{}, 0
		if created.Valid {
			e.CreatedAt, e.Age = time.UnixMicro(created.Int64), time.Duration(min(max(age.Int64, -maxAge), maxAge))*time.Microsecond
		}
		if claim.Events == nil {
			claim.Events = make([]outbox.Event, 0, most)
		}
		claim.Events = append(claim.Events, e)
	}
	if err := rows.Err(); err != nil {
		return claim, err
	}
	return claim, readState(state, &claim)
}

// readState reads where the claim came to.
func readState(text []byte, claim *outbox.Claim) error {
	var state struct {
		Cursor json.RawMessage `json:"cursor"`
		End    bool            `json:"end"`
		Leased [][2]string     `json:"leased"`
		Lost   [][2]string     `json:"lost"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return fmt.Errorf("read the claim's state: %w", err)
	}
	claim.Cursor, claim.End = string(state.Cursor), state.End
	claim.Leased, claim.Lost = aggregates(state.Leased), aggregates(state.Lost)
	return nil
}

func aggregates(names [][2]string) []outbox.Aggregate {
	var all []outbox.Aggregate
	for _, name := range names {
		all = append(all, outbox.Aggregate{Type: name[0], ID: name[1]})
	}
	return all
}

func (s *Store) claimOneByOne(ctx context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	claim, err := s.claim(ctx, claimBareSQL, req)
	if err != nil {
		return outbox.Claim{}, err
	}
	claimed := claim.Events
	claim.Events = nil
	for _, e := range claimed {
		err := s.Pool.QueryRow(ctx, payloadSQL, e.ID).Scan((*[]byte)(&e.Payload))
		if refused(err) {
			unreadable := outbox.Settlement{EventID: e.ID, ClaimToken: e.ClaimToken(), Outcome: outbox.Retry, Reason: "payload_unreadable"}
			_, err = s.settle(ctx, []outbox.Settlement{unreadable}, outbox.Backoff{MaxAttempts: req.MaxAttempts})
			if err == nil {
				continue
			}
		}
		if err != nil {
			return outbox.Claim{}, err // the leases of what was claimed end by themselves
		}
		claim.Events = append(claim.Events, e)
	}
	return claim, nil
}
