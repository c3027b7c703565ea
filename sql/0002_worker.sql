-- What the dispatcher's own worker uses beside the contract and the claim of lanes: circuits, figures about the queue, retention.

-- Circuits: which destinations are out, shared by all workers. A worker that finds a destination out says so here, and no
-- worker claims its events until a single one, at a time, has tried again.

create table public.outbox_circuits (
  key             text        not null,
  -- auto: opened and closed by workers; held: an operator keeps its events back; off: it never opens.
  mode            text        not null default 'auto',
  open_until      timestamptz,                    -- null: closed; once it is past, one worker may probe
  openings        integer     not null default 0, -- in a row, without a success
  probe_until     timestamptz,                    -- the lease of the worker that probes
  retried         uuid[]      not null default '{}', -- events retried since the last success, five at most
  last_error      text,
  last_failure_at timestamptz,
  last_success_at timestamptz,                    -- the last that mattered: that closed it or cleared retried
  note            text,                           -- an operator's
  updated_at      timestamptz not null default now(),

  constraint outbox_circuits_pkey primary key (key),
  constraint outbox_circuits_mode_check check (mode in ('auto', 'held', 'off'))
);

-- What operators look at: the state of each circuit that ever had something to tell.
create view public.outbox_circuit_states as
select key,
  case when mode = 'held' then 'held' when mode = 'off' or open_until is null then 'closed'
       when probe_until > now() then 'probing' when open_until > now() then 'open' else 'due' end as state,
  mode, open_until, openings, cardinality(retried) as retries, last_error, last_failure_at, last_success_at, note
from public.outbox_circuits;

-- Tells a worker about its circuits: those that are open, and those with retries to remember; all others are closed. state:
-- closed, open, or probe: this caller alone may claim one event now, within p_probe_seconds. wait_seconds: how long an open
-- one stays so at least; null when only an operator ends it.
create function public.outbox_circuits_load(p_keys text[], p_probe_seconds int default 60)
returns table (key text, state text, wait_seconds float8, openings int, retried text[])
language plpgsql volatile
set search_path = public, pg_catalog
as $$
#variable_conflict use_column
declare
  v_won text[];
begin
  with due as (
    select c.key from outbox_circuits c
    where c.key = any (p_keys) and c.mode = 'auto' and c.open_until <= now() and coalesce(c.probe_until, now()) <= now()
    for update skip locked
  ), won as (
    update outbox_circuits c set probe_until = now() + make_interval(secs => p_probe_seconds), updated_at = now()
    from due where c.key = due.key
    returning c.key
  )
  select array_agg(won.key) into v_won from won;

  return query
  select c.key,
    case when c.key = any (v_won) then 'probe' when c.mode = 'held' or (c.mode = 'auto' and c.open_until is not null) then 'open'
         else 'closed' end,
    case when c.mode = 'auto'
      then greatest(extract(epoch from greatest(c.open_until, coalesce(c.probe_until, c.open_until)) - now()), 0)::float8 end,
    c.openings, c.retried::text[]
  from outbox_circuits c
  where c.key = any (p_keys) and (c.mode = 'held' or (c.mode = 'auto' and (c.open_until is not null or c.retried <> '{}')));
end
$$;

-- Takes what a worker found. p_outcome: success closes the circuit and forgets retries; failure opens it; hold keeps it open
-- until an operator resets it; retries adds p_events, and opens it once five different ones failed without a success between. An open one stays so for
-- 30 s, doubling with each opening in a row up to 5 min, or for p_wait_seconds if that is longer (an hour at most).
-- What it answers is the state then, as outbox_circuits_load does. Reports of several workers on one outage count once.
create function public.outbox_circuit_report(
  p_key text, p_outcome text, p_events uuid[] default '{}', p_error text default null, p_wait_seconds int default 0
) returns table (state text, wait_seconds float8)
language plpgsql volatile
set search_path = public, pg_catalog
as $$
#variable_conflict use_column
declare
  v_circuit outbox_circuits;
begin
  if p_key is null or p_outcome is null or p_outcome not in ('success', 'failure', 'hold', 'retries') then
    raise exception 'outbox_circuit_report_invalid_input' using errcode = '22023';
  end if;
  if p_outcome = 'success' then
    update outbox_circuits c
    set open_until = null, openings = 0, probe_until = null, retried = '{}', last_success_at = now(), updated_at = now()
    where c.key = p_key and (c.open_until is not null or c.retried <> '{}')
    returning * into v_circuit;
  else
    insert into outbox_circuits as c (key) values (p_key) on conflict on constraint outbox_circuits_pkey do nothing;
    select * into v_circuit from outbox_circuits c where c.key = p_key for update;
    if p_outcome = 'hold' and v_circuit.mode = 'auto' then
      v_circuit.mode := 'held';
      v_circuit.note := 'by a worker: ' || left(p_error, 2000);
    end if;
    if p_outcome = 'retries' then
      v_circuit.retried := (array(select distinct e from unnest(v_circuit.retried || coalesce(p_events, '{}')) e
                                  where e is not null))[1:5];
    end if;
    if v_circuit.mode = 'auto' and (p_outcome = 'failure' or cardinality(v_circuit.retried) >= 5) then
      if coalesce(v_circuit.open_until <= now(), true) then
        v_circuit.openings := least(v_circuit.openings + 1, 20);
      end if;
      v_circuit.open_until := greatest(coalesce(v_circuit.open_until, '-infinity'), now() + make_interval(secs => greatest(
        least(30 * 2 ^ (v_circuit.openings - 1), 300), least(coalesce(p_wait_seconds, 0), 3600))));
      v_circuit.probe_until := null;
      v_circuit.retried := '{}';
    end if;
    update outbox_circuits c
    set mode = v_circuit.mode, note = v_circuit.note, open_until = v_circuit.open_until, openings = v_circuit.openings, probe_until = v_circuit.probe_until,
        retried = v_circuit.retried, last_error = left(coalesce(p_error, c.last_error), 2000), last_failure_at = now(),
        updated_at = now()
    where c.key = p_key;
  end if;
  return query
  select case when c.mode = 'held' or (c.mode = 'auto' and c.open_until is not null) then 'open' else 'closed' end,
    case when c.mode = 'auto' then greatest(extract(epoch from c.open_until - now()), 0)::float8 end
  from (select coalesce(v_circuit.mode, 'auto') as mode, v_circuit.open_until) c;
end
$$;

-- For operators: closes a circuit and takes back what was said of it. False when there is no such circuit.
create function public.outbox_circuit_reset(p_key text) returns boolean
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  update outbox_circuits
  set mode = 'auto', open_until = null, openings = 0, probe_until = null, retried = '{}', note = null, updated_at = now()
  where key = p_key;
  return found;
end
$$;

-- For operators: keeps a destination's events back until the circuit is reset.
create function public.outbox_circuit_hold(p_key text, p_note text default null) returns void
language sql volatile
set search_path = public, pg_catalog
as $$
  insert into outbox_circuits (key, mode, note) values (p_key, 'held', p_note)
  on conflict on constraint outbox_circuits_pkey do update set mode = 'held', note = p_note, updated_at = now()
$$;

-- For operators: a circuit that never opens, until it is reset. Each worker still stops for the pass in which it finds
-- the destination out.
create function public.outbox_circuit_disable(p_key text, p_note text default null) returns void
language sql volatile
set search_path = public, pg_catalog
as $$
  insert into outbox_circuits (key, mode, note) values (p_key, 'off', p_note)
  on conflict on constraint outbox_circuits_pkey do update
    set mode = 'off', open_until = null, openings = 0, probe_until = null, retried = '{}', note = p_note, updated_at = now()
$$;

-- Figures about the queue, cheap at any depth: counts stop at 10,000 a type, types at 100.
-- unfinished: rows pending, failed or processing; capped: some count stopped early; oldestDueSeconds: how long the
-- longest-waiting due row has waited (0 when none is due), blocked ones included; discarded rows are not looked at.
create function public.outbox_queue_stats() returns jsonb
language sql volatile
set search_path = public, pg_catalog
set enable_bitmapscan = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set enable_indexscan = on
set enable_indexonlyscan = on
set enable_nestloop = on
set enable_tidscan = on
set enable_hashagg = on
set max_parallel_workers_per_gather = 0
set jit = off
as $$
  -- Only the claim's index has these orders; that of the keys would do for the first column of them, but holds the history.
  with recursive types (event_type) as (
    (select e.event_type from outbox_events e where e.unfinished order by e.event_type, e.wake_at, e.position limit 1)
    union all
    select (select e.event_type from outbox_events e
            where e.unfinished and e.event_type > t.event_type order by e.event_type, e.wake_at, e.position limit 1)
    from types t where t.event_type is not null
  ), figures as materialized (
    select t.event_type,
      (select count(*) from (select 1 from outbox_events e where e.unfinished and e.event_type = t.event_type
                             order by e.event_type, e.wake_at, e.position limit 10001) c) as unfinished,
      greatest(
        (select extract(epoch from now() - e.available_at) from outbox_events e
         where e.unfinished and e.event_type = t.event_type and e.wake_at is null and e.status = 'pending'
           and isfinite(e.available_at)
         order by e.wake_at, e.position limit 1),
        (select extract(epoch from now() - e.wake_at) from outbox_events e
         where e.unfinished and e.event_type = t.event_type and e.wake_at > '-infinity' and e.wake_at <= now()
         order by e.wake_at limit 1), 0) as oldest
    from (select event_type from types where event_type is not null limit 100) t
  )
  select jsonb_build_object(
    'unfinished', coalesce(sum(least(unfinished, 10000)), 0),
    'capped', coalesce(bool_or(unfinished > 10000), false),
    'oldestDueSeconds', round(coalesce(max(oldest), 0))::bigint,
    'byEventType', coalesce(jsonb_object_agg(event_type, jsonb_build_object(
      'unfinished', least(unfinished, 10000), 'oldestDueSeconds', round(oldest)::bigint)), '{}'))
  from figures
$$;

-- Retention: finished rows are deleted some time after their end. No index may hold that time for discarded rows: what it
-- reads would make every claim write the indexes. So processed rows are found by processed_at, and discarded ones, which are
-- few, in order of position. A settle writes one of these indexes (some 7 bytes a row: rows settled together share a time).
create index outbox_events_processed_idx on public.outbox_events (processed_at) where not unfinished and processed_at is not null;
create index outbox_events_discarded_idx on public.outbox_events (position) where not unfinished and processed_at is null;

-- When a row was discarded: what its metadata says or, where that cannot be read (somebody discarded it by hand), the later
-- of created_at and available_at, which is not before its last claim.
create function public.outbox_discarded_at(p_metadata jsonb, p_created_at timestamptz, p_available_at timestamptz)
returns timestamptz
language plpgsql stable
set search_path = public, pg_catalog
as $$
declare
  v_text text := p_metadata ->> 'discardedAt';
begin
  if v_text ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$' then
    begin
      return v_text::timestamptz;
    exception when data_exception then
      null; -- the 31st of February
    end;
  end if;
  return greatest(p_created_at, case when isfinite(p_available_at) then p_available_at end);
end
$$;

-- Deletes processed rows p_processed after their end and discarded rows p_discarded after theirs, the oldest of each first, at
-- most p_limit (1..10,000), and returns how many. Never an unfinished row, nor one that was created less than that age ago or
-- that somebody else has locked. A null age keeps such rows for ever, '0' deletes them at once. With a row goes its idempotency
-- key: the same event can be inserted again.
--
-- Its cost does not follow the history, as it passes over 500 rows at most that are not old enough. Such rows stand in the way
-- when they were discarded, delivered again and discarded again lately: so many of them hold older ones up. A discarded row
-- that still has a processed_at goes when both ages are over.
-- Errors: outbox_prune_invalid_input (22023) when an age is negative.
create function public.outbox_prune(
  p_processed interval default '30 days', p_discarded interval default '90 days', p_limit int default 1000
) returns int
language plpgsql volatile
set search_path = public, pg_catalog
set enable_bitmapscan = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_limit  int := least(greatest(coalesce(p_limit, 1000), 1), 10000);
  v_window int := v_limit + 500;
  v_pruned int;
begin
  if p_processed < interval '0' or p_discarded < interval '0' then
    raise exception 'outbox_prune_invalid_input' using errcode = '22023';
  end if;
  -- A lock rechecks only what its own statement says of the locked row: here, that nobody has changed it. Locked, it stays
  -- where it is, and is found by its place.
  delete from outbox_events e
  where e.ctid = any (array(
    select l.ctid
    from (
      (select f.ctid as place, f.xmin as version, f.status, f.processed_at, f.created_at, f.available_at, f.metadata
       from outbox_events f
       where not f.unfinished and f.processed_at is not null and f.processed_at <= now() - p_processed
       order by f.processed_at
       limit v_window)
      union all
      (select f.ctid, f.xmin, f.status, null, f.created_at, f.available_at, f.metadata
       from outbox_events f
       where not f.unfinished and f.processed_at is null
       order by f.position
       limit v_window)
    ) w
    join outbox_events l on l.ctid = w.place and l.xmin = w.version
    cross join lateral (select now() - case w.status when 'discarded' then p_discarded else p_processed end as old) t
    where w.created_at <= t.old
      and coalesce(case w.status when 'processed' then w.processed_at end,
                   outbox_discarded_at(w.metadata, w.created_at, w.available_at)) <= t.old
    limit v_limit
    for update of l skip locked));
  get diagnostics v_pruned = row_count;
  return v_pruned;
end
$$;
