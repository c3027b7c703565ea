-- What the dispatcher's own worker uses beside the contract and the claim of lanes: circuits, and figures about the queue.

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

-- Takes what a worker found. p_outcome: success closes the circuit and forgets retries; failure opens it; retries adds
-- p_events, and opens it once five different ones failed without a success between. An open one stays so for
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
  if p_key is null or p_outcome is null or p_outcome not in ('success', 'failure', 'retries') then
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
    set open_until = v_circuit.open_until, openings = v_circuit.openings, probe_until = v_circuit.probe_until,
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
set jit = off
as $$
  with recursive types (event_type) as (
    (select e.event_type from outbox_events e where e.unfinished order by e.event_type limit 1)
    union all
    select (select e.event_type from outbox_events e
            where e.unfinished and e.event_type > t.event_type order by e.event_type limit 1)
    from types t where t.event_type is not null
  ), figures as (
    select t.event_type,
      (select count(*) from (select 1 from outbox_events e where e.unfinished and e.event_type = t.event_type
                             order by e.event_type limit 10001) c) as unfinished,
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
