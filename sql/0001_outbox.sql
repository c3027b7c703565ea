-- Version 1 of the outbox rail: two tables, and the four functions by which any client drives the queue.
-- Names, argument order, defaults, clamps and error texts are a contract with clients in other languages.

create table public.outbox_events (
  id              uuid        not null default gen_random_uuid(),
  created_at      timestamptz not null default now(),
  available_at    timestamptz not null default now(),
  processed_at    timestamptz,
  aggregate_type  text        not null,
  aggregate_id    uuid        not null,
  event_type      text        not null,
  idempotency_key text        not null,
  status          text        not null default 'pending',
  attempts        integer     not null default 0,
  payload         jsonb       not null,
  error           text,
  metadata        jsonb       not null default '{}',

  -- What "older" means. created_at is when the producer's transaction began: all events of one transaction tie,
  -- and a transaction that began first and wrote last would sort first. A sequence taken at insert time puts A
  -- before B whenever A was inserted first by the same transaction, or was committed before B was inserted.
  position        bigint      not null generated always as identity (cache 1),

  -- The claim reads these through partial indexes. They don't follow status, attempts or available_at, so that
  -- claiming a fresh row changes no indexed column and stays a heap-only update.
  unfinished      boolean     not null generated always as (status in ('pending', 'failed', 'processing')) stored,
  -- Due time of a delayed row; null for fresh rows (read in order of position) and for leased ones.
  wake_at         timestamptz generated always as
    (case when status = 'failed' or (status = 'pending' and available_at > created_at) then available_at end) stored,
  -- Attempts of rows that may have spent them, cut at 20, the highest ceiling. Null for a row on its first
  -- attempt, so that this index too leaves the ordinary claim alone.
  spent           smallint generated always as
    (case when (status in ('pending', 'failed') and attempts >= 1) or (status = 'processing' and attempts >= 2)
          then least(attempts, 20) end) stored,

  constraint outbox_events_pkey primary key (id),
  constraint outbox_events_event_type_idempotency_key_key unique (event_type, idempotency_key),
  constraint outbox_events_aggregate_type_nonempty_check check (btrim(aggregate_type, ' ') <> ''),
  constraint outbox_events_event_type_nonempty_check check (btrim(event_type, ' ') <> ''),
  constraint outbox_events_idempotency_key_nonempty_check check (btrim(idempotency_key, ' ') <> ''),
  constraint outbox_events_attempts_check check (attempts >= 0),
  constraint outbox_events_status_check
    check (status in ('pending', 'processing', 'processed', 'failed', 'discarded'))
) with (fillfactor = 50);

-- Fresh rows of a type in order of position (wake_at null sorts last), delayed ones by due time.
create index outbox_events_claim_idx on public.outbox_events (event_type, wake_at, position) where unfinished;
-- The unfinished rows of an aggregate, oldest first: what blocks a row.
create index outbox_events_aggregate_idx on public.outbox_events (aggregate_type, aggregate_id, position) where unfinished;
-- Rows whose attempts may be spent.
create index outbox_events_spent_idx on public.outbox_events (event_type, spent, position) where spent is not null;

-- Event types that nobody consumes, on purpose: they block no caller that doesn't claim them.
create table public.outbox_dormant_event_types (
  event_type text        not null,
  owner      text        not null,
  reason     text        not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),

  constraint outbox_dormant_event_types_pkey primary key (event_type),
  constraint outbox_dormant_event_types_event_type_nonempty_check check (btrim(event_type, ' ') <> ''),
  constraint outbox_dormant_event_types_owner_nonempty_check check (btrim(owner, ' ') <> ''),
  constraint outbox_dormant_event_types_reason_nonempty_check check (btrim(reason, ' ') <> '')
);

-- Discards what a claim finds spent: the 100 oldest due rows of p_event_types at or past the ceiling.
-- Oldest is exact while at most 1,000 such rows of a type are due.
create function public.outbox_discard_spent(p_event_types text[], p_max_attempts int) returns void
language plpgsql volatile
set search_path = public, pg_catalog
set enable_bitmapscan = off
set enable_seqscan = off
set plan_cache_mode = force_custom_plan
set jit = off
as $$
begin
  -- Planning the update costs far more than finding out that there is nothing to do, as there nearly always is.
  if p_max_attempts > 1 and not exists (
    select from unnest(p_event_types) as t (event_type)
    where (select true from outbox_events x
           where x.spent is not null and x.event_type = t.event_type and x.spent >= p_max_attempts
           order by x.event_type, x.spent, x.position limit 1)
  ) then
    return;
  end if;
  update outbox_events e
  set status = 'discarded',
      error = left(coalesce(e.error, '') || ' | max_attempts_exhausted_at_claim', 2000),
      metadata = case when jsonb_typeof(e.metadata) = 'object' then e.metadata else '{}' end
        || jsonb_build_object('discardReason', 'max_attempts', 'discardedAt', now(), 'finalAttempts', e.attempts)
  where e.id in (
    select s.id
    from outbox_events s
    where s.id in (
        select c.id
        from unnest(p_event_types) as t (event_type)
        cross join lateral (
          (select x.id
           from outbox_events x
           where x.spent is not null and x.event_type = t.event_type and x.spent >= p_max_attempts
             and x.available_at <= now()
           order by x.spent, x.position
           limit 1000)
          union all
          -- A ceiling of 1 also ends first attempts whose process died: they stand near the front, among the
          -- rows claimed last.
          (select x.id
           from (select f.id, f.status, f.attempts, f.available_at
                 from outbox_events f
                 where p_max_attempts = 1 and f.unfinished and f.event_type = t.event_type and f.wake_at is null
                 order by f.wake_at, f.position
                 limit 10000) x
           where x.status = 'processing' and x.attempts = 1 and x.available_at <= now())
        ) c
      )
      and s.status in ('pending', 'failed', 'processing') and s.available_at <= now() and s.attempts >= p_max_attempts
    order by s.position
    limit 100
    for no key update skip locked
  );
end
$$;

-- Takes due rows, oldest first, and leases each under a fresh token: the one implementation behind every claim.
-- p_types are claimed; p_passable are the types whose unfinished rows don't block their aggregate. p_kind: 'any',
-- 'ordinary' (leases that ran out are left, and block), 'recovered' (at most one row, whose lease ran out), or 'front'
-- (the same, if one stands among a type's first rows: looking further reads the whole backlog when there is none).
-- Arguments are trusted: callers clamp.
create function public.outbox_take(
  p_types text[], p_passable text[], p_kind text, p_batch_size int, p_visibility_seconds int, p_max_attempts int
) returns setof public.outbox_events
language plpgsql volatile
set search_path = public, pg_catalog
set enable_bitmapscan = off
set enable_seqscan = off
set plan_cache_mode = force_custom_plan
set jit = off
as $$
declare
  v_lost    boolean := p_kind in ('recovered', 'front');
  v_wanted  int := case when v_lost then 1 else p_batch_size end;
  -- With many types each gets a smaller window; what that misses the next round finds.
  v_window  int := case when p_kind = 'recovered' then null
                        else greatest(p_batch_size * 10 / greatest(cardinality(p_types), 10), 8) end;
  v_delayed int := 1000;
  v_ids     uuid[];
  v_cut     boolean;  -- some type had more candidates than its window
  v_horizon bigint;   -- positions past it may have older candidates outside a window
  v_taken   int;
begin
  loop
    -- 1. Pick. Each type is read through its index in claim order, and a row's blockers by one probe each. The
    -- scalar subquery keeps the planner from merging whole aggregates.
    with candidates as materialized (
      select c.id, c.position, c.delayed, t.event_type
      from unnest(p_types) as t (event_type)
      cross join lateral (
        (select e.id, e.position, false as delayed
         from outbox_events e
         where not v_lost and e.unfinished and e.event_type = t.event_type and e.wake_at is null
           and e.available_at <= now() and e.attempts < p_max_attempts
           and (p_kind = 'any' or e.status <> 'processing')
           and (select true from outbox_events o
                where o.unfinished and o.aggregate_type = e.aggregate_type and o.aggregate_id = e.aggregate_id
                  and o.position < e.position and o.event_type <> all (p_passable)
                order by o.position limit 1) is null
         order by e.wake_at, e.position
         limit v_window)
        union all
        (select e.id, e.position, true
         from outbox_events e
         where not v_lost and e.unfinished and e.event_type = t.event_type and e.wake_at <= now()
           and e.available_at <= now() and e.attempts < p_max_attempts
           and (select true from outbox_events o
                where o.unfinished and o.aggregate_type = e.aggregate_type and o.aggregate_id = e.aggregate_id
                  and o.position < e.position and o.event_type <> all (p_passable)
                order by o.position limit 1) is null
         order by e.wake_at, e.position
         limit v_delayed)
        union all
        -- Lost leases: the window limits what is read, and only they are probed.
        (select x.id, x.position, false
         from (select e.id, e.position, e.status, e.available_at, e.attempts, e.aggregate_type, e.aggregate_id
               from outbox_events e
               where v_lost and e.unfinished and e.event_type = t.event_type and e.wake_at is null
               order by e.wake_at, e.position
               limit v_window) x
         where x.status = 'processing' and x.available_at <= now() and x.attempts < p_max_attempts
           and (select true from outbox_events o
                where o.unfinished and o.aggregate_type = x.aggregate_type and o.aggregate_id = x.aggregate_id
                  and o.position < x.position and o.event_type <> all (p_passable)
                order by o.position limit 1) is null)
      ) c
    ), windows as (
      select max(position) filter (where not delayed) as last,
             count(*) filter (where not delayed) >= v_window as fresh_cut,
             count(*) filter (where delayed) >= v_delayed as delayed_cut
      from candidates group by event_type
    )
    select (select array_agg(id) from candidates),
           coalesce((select bool_or(fresh_cut or delayed_cut) from windows), false),
           (select min(last) from windows where fresh_cut)
    into v_ids, v_cut, v_horizon;
    exit when v_ids is null; -- and with = any (null) the planner may choose to read everything

    -- 2. Lock what is still as it was: a lock rechecks only what its own statement says.
    select array_agg(l.id) into v_ids
    from (
      select e.id
      from outbox_events e
      where e.id = any (v_ids) and (v_horizon is null or e.position <= v_horizon)
        and e.status in ('pending', 'failed', 'processing') and e.available_at <= now() and e.attempts < p_max_attempts
        and (p_kind = 'any' or (e.status = 'processing') = v_lost)
      order by e.position
      limit v_wanted
      for no key update skip locked
    ) l;

    -- 3. Lease, after one more look at what blocks: a commit between 1 and 2 may have changed it.
    v_taken := 0;
    if v_ids is not null then
      return query
      update outbox_events e
      set status = 'processing',
          attempts = e.attempts + 1,
          available_at = now() + make_interval(secs => p_visibility_seconds),
          metadata = case when jsonb_typeof(e.metadata) = 'object' then e.metadata else '{}' end
            || jsonb_build_object('lastClaimedAt', now(), 'claimToken', gen_random_uuid()::text)
      where e.id = any (v_ids)
        and (select true from outbox_events o
             where o.unfinished and o.aggregate_type = e.aggregate_type and o.aggregate_id = e.aggregate_id
               and o.position < e.position and o.event_type <> all (p_passable)
             order by o.position limit 1) is null
      returning e.*;
      get diagnostics v_taken = row_count;
    end if;

    v_wanted := v_wanted - v_taken;
    exit when v_wanted <= 0 or not v_cut or v_lost;
    -- Rows locked by others filled a window: look further, so that they don't use up the batch.
    v_window := v_window * 8;
    v_delayed := v_delayed * 8;
  end loop;
end
$$;

create function public.outbox_claim_batch(
  p_event_types        text[],
  p_known_event_types  text[] default '{}',
  p_batch_size         int    default 25,
  p_visibility_seconds int    default 300,
  p_max_attempts       int    default 8
) returns setof public.outbox_events
language plpgsql volatile
set search_path = public, pg_catalog
as $$
declare
  v_types   text[];
  v_ceiling int := least(greatest(coalesce(p_max_attempts, 8), 1), 20);
begin
  -- A missing filter must never widen into "everything".
  if p_event_types is null or cardinality(p_event_types) = 0 then
    raise exception 'outbox_claim_allowlist_required' using errcode = '22023';
  end if;
  v_types := array(select distinct t from unnest(p_event_types) t where btrim(t, ' ') <> '');

  perform outbox_discard_spent(v_types, v_ceiling);
  return query select * from outbox_take(
    v_types,
    -- Known or dormant types don't block, unless this caller claims them.
    array(select t from (select unnest(p_known_event_types) union select event_type from outbox_dormant_event_types) p (t)
          where t is not null and t <> all (v_types)),
    'any',
    least(greatest(coalesce(p_batch_size, 25), 1), 100),
    least(greatest(coalesce(p_visibility_seconds, 300), 300), 3600),
    v_ceiling);
end
$$;

-- Settles many rows in one call, each fenced by its token, and answers each in its place: processed, failed,
-- snoozed, discarded, released, or missed. The one implementation behind the one-row functions below.
-- The arrays run in parallel. Outcomes: processed (p_details), retry, discard, snooze (p_reasons, and the snooze's
-- delay), release (its delay). Of several entries for one row the first whose token holds counts; the others miss.
-- An unknown outcome misses. Errors: outbox_settle_invalid_input (22023) when an array is null or counts differ.
-- A row that somebody else has locked is waited for or, with p_wait false, answered 'locked' and left as it is: one
-- such row must not keep a whole batch of acknowledgements from being written.
create function public.outbox_settle(
  p_event_ids          uuid[],
  p_claim_tokens       text[],
  p_outcomes           text[],
  p_reasons            text[],
  p_details            jsonb[],
  p_delay_seconds      int[],
  p_base_delay_seconds int default 60,
  p_max_delay_seconds  int default 3600,
  p_max_attempts       int default 8,
  p_wait               boolean default true
) returns table (ordinal int, answer text)
language plpgsql volatile
set search_path = public, pg_catalog
set enable_bitmapscan = off
set enable_seqscan = off
set plan_cache_mode = force_custom_plan
set jit = off
as $$
declare
  v_base    int := least(greatest(coalesce(p_base_delay_seconds, 60), 5), 3600);
  v_cap     int := least(greatest(v_base, coalesce(p_max_delay_seconds, 3600)), 86400);
  v_ceiling int := least(greatest(coalesce(p_max_attempts, 8), 1), 20);
  v_free    uuid[];
  v_settled int[];
  v_answers text[];
begin
  if p_event_ids is null or p_claim_tokens is null or p_outcomes is null or p_reasons is null or p_details is null
     or p_delay_seconds is null
     or cardinality(p_event_ids) <> any (array[cardinality(p_claim_tokens), cardinality(p_outcomes),
          cardinality(p_reasons), cardinality(p_details), cardinality(p_delay_seconds)]) then
    raise exception 'outbox_settle_invalid_input' using errcode = '22023';
  end if;

  -- Wait for the rows in one fixed order, so that overlapping calls can't deadlock, then look again.
  if p_wait then
    v_free := array(select e.id from outbox_events e where e.id = any (p_event_ids) and e.status = 'processing'
                    order by e.id for no key update);
  else
    v_free := array(select e.id from outbox_events e where e.id = any (p_event_ids) and e.status = 'processing'
                    order by e.id for no key update skip locked);
  end if;

  with entries as (
    select distinct on (e.id)
      e.id, s.token, s.ordinal, s.outcome, s.reason, s.detail, s.delay,
      case when s.outcome = 'retry' and e.attempts >= v_ceiling then 'discard' else s.outcome end as effect
    from unnest(p_event_ids, p_claim_tokens, p_outcomes, p_reasons, p_details, p_delay_seconds)
      with ordinality as s (id, token, outcome, reason, detail, delay, ordinal)
    join outbox_events e on e.id = s.id and e.status = 'processing' and e.metadata ->> 'claimToken' = s.token
    where s.outcome in ('processed', 'retry', 'discard', 'snooze', 'release') and e.id = any (v_free)
    order by e.id, s.ordinal
  ), settled as (
    update outbox_events e
    set status = case s.effect
          when 'processed' then 'processed' when 'discard' then 'discarded' when 'release' then 'pending' else 'failed' end,
        processed_at = case s.effect when 'processed' then now() else e.processed_at end,
        attempts = case when s.effect in ('snooze', 'release') then greatest(e.attempts - 1, 0) else e.attempts end,
        available_at = case s.effect
          when 'snooze' then now() + make_interval(secs => least(greatest(coalesce(s.delay, 300), 60), 3600))
          when 'release' then now() + make_interval(secs => least(greatest(coalesce(s.delay, 0), 0), 3600))
          when 'retry' then now() + make_interval(secs =>
            least(v_cap, v_base * 2.0 ^ least(greatest(e.attempts - 1, 0), 16))::float8 * (0.5 + random() / 2))
          else e.available_at end,
        error = case s.effect when 'processed' then null when 'release' then e.error else left(s.reason, 2000) end,
        metadata = e.metadata || case s.effect
          -- A detail adds to the metadata, but never to the keys by which the rail works.
          when 'processed' then
            case when s.detail is null then '{}'
                 when jsonb_typeof(s.detail) <> 'object' then jsonb_build_object('detail', s.detail)
                 else s.detail - array['claimToken', 'lastClaimedAt', 'snoozeCount', 'lastSnoozedAt',
                   'discardReason', 'discardedAt', 'finalAttempts', 'traceparent'] end
          when 'discard' then jsonb_build_object(
            'discardReason', case s.outcome when 'discard' then 'permanent_error' else 'max_attempts' end,
            'discardedAt', now(), 'finalAttempts', e.attempts)
          when 'snooze' then jsonb_build_object(
            'snoozeCount', 1 + case when e.metadata ->> 'snoozeCount' ~ '^ *[-+]?[0-9]{1,15} *$'
              then (e.metadata ->> 'snoozeCount')::bigint else 0 end,
            'lastSnoozedAt', now())
          else '{}' end
    from entries s
    where e.id = s.id and e.status = 'processing' and e.metadata ->> 'claimToken' = s.token
    returning s.ordinal, s.effect
  )
  select array_agg(s.ordinal::int), array_agg(case s.effect
    when 'retry' then 'failed' when 'snooze' then 'snoozed' when 'discard' then 'discarded'
    when 'release' then 'released' else s.effect end)
  into v_settled, v_answers
  from settled s;

  return query
  select n.n, coalesce(a.answer, case when e.id is null then 'missed' else 'locked' end)
  from unnest(p_event_ids, p_claim_tokens) with ordinality as s (id, token, n)
  cross join lateral (select s.n::int) as n (n)
  left join unnest(v_settled, v_answers) as a (ordinal, answer) on a.ordinal = n.n
  left join outbox_events e on not p_wait and e.id = s.id and e.status = 'processing'
    and e.metadata ->> 'claimToken' = s.token and e.id <> all (v_free)
  order by n.n;
end
$$;

create function public.outbox_mark_processed(
  p_event_id uuid, p_claim_token text, p_metadata jsonb default '{}'
) returns boolean
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  return (select s.answer = 'processed' from outbox_settle(
    array[p_event_id], array[p_claim_token], array['processed'], array[null]::text[], array[p_metadata],
    array[null]::int[]) s);
end
$$;

create function public.outbox_mark_failed(
  p_event_id           uuid,
  p_claim_token        text,
  p_error              text,
  p_outcome            text default 'retry',
  p_base_delay_seconds int  default 60,
  p_max_delay_seconds  int  default 3600,
  p_max_attempts       int  default 8,
  p_snooze_seconds     int  default 300
) returns text
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  if p_outcome is null or p_outcome not in ('retry', 'discard', 'snooze') then
    raise exception 'outbox_mark_failed_invalid_outcome' using errcode = '22023';
  end if;
  return (select s.answer from outbox_settle(
    array[p_event_id], array[p_claim_token], array[p_outcome], array[p_error], array[null]::jsonb[],
    array[p_snooze_seconds], p_base_delay_seconds, p_max_delay_seconds, p_max_attempts) s);
end
$$;

create function public.outbox_release_unprocessed(
  p_event_ids uuid[], p_claim_tokens text[], p_delay_seconds int default 0
) returns integer
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  if p_event_ids is null or p_claim_tokens is null or cardinality(p_event_ids) <> cardinality(p_claim_tokens) then
    raise exception 'outbox_release_invalid_input' using errcode = '22023';
  end if;
  return (select count(*) filter (where s.answer = 'released')::int from outbox_settle(
    p_event_ids, p_claim_tokens, array_fill('release'::text, array[cardinality(p_event_ids)]),
    array_fill(null::text, array[cardinality(p_event_ids)]), array_fill(null::jsonb, array[cardinality(p_event_ids)]),
    array_fill(p_delay_seconds, array[cardinality(p_event_ids)])) s);
end
$$;
