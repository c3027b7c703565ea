package chaos_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// auditSQL writes down, from inside the transactions that do it, what each change of rows means.
const auditSQL = `
create unlogged table audit (what text not null, id uuid not null, token text, status text not null);

create function audit() returns trigger language plpgsql set enable_hashjoin = on as $$
begin
  insert into audit
  select case when o.status in ('processed', 'discarded') then 'finished row changed'
              when n.status = 'processing' then 'claimed from a live lease'
              else 'settled' end, n.id, o.metadata ->> 'claimToken', n.status
  from before_it o join after_it n using (id)
  where o.status in ('processed', 'discarded')
     or o.status = 'processing' and n.status <> 'processing'
     or o.status = 'processing' and n.metadata ->> 'claimToken' is distinct from o.metadata ->> 'claimToken' and o.available_at > now();
  return null;
end $$;

create trigger audit after update on outbox_events
referencing old table as before_it new table as after_it for each statement execute function audit();`

// ledger is what is known of the events and their deliveries.
type ledger struct {
	aggregates map[int64]string // by position
	delivered  map[int64]bool
	last       map[string]int64 // position of an aggregate's first deliveries so far, the greatest
	file       *os.File
	reader     *bufio.Reader
	partial    string
	inverted   map[int64]int64 // position to the greater one that came first
	repeated   int
}

func newLedger(directory string) (*ledger, error) {
	file, err := os.OpenFile(deliveriesFile(directory), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &ledger{
		aggregates: map[int64]string{}, delivered: map[int64]bool{}, last: map[string]int64{},
		file: file, reader: bufio.NewReader(file), inverted: map[int64]int64{},
	}, nil
}

// learn reads which aggregates the events belong to that it does not know yet.
func (l *ledger) learn(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, "select position, aggregate_id::text from outbox_events order by position offset $1", len(l.aggregates))
	if err != nil {
		return err
	}
	var position int64
	var aggregate string
	_, err = pgx.ForEachRow(rows, []any{&position, &aggregate}, func() error { l.aggregates[position] = aggregate; return nil })
	return err
}

// read goes on reading the deliveries.
func (l *ledger) read(ctx context.Context, pool *pgxpool.Pool) error {
	var arrived []int64
	for {
		text, err := l.reader.ReadString('\n')
		l.partial += text
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		position, err := strconv.ParseInt(strings.TrimSuffix(l.partial, "\n"), 10, 64)
		if err != nil {
			return err
		}
		l.partial, arrived = "", append(arrived, position)
	}
	if err := l.learn(ctx, pool); err != nil { // whatever has arrived is there by now
		return err
	}
	for _, position := range arrived {
		l.deliver(position)
	}
	return nil
}

func (l *ledger) deliver(position int64) {
	if l.delivered[position] {
		l.repeated++
		return
	}
	l.delivered[position] = true
	of := l.aggregates[position]
	if position < l.last[of] {
		l.inverted[position] = l.last[of]
	}
	l.last[of] = max(l.last[of], position)
}

// answers checks what the workers heard of their outcomes against what the transactions did.
type answers struct{ applied, missed int }

func (a *answers) check(ctx context.Context, pool *pgxpool.Pool, directory string) (faults []string, err error) {
	// The answers first: what is in there was committed before, so the audit must have it.
	text, err := os.ReadFile(answersFile(directory))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	settled := map[[2]string]string{} // id and token to the status that it led to
	rows, err := pool.Query(ctx, "select id::text, coalesce(token, ''), status from audit where what = 'settled'")
	if err != nil {
		return nil, err
	}
	var id, token, status string
	if _, err := pgx.ForEachRow(rows, []any{&id, &token, &status}, func() error {
		if settled[[2]string{id, token}] != "" {
			faults = append(faults, fmt.Sprintf("row %s was settled twice under the token %s", id, token))
		}
		settled[[2]string{id, token}] = status
		return nil
	}); err != nil {
		return nil, err
	}
	statuses := map[string]string{
		"processed": "processed", "failed": "failed", "snoozed": "failed", "discarded": "discarded", "released": "pending",
	}
	heard, missed := map[[2]string]bool{}, map[[2]string]bool{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || len(fields[0]) != 36 || statuses[fields[2]] == "" && fields[2] != "missed" && fields[2] != lost {
			continue // the end of the file, or where a kill cut a record short
		}
		key, answer := [2]string{fields[0], fields[1]}, fields[2]
		switch {
		case answer == "missed":
			a.missed++
			missed[key] = true
		case answer == lost: // written or not; handed back, it is missed when it was
			heard[key] = true
		case settled[key] != statuses[answer]:
			faults = append(faults, fmt.Sprintf("row %s under the token %s: the answer was %s, the effect %q", key[0], key[1], answer, settled[key]))
		default:
			a.applied++
			heard[key] = true
		}
	}
	for key := range missed {
		if settled[key] != "" && !heard[key] {
			faults = append(faults, fmt.Sprintf("row %s: the answer under the token %s was missed, and yet it was settled: %s", key[0], key[1], settled[key]))
		}
	}
	return faults, nil
}
