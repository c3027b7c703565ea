package contract

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// dice makes the arguments of one step. The same seed on the same table makes the same step.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 1))} }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

func (d dice) uuid() string {
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x",
		d.Uint32(), d.IntN(1<<16), d.IntN(1<<12), d.IntN(1<<12), d.Int64N(1<<48))
}

// eventType is mostly one of a few, so that lists, priors and declarations meet. A tab is not blank.
func (d dice) eventType() string {
	return pick(d, "a", "a", "a", "b", "b", "c", "c", "d", "\t", "a ", " a", "A", "\u00a0")
}

func (d dice) moment() string {
	return pick(d, "now()", "now()", "now() - interval '1 hour'", "now() - interval '1 microsecond'",
		"now() + interval '1 hour'", "now() + interval '2 hours'", "now() + interval '1 day'",
		"'infinity'", "'-infinity'")
}

func (d dice) attempts() string {
	return pick(d, "0", "0", "0", "1", "1", "2", "3", "7", "8", "9", "18", "18", "19", "19", "20", "21", "2147483647")
}

func (d dice) metadata() string {
	if d.chance(40) {
		return pick(d, `{}`, `{"a": 1}`, `{"a": {"b": 1}, "traceparent": "00-1"}`, `{"claimToken": "manual"}`)
	}
	if d.chance(50) {
		return d.snoozed()
	}
	return pick(d, `[]`, `"x"`, `null`, `3`, `true`, `[1, {"claimToken": "manual"}]`, `["claimToken"]`,
		`"claimToken"`, `{"claimToken": 7}`, `{"claimToken": null}`, `{"claimToken": ""}`, `{"claimToken": true}`,
		`{"lastClaimedAt": "x", "discardReason": [1], "finalAttempts": "y"}`, `{"a": 1.50, "é": "\u00e9", "": 1e400}`)
}

// snoozed is metadata with a token and any snoozeCount.
func (d dice) snoozed() string {
	return `{"claimToken": "manual", "snoozeCount": ` + pick(d, snoozeCounts()...) + pick(d, ``, `, "a": {"b": 1}`) + `}`
}

func snoozeCounts() []string {
	return []string{
		`"many"`, `"3"`, `3`, `1.5`, `"1.5"`, `1e400`, `-2`, `"-2"`, `0`, `null`, `true`, `[]`, `[1]`, `{}`, `" 4 "`,
		`"+5"`, `"007"`, `2147483646`, `2147483647`, `"2147483647"`, `2147483648`, `1.0`, `""`, `-2147483648`,
		`"99999999999999999999999"`, `"1e3"`, `"NaN"`, `"0x1F"`, `"١"`, `"1e999999999"`, `1e-400`, `"\u20035"`, `"-"`,
		`9223372036854775807`, `"9223372036854775807"`, `"1\n"`, `"1\n2"`, `"3 4"`, `"\u00a07"`,
	}
}

// lease writes a row that is processing under the token "manual".
func (d dice) lease() string {
	return fmt.Sprintf(`insert into outbox_events
		(id, aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, attempts, metadata)
		values ('%s', 'order', '%s', 'a', 'k%d', '{}', 'processing', %s, %s)`,
		d.uuid(), d.uuid(), d.Uint64(), d.attempts(), quote(new(d.snoozed())))
}

func (d dice) message() *string {
	switch d.IntN(8) {
	case 0:
		return nil
	case 1:
		return new("")
	case 2:
		return new(strings.Repeat("é", pick(d, 1967, 1968, 1969, 1999, 2000, 2001, 3000)))
	case 3:
		return new(strings.Repeat("0123456789", 1024))
	case 4:
		return new("it's \\ 'quoted' %s \U0001f600")
	default:
		return new("refused")
	}
}

// insert writes one row of any shape; left-out columns take their defaults.
func (d dice) insert() string {
	columns := []string{"id", "aggregate_type", "aggregate_id", "event_type", "idempotency_key", "payload"}
	values := []string{
		"'" + d.uuid() + "'", pick(d, "'order'", "'order'", "'order'", "'order '", "'cart'"),
		pick(d, "'00000000-0000-0000-0000-00000000000a'", "'00000000-0000-0000-0000-00000000000a'",
			"'00000000-0000-0000-0000-00000000000b'", "'00000000-0000-0000-0000-00000000000c'"),
		quote(new(d.eventType())), fmt.Sprintf("'k%d'", d.Uint64()), pick(d, "'{}'", "'null'", "'[1e400, 1.50]'", "'\"x\"'"),
	}
	maybe := func(percent int, column string, value func() string) {
		if d.chance(percent) {
			columns, values = append(columns, column), append(values, value())
		}
	}
	maybe(40, "created_at", d.moment)
	maybe(30, "available_at", d.moment)
	maybe(10, "processed_at", func() string { return "now() - interval '1 day'" })
	maybe(40, "status", d.status)
	maybe(50, "attempts", d.attempts)
	maybe(30, "error", func() string { return quote(d.message()) })
	maybe(50, "metadata", func() string { return quote(new(d.metadata())) })
	return fmt.Sprintf("insert into outbox_events (%s) values (%s)", strings.Join(columns, ", "), strings.Join(values, ", "))
}

// bulk writes more rows at once than a claim reads at first, spread by a hash of their number.
func (d dice) bulk() string {
	return fmt.Sprintf(`insert into outbox_events
		(aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, attempts, created_at, available_at, metadata)
		select 'order', lpad((h %% %d)::text, 32, '0')::uuid, (array['a', 'a', 'b', 'c'])[1 + h / 7 %% 4], '%d-' || i, '{}',
			(array['pending', 'pending', 'pending', 'pending', 'failed', 'processing', 'processed'])[1 + h / 11 %% 7],
			(array[0, 0, 0, 0, 1, 2, 3, 8])[1 + h / 13 %% 8],
			now() + (h / 17 %% 100 - 90) * interval '1 minute', now() + (h / 19 %% 100 - 80) * interval '1 minute',
			'{"claimToken": "manual"}'
		from (select i, abs(hashint8(i + %d)::bigint) as h from generate_series(1, %d) i) numbers order by i`,
		pick(d, 3, 40, 500), d.Uint64(), d.Int64N(1<<40), pick(d, 60, 130, 400))
}

func (d dice) status() string {
	return pick(d, "'pending'", "'processing'", "'processing'", "'failed'", "'processed'", "'discarded'")
}

// types is an allowlist or a known list.
func (d dice) types(nullPercent int) List {
	if d.chance(nullPercent) {
		return List{Null: true}
	}
	var list List
	for range pick(d, 0, 1, 1, 2, 2, 3, 4) {
		list.Items = append(list.Items, new(d.eventType()))
	}
	if d.chance(20) {
		list.Items = append(list.Items, nil)
	}
	if d.chance(10) {
		list.Items = append(list.Items, new(pick(d, "", " ", "   ")))
	}
	list.Nested = len(list.Items) > 0 && d.chance(5)
	return list
}

// number is null, out of range, or one of the given.
func (d dice) number(from ...int64) *int64 {
	if d.chance(20) {
		return nil
	}
	if d.chance(25) {
		return new(pick(d, int64(math.MinInt32), -1, 0, 1, 101, 299, 301, 3601, 86400, 86401, math.MaxInt32))
	}
	return new(pick(d, from...))
}

func (d dice) claim() ClaimArgs {
	return ClaimArgs{
		Types: d.types(3), Known: d.types(10),
		Batch: d.number(1, 2, 3, 25, 100), Visibility: d.number(300, 301, 900, 3600),
		MaxAttempts: d.number(1, 2, 3, 8, 8, 19, 20, 21),
	}
}

func (d dice) failed() FailedArgs {
	args := FailedArgs{
		Error: d.message(), Outcome: new(pick(d, "retry", "retry", "snooze", "snooze", "discard")),
		BaseDelay: d.number(5, 6, 60, 3600), MaxDelay: d.number(5, 60, 3600, 86400, 90000),
		MaxAttempts: d.number(1, 2, 3, 8, 20, 20, 20, 21), Snooze: d.number(60, 61, 300, 3600),
	}
	if d.chance(8) {
		args.Outcome = pick(d, nil, new("Retry"), new("RETRY"), new(""), new("retry "), new("processed"), new("released"))
	}
	return args
}

func (d dice) detail() *Document {
	if d.chance(15) {
		return nil
	}
	text := pick(d, `{}`, `{"a": 2}`, `{"a": 2}`, `{"a": [3]}`, `{"a": {"c": 3}}`, `{"z": null}`, `{"claimToken": "stolen"}`,
		`{"snoozeCount": 99, "discardReason": "x", "b": 1}`, `{"traceparent": "00-2"}`,
		`{"lastClaimedAt": 1, "lastSnoozedAt": 1, "discardedAt": 1, "finalAttempts": 1}`, `{"detail": 5}`,
		`[1]`, `[]`, `"x"`, `3`, `null`, `true`, `1.50`, `{"big": 1e400}`, `[{"claimToken": "stolen"}]`)
	document, err := NewDocument(text)
	if err != nil {
		panic(err)
	}
	return &document
}

// target is an id with a token: right more often than not.
func (d dice) target(model *Model, tokens []string) (id, token *string) {
	if len(model.Rows) == 0 || d.chance(4) {
		return new(d.uuid()), new("manual")
	}
	row := pick(d, model.Rows...)
	var processing []*Row
	for _, other := range model.Rows {
		if other.Status == "processing" {
			processing = append(processing, other)
		}
	}
	if len(processing) > 0 && d.chance(80) {
		row = pick(d, processing...)
	}
	id, token = &row.ID, row.Metadata.text("claimToken")
	if d.chance(3) {
		id = nil
	}
	if d.chance(25) {
		token = pick(d, nil, new("manual"), new(""), new("7"), new(d.uuid()))
		if len(tokens) > 0 && d.chance(50) {
			token = &tokens[d.IntN(len(tokens))]
		}
	}
	return id, token
}

// targets are the two arrays of a release.
func (d dice) targets(model *Model, tokens []string) (ids, held List) {
	for range pick(d, 0, 1, 1, 2, 3, 5) {
		id, token := d.target(model, tokens)
		for range pick(d, 1, 1, 1, 2) {
			ids.Items, held.Items = append(ids.Items, id), append(held.Items, token)
		}
	}
	switch d.IntN(20) {
	case 0:
		ids.Null = true
	case 1:
		held.Null = true
	case 2:
		ids.Items = append(ids.Items, nil)
	case 3:
		held.Items = append(held.Items, nil)
	case 4:
		ids.Nested = len(ids.Items) > 0
	}
	return ids, held
}

// interference is what operators and time do between the calls.
func (d dice) interference(model *Model) string {
	if len(model.Rows) == 0 {
		return d.insert()
	}
	one := " where id = '" + pick(d, model.Rows...).ID + "'"
	switch d.IntN(12) {
	case 0, 1, 2, 3:
		return "update outbox_events set available_at = now() - interval '1 second' where status in ('processing', 'failed')"
	case 4:
		return "update outbox_events set available_at = " + d.moment() + one
	case 5:
		return "update outbox_events set status = " + d.status() + one
	case 6:
		return "update outbox_events set metadata = " + quote(new(d.metadata())) + one
	case 7:
		return "update outbox_events set attempts = " + d.attempts() + one
	case 8:
		return "update outbox_events set created_at = " + d.moment() + one
	case 9:
		return "update outbox_events set error = " + quote(d.message()) + one
	case 10:
		return "update outbox_events set event_type = " + quote(new(d.eventType())) + one
	default:
		return "delete from outbox_events" + one
	}
}

func (d dice) declaration() string {
	name := quote(new(d.eventType()))
	if d.chance(50) {
		return "delete from outbox_dormant_event_types where event_type = " + name
	}
	return "insert into outbox_dormant_event_types (event_type, owner, reason) values (" + name +
		", 'team', 'nobody listens') on conflict do nothing"
}
