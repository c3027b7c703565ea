package contract

import (
	"slices"
	"strings"
	"testing"
)

const thirteen = `id, created_at, available_at, processed_at, aggregate_type, aggregate_id, event_type,
	idempotency_key, status, attempts, payload, error, metadata`

// TestCatalog checks what clients see without calling anything.
func TestCatalog(t *testing.T) {
	t.Parallel()
	runClauses(t, map[string]func(*session){
		"outbox_events begins with the thirteen columns": func(s *session) {
			got := s.column(columnFacts("outbox_events"))
			s.equal("columns", strings.Join(got[:min(13, len(got))], "\n"), strings.Join([]string{
				"id uuid not null default gen_random_uuid()",
				"created_at timestamp with time zone not null default now()",
				"available_at timestamp with time zone not null default now()",
				"processed_at timestamp with time zone null",
				"aggregate_type text not null",
				"aggregate_id uuid not null",
				"event_type text not null",
				"idempotency_key text not null",
				"status text not null default 'pending'::text",
				"attempts integer not null default 0",
				"payload jsonb not null",
				"error text null",
				"metadata jsonb not null default '{}'::jsonb",
			}, "\n"))
		},
		"outbox_dormant_event_types has its five columns and no rows": func(s *session) {
			s.equal("columns", strings.Join(s.column(columnFacts("outbox_dormant_event_types")), "\n"), strings.Join([]string{
				"event_type text not null",
				"owner text not null",
				"reason text not null",
				"created_at timestamp with time zone not null default now()",
				"updated_at timestamp with time zone not null default now()",
			}, "\n"))
			s.equal("rows", s.one("select count(*) from outbox_dormant_event_types"), 0)
		},
		"constraints are these and no others": func(s *session) {
			got := s.column(`select conname || ' ' || contype::text || ' ' ||
				case when contype in ('p', 'u') then pg_get_constraintdef(oid) else '' end
				from pg_constraint where conrelid in ('outbox_events'::regclass, 'outbox_dormant_event_types'::regclass)
				and contype <> 'n' order by conname collate "C"`)
			s.equal("constraints", strings.Join(got, "\n"), strings.Join([]string{
				"outbox_dormant_event_types_event_type_nonempty_check c ",
				"outbox_dormant_event_types_owner_nonempty_check c ",
				"outbox_dormant_event_types_pkey p PRIMARY KEY (event_type)",
				"outbox_dormant_event_types_reason_nonempty_check c ",
				"outbox_events_aggregate_type_nonempty_check c ",
				"outbox_events_attempts_check c ",
				"outbox_events_event_type_idempotency_key_key u UNIQUE (event_type, idempotency_key)",
				"outbox_events_event_type_nonempty_check c ",
				"outbox_events_idempotency_key_nonempty_check c ",
				"outbox_events_pkey p PRIMARY KEY (id)",
				"outbox_events_status_check c ",
			}, "\n"))
		},
		"no trigger, row security, rule or grant": func(s *session) {
			s.equal("triggers", s.one("select count(*) from pg_trigger where not tgisinternal"), 0)
			s.equal("row security", s.one(`select count(*) from pg_class where relname in
				('outbox_events', 'outbox_dormant_event_types') and (relrowsecurity or relhasrules or relacl is not null)`), 0)
		},
		"checks name themselves":                               checkConstraints,
		"functions have their arguments, defaults and answers": checkFunctions,
		"a fresh role with its own table rights may call all":  checkRights,
		"a positional insert of thirteen values works":         checkPositionalInsert,
		"a thirteen-name alias on the claim works": func(s *session) {
			id := s.event("a", 1)
			s.equal("claimed", s.column("select id from outbox_claim_batch(array['a']) as e("+thirteen+") where status = 'processing'"),
				[]string{id})
		},
		"on conflict on constraint works against rows of every status": func(s *session) {
			for _, status := range []string{"pending", "processing", "processed", "failed", "discarded"} {
				insert := `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload, status)
					values ('order', gen_random_uuid(), 'a', '` + status + `', '{}', '` + status + `')`
				s.do(insert)
				s.equal("error", s.fault(insert).ConstraintName, "outbox_events_event_type_idempotency_key_key")
				s.equal("inserted again", len(s.column(insert+
					" on conflict on constraint outbox_events_event_type_idempotency_key_key do nothing returning id")), 0)
				s.do(strings.Replace(insert, "'a'", "'b'", 1)) // the key is unique together with the type only
			}
		},
		"the schema is created once: a second run is an error": func(s *session) {
			for _, kind := range []string{"table outbox_events (id int)", "table outbox_dormant_event_types (id int)"} {
				s.equal("sqlstate", s.fault("create "+kind).Code, "42P07")
			}
		},
	})
}

func columnFacts(table string) string {
	return `select attname || ' ' || format_type(atttypid, atttypmod) || case when attnotnull then ' not null' else ' null' end
		|| coalesce(' default ' || pg_get_expr(adbin, adrelid), '')
		from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
		where attrelid = '` + table + `'::regclass and attnum > 0 and not attisdropped order by attnum`
}

func checkConstraints(s *session) {
	row := []string{"'order'", "'a'", "gen_random_uuid()::text", "'pending'", "0"}
	insert := func(at int, value string) string {
		values := slices.Clone(row)
		values[at] = value
		return "insert into outbox_events (aggregate_id, payload, aggregate_type, event_type, idempotency_key, status, attempts)" +
			" values (gen_random_uuid(), '{}', " + strings.Join(values, ", ") + ")"
	}
	for at, column := range []string{"aggregate_type", "event_type", "idempotency_key"} {
		for _, blank := range []string{"''", "' '", "'    '"} {
			err := s.fault(insert(at, blank))
			s.equal(column+" "+blank, err.Code+" "+err.ConstraintName, "23514 outbox_events_"+column+"_nonempty_check")
		}
		for _, odd := range []string{`E'\t'`, `E'\n'`, `E' \t '`, `U&'\00A0'`} {
			s.do(insert(at, odd))
		}
	}
	for value, ok := range map[string]bool{"-1": false, "-2147483648": false, "0": true, "2147483647": true} {
		if ok {
			s.do(insert(4, value))
			continue
		}
		err := s.fault(insert(4, value))
		s.equal("attempts "+value, err.Code+" "+err.ConstraintName, "23514 outbox_events_attempts_check")
	}
	for _, status := range []string{"'pending'", "'processing'", "'processed'", "'failed'", "'discarded'"} {
		s.do(insert(3, status))
	}
	for _, status := range []string{"'Pending'", "''", "'done'", "'pending '"} {
		err := s.fault(insert(3, status))
		s.equal("status "+status, err.Code+" "+err.ConstraintName, "23514 outbox_events_status_check")
	}
	for at, column := range []string{"event_type", "owner", "reason"} {
		values := []string{"'a'", "'b'", "'c'"}
		values[at] = "'  '"
		err := s.fault("insert into outbox_dormant_event_types (event_type, owner, reason) values (" + strings.Join(values, ", ") + ")")
		s.equal("dormant "+column, err.Code+" "+err.ConstraintName, "23514 outbox_dormant_event_types_"+column+"_nonempty_check")
		values[at] = `E'\t'`
		s.do("insert into outbox_dormant_event_types (event_type, owner, reason) values (" + strings.Join(values, ", ") + ")")
		s.do("delete from outbox_dormant_event_types")
	}
}

func checkFunctions(s *session) {
	want := map[string]string{
		"outbox_claim_batch": "p_event_types text[], p_known_event_types text[], p_batch_size integer, " +
			"p_visibility_seconds integer, p_max_attempts integer = ({},25,300,8) -> SETOF outbox_events",
		"outbox_mark_processed": "p_event_id uuid, p_claim_token text, p_metadata jsonb = ({}) -> boolean",
		"outbox_mark_failed": "p_event_id uuid, p_claim_token text, p_error text, p_outcome text, p_base_delay_seconds integer, " +
			"p_max_delay_seconds integer, p_max_attempts integer, p_snooze_seconds integer = (retry,60,3600,8,300) -> text",
		"outbox_release_unprocessed": "p_event_ids uuid[], p_claim_tokens text[], p_delay_seconds integer = (0) -> integer",
	}
	for name, signature := range want {
		facts := s.do(`select pg_get_function_identity_arguments(oid), pg_get_expr(proargdefaults, 0),
			pg_get_function_result(oid), provolatile::text || proisstrict::text || prosecdef::text,
			array_to_string(array(select c from unnest(proconfig) c where c like 'search_path%%'), '|'), proacl::text
			from pg_proc where pronamespace = 'public'::regnamespace and proname = '%s'`, name)[0]
		if len(facts) != 1 {
			s.t.Errorf("%s: got %d functions of the name, want 1", name, len(facts))
			continue
		}
		defaults := s.one("select row(" + show(facts[0][1]) + ")::text")
		s.equal(name, show(facts[0][0])+" = "+defaults+" -> "+show(facts[0][2]), signature)
		s.equal(name+" volatile, not strict, not security definer", show(facts[0][3]), "vfalsefalse")
		s.equal(name+" setting", show(facts[0][4]), "search_path=public, pg_catalog")
	}
}

func checkRights(s *session) {
	role := "contract_" + strings.ReplaceAll(s.one("select gen_random_uuid()"), "-", "")
	s.do(`begin; create role %[1]s; set local role %[1]s`, role)
	s.equal("without rights", s.fault("select * from outbox_claim_batch(array['a'])").Code, "42501")
	s.do("rollback")

	id := s.event("a", 1)
	s.do(`begin; create role %[1]s; grant select, update on outbox_events to %[1]s;
		grant select on outbox_dormant_event_types to %[1]s; set local role %[1]s`, role)
	s.equal("claimed", s.claim(), []string{id})
	token := s.field(id, "metadata->>'claimToken'")
	s.equal("released", s.one("select outbox_release_unprocessed(array['%s']::uuid[], array['%s'])", id, token), 1)
	s.equal("failed", s.one("select outbox_mark_failed('%s', '%s', 'x')", id, token), "missed")
	s.equal("claimed", s.claim(), []string{id})
	token = s.field(id, "metadata->>'claimToken'")
	s.equal("failed", s.one("select outbox_mark_failed('%s', '%s', 'x')", id, token), "failed")
	s.equal("processed", s.one("select outbox_mark_processed('%s', '%s')", id, token), "f")
	s.do("rollback")
}

func checkPositionalInsert(s *session) {
	s.do(`insert into outbox_events values ('00000000-0000-0000-0000-000000000001', '2020-01-01 00:00Z', '2020-01-02 00:00Z',
		null, 'order', '00000000-0000-0000-0000-00000000000a', 'a', 'k', 'pending', 0, '{"n": 1}', null, '{}')`)
	s.equal("row", s.one(`set timezone = 'UTC'; select row(`+thirteen+`)::text from outbox_events`),
		`(00000000-0000-0000-0000-000000000001,"2020-01-01 00:00:00+00","2020-01-02 00:00:00+00",,order,`+
			`00000000-0000-0000-0000-00000000000a,a,k,pending,0,"{""n"": 1}",,{})`)
	got := s.one(`begin; insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		values ('order', gen_random_uuid(), 'a', 'k2', '{}') returning
		(id::text ~ '^.{8}-.{4}-4.{3}-[89ab]', created_at = now(), available_at = now(), processed_at, status, attempts, error, metadata)::text`)
	s.do("commit")
	s.equal("defaults", got, "(t,t,t,,pending,0,,{})")
}
