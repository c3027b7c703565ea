package contract

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox/postgres/postgrestest"
)

var (
	seedFlag = flag.Uint64("seed", defaultSeed, "seed of the differential test")
	opsFlag  = flag.Int("ops", defaultSteps, "steps of the differential test")
)

const (
	defaultSeed   = 1
	defaultSteps  = 6000
	episodeLength = 80
)

// TestTheFunctionsAgreeWithTheModel drives PostgreSQL and the model through the same random steps and compares
// the whole tables and the answer after each.
func TestTheFunctionsAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	session := newSession(t, postgrestest.URL(t))
	hits := map[string]int{}
	source := newDice(*seedFlag)
	for done := 0; done < *opsFlag; done += episodeLength {
		steps := make([]uint64, episodeLength)
		for i := range steps {
			steps[i] = source.Uint64()
		}
		failed, script, err := replay(session, steps, hits)
		if err == nil {
			continue
		}
		short := minimise(session, steps[:failed+1])
		if _, shortScript, shortErr := replay(session, short, map[string]int{}); shortErr != nil {
			script, err = shortScript, shortErr
		}
		t.Fatalf("seed %d, after %d steps:\n%v\n\nscript:\n%s", *seedFlag, done+failed, err, strings.Join(script, ";\n"))
	}
	for _, clause := range clauses() {
		if hits[clause] == 0 && *opsFlag >= defaultSteps && *seedFlag == defaultSeed {
			t.Errorf("clause never exercised: %s", clause)
		}
	}
	for _, clause := range slices.Sorted(maps.Keys(hits)) {
		t.Logf("%6d %s", hits[clause], clause)
		if !slices.Contains(clauses(), clause) {
			t.Errorf("clause missing in the table of this test: %s", clause)
		}
	}
}

// replay runs the steps on empty tables; at the first difference it answers the step, the script so far and
// what differs.
func replay(session *session, steps []uint64, hits map[string]int) (failed int, script []string, err error) {
	zone := pick(newDice(steps[0]), "UTC", "Asia/Kolkata", "America/St_Johns")
	reset := "set timezone = '" + zone + "'; truncate outbox_events, outbox_dormant_event_types"
	duel := &duel{
		session: session, script: []string{reset},
		model: &Model{Dormant: map[string]bool{}, Issued: map[string]bool{}, Hits: hits},
	}
	if _, err := session.try(reset); err != nil {
		return 0, duel.script, err
	}
	for i, seed := range steps {
		if err := duel.step(newDice(seed)); err != nil {
			return i, duel.script, err
		}
	}
	return 0, nil, nil
}

// minimise drops steps for as long as some difference stays.
func minimise(session *session, steps []uint64) []uint64 {
	budget := 200
	for size := len(steps) / 2; size >= 1; size /= 2 {
		for at := 0; at+size <= len(steps) && len(steps) > size && budget > 0; {
			budget--
			shorter := slices.Concat(steps[:at], steps[at+size:])
			if failed, _, err := replay(session, shorter, map[string]int{}); err != nil {
				steps = shorter[:failed+1]
				continue
			}
			at += size
		}
	}
	return steps
}

// duel is the two implementations side by side.
type duel struct {
	session  *session
	model    *Model
	dormancy string   // the whole second table as last seen
	tokens   []string // every token issued, in order
	script   []string
}

func (d *duel) step(dice dice) error {
	switch at := dice.IntN(100); {
	case at < 1:
		return d.change(dice.bulk())
	case at < 6:
		return d.change(dice.lease())
	case at < 22:
		return d.change(dice.insert())
	case at < 36:
		return d.change(dice.interference(d.model))
	case at < 40:
		return d.change(dice.declaration())
	case at < 65:
		return d.claim(dice)
	case at < 74:
		return d.markProcessed(dice)
	case at < 91:
		return d.markFailed(dice)
	default:
		return d.release(dice)
	}
}

// change runs a statement that is no call of the rail and lets the model read the tables again.
func (d *duel) change(statement string) error {
	observed, err := d.run(statement, false)
	if err != nil {
		return err
	}
	d.model.Rows = observed.rows
	d.dormancy = observed.dormancy
	d.model.Dormant = map[string]bool{}
	for _, name := range observed.dormant {
		d.model.Dormant[name] = true
	}
	return nil
}

func (d *duel) claim(dice dice) error {
	args := dice.claim()
	call := "select " + rowColumns() + " from outbox_claim_batch(" + trail(dice, 2, args.Types.literal("text[]"),
		args.Known.literal("text[]"), integer(args.Batch), integer(args.Visibility), integer(args.MaxAttempts)) + ")"
	observed, err := d.run(call, true)
	if err != nil {
		return err
	}
	want, fault := d.model.Claim(observed.clock, args, observed.byID())
	var got []*Row
	for _, fields := range observed.answer {
		row, err := parseRow(fields)
		if err != nil {
			return err
		}
		got = append(got, row)
		d.tokens = append(d.tokens, show(row.Metadata.text("claimToken")))
	}
	wanted := make([]*Row, len(want))
	for i := range want {
		wanted[i] = &want[i]
	}
	slices.SortFunc(got, func(a, b *Row) int { return int(a.Position - b.Position) })
	return errors.Join(d.compare(observed, fault), differ("returned", got, wanted))
}

func (d *duel) markProcessed(dice dice) error {
	id, token := dice.target(d.model, d.tokens)
	detail := dice.detail()
	args := []string{quote(id), quote(token), quote((*string)(detail)) + "::jsonb"}
	if detail != nil && *detail == "{}" && dice.chance(50) {
		args = args[:2]
	}
	observed, err := d.run("select outbox_mark_processed("+strings.Join(args, ", ")+")", true)
	if err != nil {
		return err
	}
	if detail != nil { // the model reads the detail as PostgreSQL writes it: 1e400 in full
		written, err := d.session.try("select " + quote((*string)(detail)) + "::jsonb::text")
		if err != nil {
			return err
		}
		if *detail, err = NewDocument(show(written[0][0][0])); err != nil {
			return err
		}
	}
	want := map[bool]string{true: "t", false: "f"}[d.model.MarkProcessed(observed.clock, id, token, detail)]
	return errors.Join(observed.single(want), d.compare(observed, nil))
}

func (d *duel) markFailed(dice dice) error {
	id, token := dice.target(d.model, d.tokens)
	args := dice.failed()
	observed, err := d.run("select outbox_mark_failed("+trail(dice, 4, quote(id), quote(token), quote(args.Error),
		quote(args.Outcome), integer(args.BaseDelay), integer(args.MaxDelay), integer(args.MaxAttempts),
		integer(args.Snooze))+")", true)
	if err != nil {
		return err
	}
	want, fault := d.model.MarkFailed(observed.clock, id, token, args, observed.byID())
	return errors.Join(observed.single(want), d.compare(observed, fault))
}

func (d *duel) release(dice dice) error {
	ids, tokens := dice.targets(d.model, d.tokens)
	delay := dice.number(0, 1, 30, 3600)
	observed, err := d.run("select outbox_release_unprocessed("+
		trail(dice, 2, ids.literal("uuid[]"), tokens.literal("text[]"), integer(delay))+")", true)
	if err != nil {
		return err
	}
	want, fault := d.model.Release(observed.clock, ids, tokens, delay)
	return errors.Join(observed.single(fmt.Sprint(want)), d.compare(observed, fault))
}

// trail joins arguments; sometimes trailing nulls are left out instead, which means the same.
func trail(dice dice, least int, args ...string) string {
	for len(args) > least && args[len(args)-1] == "null" && dice.chance(50) {
		args = args[:len(args)-1]
	}
	return strings.Join(args, ", ")
}

// observation is what PostgreSQL answered and how the tables stand after it.
type observation struct {
	clock    Clock
	fault    *Fault
	answer   answer
	rows     []*Row
	dormant  []string
	dormancy string
}

// run executes one statement in a transaction of its own and reads both tables in it.
func (d *duel) run(statement string, returns bool) (*observation, error) {
	d.script = append(d.script, statement)
	tables := "select " + rowColumns() + " from outbox_events order by position;" +
		"select event_type, d::text from outbox_dormant_event_types d order by event_type;"
	observed := &observation{}
	answers, err := d.session.try("begin;" + clockQuery() + statement + ";" + tables + "commit")
	if pgErr := pgError(err); pgErr != nil {
		observed.fault = &Fault{pgErr.Code, pgErr.Message}
		answers, err = d.session.try("rollback;" + tables)
	} else if err == nil {
		observed.clock.Text = show(answers[0][0][1])
		_, err = fmt.Sscan(show(answers[0][0][0]), &observed.clock.Now)
		if returns {
			observed.answer = answers[1]
		}
	}
	if err != nil {
		return nil, err
	}
	if observed.fault != nil && !returns {
		return nil, fmt.Errorf("%s: %s", observed.fault.Code, observed.fault.Message)
	}
	for _, fields := range answers[len(answers)-2] {
		row, err := parseRow(fields)
		if err != nil {
			return nil, err
		}
		observed.rows = append(observed.rows, row)
	}
	for _, fields := range answers[len(answers)-1] {
		observed.dormant = append(observed.dormant, show(fields[0]))
		observed.dormancy += show(fields[1]) + "\n"
	}
	return observed, nil
}

func (o *observation) byID() Observed {
	rows := Observed{}
	for _, row := range o.rows {
		rows[row.ID] = *row
	}
	return rows
}

// single compares the answer of a function that returns one value; after an error there is none.
func (o *observation) single(want string) error {
	if o.fault != nil {
		return nil
	}
	if got := show(o.answer[0][0]); got != want {
		return fmt.Errorf("answer: got %s, want %s", got, want)
	}
	return nil
}

func (d *duel) compare(observed *observation, want *Fault) error {
	var problems []error
	if !reflect.DeepEqual(observed.fault, want) {
		problems = append(problems, fmt.Errorf("error: got %+v, want %+v", observed.fault, want))
	}
	if observed.dormancy != d.dormancy {
		problems = append(problems, errors.New("outbox_dormant_event_types changed"))
	}
	return errors.Join(append(problems, differ("table", observed.rows, d.model.Rows))...)
}

// differ names the fields in which two lists of rows part.
func differ(what string, got, want []*Row) error {
	var problems []error
	if len(got) != len(want) {
		problems = append(problems, fmt.Errorf("%s: got %d rows, want %d", what, len(got), len(want)))
	}
	for i := range min(len(got), len(want)) {
		g, w := reflect.ValueOf(*got[i]), reflect.ValueOf(*want[i])
		for field := range g.NumField() {
			if !reflect.DeepEqual(g.Field(field).Interface(), w.Field(field).Interface()) {
				problems = append(problems, fmt.Errorf("%s: row %s: %s: got %s, want %s", what, got[i].ID,
					g.Type().Field(field).Name, value(g.Field(field)), value(w.Field(field))))
			}
		}
	}
	return errors.Join(problems...)
}

func value(field reflect.Value) string {
	if field.Kind() == reflect.Pointer && !field.IsNil() {
		field = field.Elem()
	}
	return clip(fmt.Sprintf("%#v", field.Interface()))
}
