package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestClaimClauses checks what random steps on a small table cannot see.
func TestClaimClauses(t *testing.T) {
	t.Parallel()
	runClauses(t, map[string]func(*session){
		"named arguments and left-out ones work": func(s *session) {
			for i := range 3 {
				s.event("a", i)
			}
			s.equal("named", len(s.column("select id from outbox_claim_batch(p_max_attempts => 3, p_batch_size => 2, p_event_types => array['a'])")), 2)
			id := s.column("select id from outbox_claim_batch(array['a'], array['b'])")[0]
			token := s.field(id, "metadata->>'claimToken'")
			s.equal("snoozed", s.one("select outbox_mark_failed(p_snooze_seconds => 60, p_outcome => 'snooze', p_error => 'x', p_claim_token => '%s', p_event_id => '%s')",
				token, id), "snoozed")
			s.equal("released", s.one("select outbox_release_unprocessed(p_claim_tokens => '{}', p_event_ids => '{}')"), 0)
			s.equal("processed", s.one("select outbox_mark_processed(p_claim_token => null, p_event_id => null)"), "f")
		},
		"batch defaults to 25 and stops at 100": func(s *session) {
			for i := range 230 {
				s.event("a", i)
			}
			s.equal("default", len(s.claim()), 25)
			s.equal("above", len(s.column("select id from outbox_claim_batch(array['a'], null, 5000)")), 100)
			s.equal("below", len(s.column("select id from outbox_claim_batch(array['a'], null, -3)")), 1)
			s.equal("null", len(s.column("select id from outbox_claim_batch(array['a'], null, null)")), 25)
		},
		"each row of a claim has a token of its own": func(s *session) {
			for i := range 50 {
				s.event("a", i)
			}
			tokens := s.column("select metadata->>'claimToken' from outbox_claim_batch(array['a'], null, 50)")
			slices.Sort(tokens)
			s.equal("distinct tokens", len(slices.Compact(tokens)), 50)
		},
		"the hundred oldest exhausted rows go first, whatever the batch": checkHundred,
		"blocked exhausted rows are discarded too": func(s *session) {
			s.event("foreign", 1)
			for range 250 {
				s.event("a", 1, "attempts = 8")
			}
			s.equal("claimed", len(s.claim()), 0)
			s.equal("discarded", s.one("select count(*) from outbox_events where status = 'discarded'"), 100)
			s.equal("the oldest", s.one(`select bool_and(position <= (select max(position) from outbox_events) - 150)
				from outbox_events where status = 'discarded'`), "t")
		},
		"followers of rows discarded in the call are claimed in it, of rows left over they are not": func(s *session) {
			var want []string
			for i := range 150 {
				s.event("a", i, "attempts = 20")
			}
			for i := range 150 {
				id := s.event("a", i)
				if i < 100 {
					want = append(want, id)
				}
			}
			s.equal("claimed", s.column("select id from outbox_claim_batch(array['a'], null, 100) order by position"), want)
		},
		"events of one transaction come in insert order, a thousand times": checkInsertOrder,
		"transactions that began in the opposite order keep insert order": func(s *session) {
			early := s.another()
			early.do("begin; select now()")
			first := s.event("a", 1)
			second := early.event("a", 1)
			early.do("commit")
			s.equal("created_at inverts them", s.one("select (select created_at from outbox_events where id = '%s') < (select created_at from outbox_events where id = '%s')",
				second, first), "t")
			s.equal("claimed", s.claim(), []string{first})
			s.equal("processed", s.one("select outbox_mark_processed('%s', '%s')", first, s.field(first, "metadata->>'claimToken'")), "t")
			s.equal("claimed", s.claim(), []string{second})
		},
		"claim times in metadata are as jsonb writes a timestamptz": func(s *session) {
			for _, zone := range []string{"UTC", "Asia/Kolkata"} {
				id := s.event("a", 1)
				s.do("set timezone = '" + zone + "'")
				s.claim()
				s.equal(zone, s.field(id, "metadata->'lastClaimedAt' = to_jsonb(available_at - interval '300 seconds')"), "true")
				s.equal(zone, s.field(id, "(metadata->>'lastClaimedAt')::timestamptz = available_at - interval '300 seconds'"), "true")
				s.do("delete from outbox_events")
			}
		},
		"payloads survive the claim byte for byte": checkPayloads,
		"the caller's search_path does not redirect the functions": func(s *session) {
			id := s.event("a", 1)
			s.do(`create schema elsewhere; create table elsewhere.outbox_events (like public.outbox_events including all);
				create table elsewhere.outbox_dormant_event_types (like public.outbox_dormant_event_types including all);
				set search_path = elsewhere`)
			s.equal("claimed", s.column("select id from public.outbox_claim_batch(array['a'])"), []string{id})
		},
		"a delay that is due in the future of created_at still counts": func(s *session) {
			// Both in the future, the row created after it is available: still not claimable.
			s.event("a", 1, "created_at = now() + interval '2 hours', available_at = now() + interval '1 hour'")
			s.equal("claimed", len(s.claim()), 0)
			due := s.event("a", 2, "created_at = now() + interval '2 hours', available_at = now() - interval '1 hour'")
			s.equal("claimed", s.claim(), []string{due})
		},
		"oldest first across aggregates, whatever is due since when": func(s *session) {
			want := []string{
				s.event("a", 1, "status = 'failed', attempts = 1, available_at = now() - interval '1 second'"),
				s.event("a", 2),
				s.event("a", 3, "available_at = now() - interval '1 day'"),
				s.event("a", 4, "status = 'processing', attempts = 1, available_at = now() - interval '1 hour'"),
				s.event("a", 5, "created_at = now() - interval '1 day'"),
			}
			for _, id := range want {
				s.equal("claimed", s.column("select id from outbox_claim_batch(array['a'], null, 1)"), []string{id})
			}
		},
		"a claim in the insert's own transaction sees the row": func(s *session) {
			s.do("begin")
			id := s.event("a", 1)
			s.equal("claimed", s.claim(), []string{id})
			s.do("rollback")
			s.equal("rows", s.one("select count(*) from outbox_events"), 0)
		},
	})
}

func checkHundred(s *session) {
	for i := range 250 {
		s.event("a", i, fmt.Sprintf("attempts = 8 + %d, created_at = now() - interval '%d hours'", i%5, i)) // newest created_at first
	}
	for round := 1; round <= 4; round++ {
		s.equal("claimed", len(s.column("select id from outbox_claim_batch(array['a'], null, 1)")), 0)
		want := min(250, round*100)
		s.equal("discarded", s.one("select count(*) from outbox_events where status = 'discarded'"), want)
		s.equal("the oldest", s.one(`select bool_and(rank <= %d) from (select status, row_number() over (order by position) as rank
			from outbox_events) r where status = 'discarded'`, want), "t")
	}
}

func checkInsertOrder(s *session) {
	s.do(`do $$ begin for i in 1..1000 loop
		insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
			values ('order', lpad(i::text, 32, '0')::uuid, 'a', i || '-1', '1');
		insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
			values ('order', lpad(i::text, 32, '0')::uuid, 'a', i || '-2', '2'), ('order', lpad(i::text, 32, '0')::uuid, 'a', i || '-3', '3');
		end loop; end $$`)
	for want := 1; want <= 3; want++ {
		var got []string
		for range 10 {
			got = append(got, s.column("select payload from outbox_claim_batch(array['a'], null, 100)")...)
		}
		if len(got) != 1000 || slices.ContainsFunc(got, func(p string) bool { return p != strconv.Itoa(want) }) {
			s.t.Errorf("turn %d: got %d events, not all of them event %d of their aggregate", want, len(got), want)
		}
		s.do("select outbox_mark_processed(id, metadata->>'claimToken') from outbox_events where status = 'processing'")
	}
}

func checkPayloads(s *session) {
	for name, payload := range map[string]string{
		"256 kB":   `{"text": "` + strings.Repeat("é1", 256*1024/3) + `"}`,
		"deep":     strings.Repeat("[", 1500) + "1.50" + strings.Repeat("]", 1500),
		"1e400":    `{"n": 1e400, "small": 1e-400, "exact": 12345678901234567890.1234567890}`,
		"null":     `null`,
		"empty":    `{}`,
		"unicode":  `{"z": 1, "a": "\u00e9\ud83d\ude00", "": "<&>"}`,
		"scalar":   `"x"`,
		"nul text": `"\\u0000"`,
	} {
		id := s.event("a", 1, "payload = "+quote(&payload))
		before := s.field(id, "payload")
		after := s.column("select payload::text from outbox_claim_batch(array['a'])")
		if len(after) != 1 || after[0] != before {
			s.t.Errorf("%s: got %s, want %s", name, clip(strings.Join(after, "|")), clip(before))
		}
		s.equal(name, s.one("select outbox_mark_processed('%s', '%s')", id, s.field(id, "metadata->>'claimToken'")), "t")
		s.equal(name+" after settling", s.field(id, "md5(payload::text)"), s.one("select md5("+quote(&before)+")"))
	}
}

// TestSettleClauses checks marks and releases beyond what the random steps see.
func TestSettleClauses(t *testing.T) {
	t.Parallel()
	runClauses(t, map[string]func(*session){
		"retry waits d times a uniform number of [0.5, 1), not rounded": func(s *session) {
			s.do(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, attempts, metadata)
				select 'order', gen_random_uuid(), 'a', i::text, '{}', 'processing', 2, '{"claimToken": "held"}' from generate_series(1, 400) i`)
			facts := s.do(`begin; select outbox_mark_failed(id, 'held', 'x', 'retry', 30) from outbox_events;
				select count(*), min(w) >= 30, max(w) < 60, min(w) < 33, max(w) > 57, avg(w) between 42 and 48,
				count(*) filter (where w <> round(w)) > 390, count(distinct w) > 390
				from (select extract(epoch from available_at - now()) as w from outbox_events where status = 'failed') waits; commit`)
			var got []string
			for _, field := range facts[1][0] {
				got = append(got, show(field))
			}
			s.equal("count and facts", got, "[400 t t t t t t t]")
		},
		"the wait doubles from the base up to its cap": func(s *session) {
			for _, c := range []struct{ attempts, base, longest, want int }{
				{0, 60, 3600, 60},
				{1, 60, 3600, 60},
				{2, 60, 3600, 120},
				{6, 60, 3600, 1920},
				{7, 60, 3600, 3600},
				{1, 1, 3600, 5},
				{3, 100, 50, 100},
				{1, 5000, 1, 3600},
				{19, 5, 86400, 86400},
				{19, 3600, 1 << 30, 86400},
				{12, 5, 86400, 10240},
				{5, 3600, 86400, 57600},
				{6, 3600, 86400, 86400},
				{2, 60, -1, 60},
			} {
				s.do("truncate outbox_events")
				s.do(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status, attempts, metadata)
					select 'order', gen_random_uuid(), 'a', i::text, '{}', 'processing', %d, '{"claimToken": "held"}' from generate_series(1, 60) i`, c.attempts)
				facts := s.do(`begin; select outbox_mark_failed(id, 'held', 'x', 'retry', %d, %d, 20) from outbox_events;
					select min(w) >= 0.5 and min(w) < 0.65 and max(w) > 0.85 and max(w) <= 1
					from (select extract(epoch from available_at - now()) / %d as w from outbox_events) waits; commit`, c.base, c.longest, c.want)
				s.equal(fmt.Sprintf("%+v", c), show(facts[1][0][0]), "t")
			}
		},
		"snooze and release wait exactly": func(s *session) {
			snoozed, released := s.leased(), s.leased()
			s.do("begin")
			s.one("select outbox_mark_failed('%s', 'held', 'x', 'snooze', p_snooze_seconds => 61)", snoozed)
			s.one("select outbox_release_unprocessed(array['%s']::uuid[], array['held'], 7)", released)
			s.equal("snooze", s.field(snoozed, "available_at - now()"), "00:01:01")
			s.equal("release", s.field(released, "available_at - now()"), "00:00:07")
			s.equal("lastSnoozedAt", s.field(snoozed, "metadata->'lastSnoozedAt' = to_jsonb(now())"), "true")
			s.do("commit")
		},
		"errors are cut at 2,000 characters, not bytes": func(s *session) {
			for _, outcome := range []string{"retry", "discard", "snooze"} {
				long := strings.Repeat("é", 1999) + "\U0001f600" + strings.Repeat("z", 10_000)
				id := s.leased()
				s.one("select outbox_mark_failed('%s', 'held', %s, '%s')", id, quote(&long), outcome)
				s.equal(outcome, s.field(id, "error"), strings.Repeat("é", 1999)+"\U0001f600")
			}
			plain := strings.Repeat("0123456789", 1024)
			id := s.leased()
			s.one("select outbox_mark_failed('%s', 'held', '%s')", id, plain)
			s.equal("10 kB", s.field(id, "error"), plain[:2000])
			spent := s.event("b", 9, "attempts = 8, error = "+quote(new(strings.Repeat("é", 1990))))
			s.do("select * from outbox_claim_batch(array['b'])")
			s.equal("at the claim", s.field(spent, "error"), strings.Repeat("é", 1990)+" | max_att")
		},
		"a token works once, and only until the next claim": func(s *session) {
			id := s.event("a", 1)
			s.claim()
			old := s.field(id, "metadata->>'claimToken'")
			s.do("update outbox_events set available_at = now()")
			s.claim()
			fresh := s.field(id, "metadata->>'claimToken'")
			s.equal("old, processed", s.one("select outbox_mark_processed('%s', '%s')", id, old), "f")
			s.equal("old, failed", s.one("select outbox_mark_failed('%s', '%s', 'x')", id, old), "missed")
			s.equal("old, released", s.one("select outbox_release_unprocessed(array['%s']::uuid[], array['%s'])", id, old), 0)
			s.equal("fresh", s.one("select outbox_mark_processed('%s', '%s')", id, fresh), "t")
			s.equal("again", s.one("select outbox_mark_processed('%s', '%s')", id, fresh), "f")
			s.equal("again, failed", s.one("select outbox_mark_failed('%s', '%s', 'x')", id, fresh), "missed")
			s.equal("the token stays", s.field(id, "metadata->>'claimToken'"), fresh)
		},
		"metadata that is no object keeps no event from being settled": func(s *session) {
			for _, metadata := range []string{`[]`, `"x"`, `null`, `3`, `true`, `[{"claimToken": "x"}]`} {
				id := s.event("a", 1, "metadata = "+quote(&metadata))
				s.equal(metadata, s.claim(), []string{id})
				s.equal(metadata, s.one("select outbox_mark_processed('%s', '%s', '[1]')", id, s.field(id, "metadata->>'claimToken'")), "t")
				s.equal(metadata, s.field(id, "metadata - 'claimToken' - 'lastClaimedAt'"), `{"detail": [1]}`)
			}
		},
		"snooze counts on from any snoozeCount and never fails": func(s *session) {
			for _, before := range snoozeCounts() {
				id := s.leased("metadata = " + quote(new(`{"claimToken": "held", "snoozeCount": `+before+`}`)))
				member, err := NewDocument(s.field(id, "metadata->'snoozeCount'"))
				if err != nil {
					s.t.Fatal(err)
				}
				answers, err := s.try("select outbox_mark_failed('" + id + "', 'held', 'x', 'snooze')")
				if err != nil || show(answers[0][0][0]) != "snoozed" {
					s.t.Errorf("%s: got %v, %v, want snoozed", before, answers, err)
					continue
				}
				_, lawful := nextCounts(member)
				if got := s.field(id, "metadata->'snoozeCount'"); !slices.Contains(lawful, json.Number(got)) {
					s.t.Errorf("%s: got %s, want one of %v", before, got, lawful)
				}
			}
		},
		"a detail merges one level deep, the later key wins": func(s *session) {
			id := s.leased(`metadata = '{"claimToken": "held", "a": {"b": 1}, "k": 1, "snoozeCount": 2}'`)
			s.equal("processed", s.one(`select outbox_mark_processed('%s', 'held',
				'{"a": {"c": 2}, "n": null, "claimToken": "stolen", "snoozeCount": 9}')`, id), "t")
			s.equal("metadata", s.field(id, "metadata"), `{"a": {"c": 2}, "k": 1, "n": null, "claimToken": "held", "snoozeCount": 2}`)
		},
		"one bad pair of a release spoils no other": func(s *session) {
			one, two, three := s.leased(), s.leased(`metadata = '[]'`), s.leased("attempts = 0")
			s.equal("released", s.one(`select outbox_release_unprocessed(array['%[1]s', '%[1]s', null, '%[2]s', '%[3]s', gen_random_uuid(), '%[1]s']::uuid[],
				array['held', 'held', 'held', 'held', 'held', 'held', 'wrong'])`, one, two, three), 2)
			s.equal("attempts", s.field(three, "attempts"), 0)
			s.equal("untouched", s.field(two, "status"), "processing")
		},
		"invalid calls answer their fixed errors": func(s *session) {
			for call, want := range map[string]string{
				"outbox_claim_batch(null)":                              "outbox_claim_allowlist_required",
				"outbox_claim_batch('{}')":                              "outbox_claim_allowlist_required",
				"outbox_mark_failed(null, null, null, null)":            "outbox_mark_failed_invalid_outcome",
				"outbox_mark_failed(null, null, null, 'Retry')":         "outbox_mark_failed_invalid_outcome",
				"outbox_release_unprocessed(null, '{}')":                "outbox_release_invalid_input",
				"outbox_release_unprocessed('{}', null)":                "outbox_release_invalid_input",
				"outbox_release_unprocessed('{}', array[null]::text[])": "outbox_release_invalid_input",
			} {
				err := s.fault("select * from " + call)
				s.equal(call, err.Code+" "+err.Message, "22023 "+want)
			}
			s.equal("only nulls and blanks", len(s.column("select id from outbox_claim_batch(array[null, '', '  '])")), 0)
		},
	})
}
