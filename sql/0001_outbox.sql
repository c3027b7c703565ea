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
  -- attempt, so that this index too leaves the ordinary claim alone. -1: discarded, and nobody was told of that
  -- discard (outbox_discards_untold in 0003); another index would be one more that every settle looks at.
  spent           smallint generated always as
    (case when (status in ('pending', 'failed') and attempts >= 1) or (status = 'processing' and attempts >= 2)
            then least(attempts, 20)
          when status = 'discarded' and metadata ->> 'discardTold' is distinct from coalesce(metadata ->> 'discardedAt', '')
            then -1 end) stored,

  constraint outbox_events_pkey primary key (id),
  constraint outbox_events_event_type_idempotency_key_key unique (event_type, idempotency_key),
  constraint outbox_events_aggregate_type_nonempty_check check (btrim(aggregate_type, ' ') <> ''),
  constraint outbox_events_event_type_nonempty_check check (btrim(event_type, ' ') <> ''),
  constraint outbox_events_idempotency_key_nonempty_check check (btrim(idempotency_key, ' ') <> ''),
  constraint outbox_events_attempts_check check (attempts >= 0),
  constraint outbox_events_status_check
    check (status in ('pending', 'processing', 'processed', 'failed', 'discarded'))
) with (fillfactor = 50);

-- Fresh rows of a type in order of position (wake_at null sorts last), delayed ones by due time. Both indexes hold what a
-- claim must know of a row to pass it, so that rows which have to wait are passed without a look at the table.
create index outbox_events_claim_idx on public.outbox_events (event_type, wake_at, position, aggregate_type, aggregate_id)
  where unfinished;
-- The unfinished rows of an aggregate, oldest first: what blocks a row.
create index outbox_events_aggregate_idx on public.outbox_events (aggregate_type, aggregate_id, position)
  include (event_type, wake_at) where unfinished;
-- Rows whose attempts may be spent, and those of which somebody is to be told.
create index outbox_events_spent_idx on public.outbox_events (event_type, spent, wake_at, position) where spent is not null;

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
-- Oldest is exact while at most 1,000 such rows of a type and number of attempts are due.
create function public.outbox_discard_spent(p_event_types text[], p_max_attempts int) returns void
language plpgsql volatile
set search_path = public, pg_catalog
set enable_bitmapscan = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
set enable_sort = off
set enable_indexscan = on
set enable_indexonlyscan = on
set enable_nestloop = on
set enable_tidscan = on
set enable_hashagg = on
set max_parallel_workers_per_gather = 0
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_ids uuid[];
begin
  -- There nearly always is nothing to do.
  if p_max_attempts > 1 and not exists (
    select from unnest(p_event_types) as t (event_type)
    where (select true from outbox_events x
           where x.spent is not null and x.event_type = t.event_type and x.spent >= p_max_attempts
           order by x.event_type, x.spent, x.wake_at, x.position limit 1)
  ) then
    return;
  end if;
  v_ids := array(
    select c.id
    from unnest(p_event_types) as t (event_type)
    cross join lateral (
      (select d.id
       from generate_series(p_max_attempts, 20) as l (spent)
       cross join lateral (
         -- Those that wait until later are many after the ceiling was lowered, and are not looked at.
         (select x.id
          from outbox_events x
          where x.spent is not null and x.event_type = t.event_type and x.spent = l.spent and x.wake_at <= now()
          order by x.wake_at, x.position
          limit 1000)
         union all
         (select x.id
          from (select f.id, f.available_at
                from outbox_events f
                where f.spent is not null and f.event_type = t.event_type and f.spent = l.spent and f.wake_at is null
                order by f.wake_at, f.position
                limit 10000) x
          where x.available_at <= now())
       ) d)
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
    ) c);
  -- Looked up by an array, never joined: whatever is believed of the table's size, that is one plan.
  update outbox_events e
  set status = 'discarded',
      error = left(coalesce(e.error, '') || ' | max_attempts_exhausted_at_claim', 2000),
      metadata = case when jsonb_typeof(e.metadata) = 'object' then e.metadata else '{}' end
        || jsonb_build_object('discardReason', 'max_attempts', 'discardedAt', now(), 'finalAttempts', e.attempts)
  where e.id = any (array(
    select s.id
    from outbox_events s
    where s.id = any (v_ids)
      and s.status in ('pending', 'failed', 'processing') and s.available_at <= now() and s.attempts >= p_max_attempts
    order by s.position
    limit 100
    for no key update skip locked));
end
$$;

-- Looks past rows that wait: reads the oldest row of every aggregate through an index that tells what is needed of it, for
-- a second at most; p_so_far: what it answered the last time, {} at first. The answer is done or not, and tells then
-- place: where to go on reading fresh rows of these types from p_fresh on. Rows between are blocked, but for those of the
-- aggregates in names, whose oldest row stands at p_fresh or before and waits for no time. Absent when these are too many.
-- sure: up to here all fresh rows are blocked by rows that are due at until or later.
create function public.outbox_look_ahead(p_event_types text[], p_passable text[], p_fresh bigint, p_so_far jsonb) returns jsonb
language plpgsql volatile
set search_path = public, pg_catalog
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set enable_hashagg = off
set enable_indexscan = on
set enable_indexonlyscan = on
set enable_nestloop = on
set max_parallel_workers_per_gather = 0
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  c_rows  constant int := 5000;  -- read at a time: pages of the table that vacuum has not seen must be read too, and may be slow to come
  c_names constant int := 1000;
  c_until constant timestamptz := clock_timestamp() + interval '1 second';
  v_fresh bigint := coalesce((p_so_far ->> 'fresh')::bigint, p_fresh);
  v_last  bigint := (p_so_far ->> 'last')::bigint;
  v_type  text := coalesce(p_so_far ->> 'type', '');
  v_id    uuid := coalesce(p_so_far ->> 'id', '00000000-0000-0000-0000-000000000000');
  v_place bigint := (p_so_far ->> 'place')::bigint;
  v_sure  bigint := (p_so_far ->> 'sure')::bigint;
  v_due   timestamptz := (p_so_far ->> 'until')::timestamptz;
  v_names jsonb := coalesce(p_so_far -> 'names', '[]');
  v_some  record;
begin
  -- Rows that come meanwhile are not passed.
  if v_last is null then
    select coalesce(max(f.position), p_fresh) into v_last
    from unnest(p_event_types) as t (event_type)
    cross join lateral (
      select e.position
      from outbox_events e
      where e.unfinished and e.event_type = t.event_type and e.wake_at is null
      order by e.wake_at desc, e.position desc
      limit 1
    ) f;
  end if;
  loop
    select min(h.position) filter (where not h.waits and h.position > v_fresh) - 1 as place,
      min(h.position) filter (where not h.waits) - 1 as sure, min(h.wake_at) filter (where h.waits) as due,
      jsonb_agg(jsonb_build_array(h.aggregate_type, h.aggregate_id)) filter (where not h.waits and h.position <= v_fresh) as names,
      (array_agg(h.aggregate_type))[count(*)] as type, (array_agg(h.aggregate_id))[count(*)] as id
    into v_some
    from (
      -- Of a row without a due time the index does not tell whether it is free, leased, or due at all.
      select f.aggregate_type, f.aggregate_id, o.position, o.wake_at, coalesce(o.wake_at > now(), false) as waits
      from (
        select distinct on (r.aggregate_type, r.aggregate_id) r.*
        from (
          select e.aggregate_type, e.aggregate_id, e.position, e.wake_at, e.event_type
          from outbox_events e
          where e.unfinished and (e.aggregate_type, e.aggregate_id) > (v_type, v_id)
          order by e.aggregate_type, e.aggregate_id, e.position
          limit c_rows
        ) r
        order by r.aggregate_type, r.aggregate_id, r.position
      ) f
      -- Rows that may be passed count as read: there may be more of them than of all others.
      left join lateral (
        select f.position, f.wake_at where f.event_type <> all (p_passable)
        union all
        (select e.position, e.wake_at
         from outbox_events e
         where f.event_type = any (p_passable) and e.unfinished and e.aggregate_type = f.aggregate_type
           and e.aggregate_id = f.aggregate_id and e.position > f.position and e.event_type <> all (p_passable)
         order by e.position
         limit 1)
      ) o on true
    ) h;
    v_place := least(v_place, v_some.place);
    v_sure := least(v_sure, v_some.sure);
    v_due := least(v_due, v_some.due);
    v_names := v_names || coalesce(v_some.names, '[]');
    if v_some.id is null then
      return jsonb_build_object('done', true, 'place', least(v_place, v_last), 'sure', least(v_sure, v_last), 'until', v_due, 'names', v_names);
    elsif jsonb_array_length(v_names) > c_names then
      return jsonb_build_object('done', true);
    end if;
    v_type := v_some.type;
    v_id := v_some.id;
    if clock_timestamp() > c_until then
      return jsonb_build_object('done', false, 'fresh', v_fresh, 'last', v_last, 'type', v_type, 'id', v_id, 'place', v_place,
        'sure', v_sure, 'until', v_due, 'names', v_names);
    end if;
  end loop;
end
$$;

-- Claims runs of rows for one worker, and leases each row under a fresh token: the one implementation behind every claim.
--
-- Of each free aggregate up to p_lane_depth consecutive rows are taken, its oldest first, up to the first that may not be
-- taken; when the batch is full, every aggregate's oldest row comes before any second one, and so on. Types and known
-- types mean what they mean in outbox_claim_batch; p_held_event_types are never claimed and always block, dormant or not.
--
-- The queue is read in order, from p_cursor on ({}: from its start), each row once: what is blocked costs one probe per
-- aggregate. p_again: from its start, but for rows there that the cursor has seen blocked until a time still to come.
-- Aggregates named in p_aggregate_types and p_aggregate_ids are looked at first, wherever the cursor stands.
-- About 10,000 rows are read at most, and a second is spent to look ahead; payloads of 8 MB as they are stored are taken, or one row.
--
-- p_lost says what to do with a row whose lease ran out. It may be what killed its process:
--   report   leave it, and name its aggregate when it is the oldest there;
--   recover  look at the named aggregates only, and take one row, the oldest free one, such a row or not;
--   take     take it like any other, and read to the end of the queue.
--
-- The last row answered has only a state: "cursor", where to go on; "end", whether everything behind p_cursor was considered;
-- "lost", the aggregates to recover; "leased", those of which rows wait behind one that is leased. Whoever goes on from a cursor must begin again at the start now and then: rows
-- that it passed may have become free.
--
-- Clamps: batch and lane depth 1..1000, the others as in outbox_claim_batch. A caller in repeatable read gets 40001 where
-- another transaction was faster.
create function public.outbox_claim_lanes(
  p_event_types        text[],
  p_known_event_types  text[] default '{}',
  p_held_event_types   text[] default '{}',
  p_batch_size         int    default 25,
  p_lane_depth         int    default 25,
  p_visibility_seconds int    default 300,
  p_max_attempts       int    default 8,
  p_cursor             jsonb  default '{}',
  p_aggregate_types    text[] default '{}',
  p_aggregate_ids      uuid[] default '{}',
  p_lost               text   default 'report',
  p_again              boolean default false
) returns table (
  id uuid, created_at timestamptz, available_at timestamptz, processed_at timestamptz, aggregate_type text,
  aggregate_id uuid, event_type text, idempotency_key text, status text, attempts int, payload jsonb, error text,
  metadata jsonb, "position" bigint, unfinished boolean, wake_at timestamptz, spent smallint, state jsonb
)
language plpgsql volatile
set search_path = public, pg_catalog
-- No plan but nested loops over the indexes below is ever right, whatever the statistics say; so it is planned once.
set enable_bitmapscan = off
set enable_seqscan = off
set enable_sort = off
set enable_indexscan = on
set enable_indexonlyscan = on
set enable_nestloop = on
set enable_tidscan = on
set enable_hashagg = on
set max_parallel_workers_per_gather = 0
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  c_effort   constant int := 10000;      -- rows
  c_exact    constant int := 1000;       -- delayed rows due, up to which the oldest comes first
  c_patience constant int := 2000;       -- rows read without one to take, before any look ahead
  c_eager    constant int := 50;         -- index entries that may be looked through ahead for each such row
  c_entries  constant int := 100;        -- of a page
  c_bytes    constant bigint := 8388608;
  c_trust    constant interval := '30 seconds';  -- how long a cursor's word for blocked rows is taken at most
  c_last     constant bigint := 9223372036854775807;
  c_first    constant bigint := -c_last;
  v_held     text[] := array_remove(coalesce(p_held_event_types, '{}'), null);
  v_types    text[];
  v_passable text[];
  v_ceiling  int := least(greatest(coalesce(p_max_attempts, 8), 1), 20);
  v_lease    interval := make_interval(secs => least(greatest(coalesce(p_visibility_seconds, 300), 300), 3600));
  v_depth    int := case when p_lost = 'recover' then 1 else least(greatest(coalesce(p_lane_depth, 25), 1), 1000) end;
  v_wanted   int := case when p_lost = 'recover' then 1 else least(greatest(coalesce(p_batch_size, 25), 1), 1000) end;
  v_blocked  bigint := coalesce((p_cursor ->> 'blocked')::bigint, c_first);
  v_blocked_until timestamptz := coalesce((p_cursor ->> 'blockedUntil')::timestamptz, 'infinity');
  v_fresh    bigint := coalesce((p_cursor ->> 'fresh')::bigint, c_first);
  v_wake     timestamptz := coalesce((p_cursor ->> 'wakeAt')::timestamptz, '-infinity');
  v_woken    bigint := coalesce((p_cursor ->> 'wakePosition')::bigint, c_first);
  v_window   int;  -- fresh rows read of each type
  v_delayed  int;  -- delayed rows read of each type
  v_many     boolean := coalesce((p_cursor ->> 'many')::boolean, false);  -- over 1,000 delayed rows are due
  v_futile   bigint := coalesce((p_cursor ->> 'futile')::bigint, 0);  -- rows read since one was taken
  v_tried    bigint := coalesce((p_cursor ->> 'tried')::bigint, 0);   -- as many of them, when looking ahead was of no use
  v_effort   int := 0;
  v_end      boolean;
  v_lost     jsonb := '[]';
  v_leased   jsonb := '[]';
  v_pick     record;
  v_lock     record;
  v_left     record;
  v_ahead    jsonb := case when not p_again then nullif(p_cursor -> 'ahead', 'null') end;  -- a look ahead under way
  v_place    bigint;
  v_named    record;  -- aggregates to look at beside those that are seen
  v_taken    int;
begin
  -- A missing filter must never widen into "everything".
  if p_event_types is null or cardinality(p_event_types) = 0 then
    raise exception 'outbox_claim_allowlist_required' using errcode = '22023';
  end if;
  if p_again then
    if now() >= v_blocked_until then
      v_blocked := c_first;
      v_blocked_until := 'infinity';
    end if;
    v_fresh := v_blocked;
    v_wake := '-infinity';
    v_woken := c_first;
  end if;
  v_types := array(select distinct t from unnest(p_event_types) t where btrim(t, ' ') <> '' and t <> all (v_held));
  -- Known or dormant types don't block, unless this caller claims or holds them.
  v_passable := array(
    select t from (select unnest(p_known_event_types) union select d.event_type from outbox_dormant_event_types d) p (t)
    where t is not null and t <> all (v_types) and t <> all (v_held));
  v_window := case when p_lost = 'recover' then 0
                   else greatest(v_wanted / greatest(cardinality(v_types), 1), (p_cursor ->> 'window')::int, 8) end;
  v_delayed := case when p_lost = 'recover' then 0 else least(greatest(2 * v_wanted, 64), c_exact + 1) end;

  perform outbox_discard_spent(v_types, v_ceiling);
  select p_aggregate_types as types, p_aggregate_ids as ids into v_named;
  loop
    -- 1. Pick. Each type is read through its index in claim order; the aggregates found are then probed once each, for
    -- their oldest rows. Laterals with a limit leave the planner no other way.
    with seen as materialized (
      select t.event_type, r.*
      from unnest(v_types) as t (event_type)
      cross join lateral (
        (select e.position, e.wake_at, e.aggregate_type, e.aggregate_id
         from outbox_events e
         where e.unfinished and e.event_type = t.event_type and e.wake_at is null and e.position > v_fresh
         order by e.wake_at, e.position
         limit v_window)
        union all
        (select e.position, e.wake_at, e.aggregate_type, e.aggregate_id
         from outbox_events e
         where e.unfinished and e.event_type = t.event_type and e.wake_at <= now()
           and (e.wake_at, e.position) > (v_wake, v_woken)
         order by e.wake_at, e.position
         limit v_delayed)
      ) r
    ), ends as materialized (
      select s.event_type, count(*) as rows,
             count(*) filter (where s.wake_at is null) >= v_window as fresh_cut,
             max(s.position) filter (where s.wake_at is null) as fresh,
             count(s.wake_at) >= v_delayed as delayed_cut, max(s.wake_at) as wake_at
      from seen s group by s.event_type
    ), horizon as materialized (
      -- Of a type whose window was full, rows past it are not known yet: nobody's are taken past the nearest such place.
      select min(e.fresh) filter (where e.fresh_cut) as fresh, max(e.fresh) as last,
             bool_or(e.delayed_cut) as delayed_cut, max(e.wake_at) as wake_at, coalesce(sum(e.rows), 0) as rows
      from ends e
    ), lanes as materialized (
      select u.aggregate_type, u.aggregate_id, max(u.upto) as upto, least(v_depth, max(u.depth)) as depth
      from (
        select s.aggregate_type, s.aggregate_id, max(s.position) as upto, count(*) as depth
        from seen s, horizon h
        where h.fresh is null or s.position <= h.fresh
        group by s.aggregate_type, s.aggregate_id
        union all
        select a.t, a.i, c_last, v_depth
        from unnest(v_named.types, v_named.ids) as a (t, i)
      ) u
      group by u.aggregate_type, u.aggregate_id
    ), heads as materialized (
      select l.aggregate_type, l.aggregate_id, l.upto, l.depth, o.id, o.place, o.position, o.wake_at, o.available_at,
        o.available_at > now() as waits, o.status = 'processing' as leased, d.due, d.due and (p_lost <> 'report' or o.status <> 'processing') as free
      from lanes l
      cross join lateral (
        select e.id, e.ctid as place, e.position, e.wake_at, e.available_at, e.status, e.attempts, e.event_type
        from outbox_events e
        where e.unfinished and e.aggregate_type = l.aggregate_type and e.aggregate_id = l.aggregate_id and e.position <= l.upto
        order by e.position
        limit 1
      ) f
      cross join lateral (
        select f.* where f.event_type <> all (v_passable)
        union all
        -- Rows that may be passed are passed in the index.
        select r.*
        from (
          select e.position
          from outbox_events e
          where f.event_type = any (v_passable) and e.unfinished and e.aggregate_type = l.aggregate_type
            and e.aggregate_id = l.aggregate_id and e.position > f.position and e.position <= l.upto and e.event_type <> all (v_passable)
          order by e.position
          limit 1
        ) n
        cross join lateral (
          select e.id, e.ctid as place, e.position, e.wake_at, e.available_at, e.status, e.attempts, e.event_type
          from outbox_events e
          where e.unfinished and e.aggregate_type = l.aggregate_type and e.aggregate_id = l.aggregate_id and e.position >= n.position
          order by e.position
          limit 1
        ) r
      ) o
      cross join lateral (
        select o.available_at <= now() and o.attempts < v_ceiling and o.event_type = any (v_types) as due
      ) d
    ), picks as materialized (
      select r.id, r.place, r.position, r.wake_at is not null as delayed
      from (
        select h.id, h.place, h.position, h.wake_at, 1 as rank, h.free
        from heads h
        union all
        -- What stands behind a head matters only where that is free.
        select f.*
        from heads h
        cross join lateral (
          select x.id, x.place, x.position, x.wake_at, 1 + row_number() over run, bool_and(x.free) over run
          from (
            select o.id, o.ctid as place, o.position, o.wake_at, o.available_at <= now() and o.attempts < v_ceiling and o.event_type = any (v_types)
              and (p_lost <> 'report' or o.status <> 'processing') as free
            from outbox_events o
            where h.free and o.unfinished and o.aggregate_type = h.aggregate_type and o.aggregate_id = h.aggregate_id
              and o.position > h.position and o.position <= h.upto and o.event_type <> all (v_passable)
            order by o.position
            limit h.depth - 1
          ) x
          window run as (order by x.position)
        ) f
        where h.depth > 1
      ) r
      where r.free
      order by r.rank, r.position
    )
    select k.*, coalesce(h.fresh is not null or h.delayed_cut, false) as more, h.delayed_cut, h.rows as effort,
           g.lost, g.leased, coalesce(g.blocked, true) as blocked, g.blocked_until,
           coalesce(h.fresh, h.last, v_fresh) as fresh,
           h.wake_at is not null and exists (select from seen s where s.wake_at is not null and s.position > h.fresh) as postponed,
           coalesce(w.wake_at, h.wake_at, v_wake) as wake_at,
           coalesce(w.woken, case when h.wake_at is null then v_woken else c_last end) as woken
    into v_pick
    from horizon h
    left join (select e.wake_at, d.position as woken
               from ends e
               cross join lateral (select s.position from seen s where s.event_type = e.event_type and s.wake_at = e.wake_at
                                   order by s.position desc limit 1) d
               where e.delayed_cut order by e.wake_at, d.position limit 1) w on true
    left join (select
                 jsonb_agg(jsonb_build_array(h.aggregate_type, h.aggregate_id)) filter (where h.due and not h.free) as lost,
                 jsonb_agg(jsonb_build_array(h.aggregate_type, h.aggregate_id)) filter (where h.waits and h.leased) as leased,
                 bool_and(h.waits and not h.leased) as blocked, min(h.available_at) filter (where h.waits and not h.leased) as blocked_until
               from heads h) g on true
    left join (select array_agg(p.id) as ids, array_agg(p.place) as places, array_agg(p.position) as positions,
                 array_agg(p.delayed) as delayed
               from picks p) k on true;
    -- Oldest first needs all delayed rows at once. Of very many those due first come first.
    if v_pick.delayed_cut and v_delayed <= c_exact and not v_many then
      v_many := c_exact < (select count(*) from (
        select
        from unnest(v_types) as t (event_type)
        cross join lateral (
          select from outbox_events e
          where e.unfinished and e.event_type = t.event_type and e.wake_at <= now()
            and (e.wake_at, e.position) > (v_wake, v_woken)
          order by e.wake_at, e.position
          limit c_exact + 1
        ) d
        limit c_exact + 1) due);
      if not v_many then
        v_delayed := c_exact + 1;
        continue;
      end if;
    end if;
    v_effort := v_effort + 1 + v_pick.effort;
    v_lost := v_lost || coalesce(v_pick.lost, '[]');
    v_leased := v_leased || coalesce(v_pick.leased, '[]');

    -- 2. Lock what is still as it was, in its place: a lock rechecks only what its own statement says. No index answers "is true":
    -- that leaves one plan, whatever is believed of the table's size.
    select array_agg(k.ctid) filter (where k.fits) as places,
      array_agg(k.aggregate_type) filter (where k.fits) as types,
      array_agg(k.aggregate_id) filter (where k.fits) as aggregates,
      array_agg(k.position) filter (where k.fits) as positions,
      max(k.n) filter (where k.fits) as last, count(*) >= v_wanted or not coalesce(bool_and(k.fits), true) as filled
    into v_lock
    from (
      select l.*, sum(l.size) over (order by l.n) - l.size < c_bytes as fits
      from (
        select e.ctid, e.aggregate_type, e.aggregate_id, e.position, p.n, pg_column_size(e.payload) as size
        from unnest(v_pick.ids, v_pick.places) with ordinality as p (id, place, n)
        join outbox_events e on e.ctid = p.place and (e.id = p.id) is true
        where e.status in ('pending', 'failed', 'processing') and e.available_at <= now() and e.attempts < v_ceiling
          and (p_lost <> 'report' or e.status <> 'processing')
        order by p.n
        limit v_wanted
        for no key update of e skip locked
      ) l
    ) k;
    select '{}'::text[] as types, '{}'::uuid[] as ids into v_named;
    v_taken := 0;
    if v_lock.places is not null then
      -- 3. Lease the rows that are still their aggregate's oldest, one after the other: what a commit between 1 and 2
      -- changed, or what somebody else has locked, shows as another row in that place, and ends the run. A locked row
      -- stays where it is, so it is found by its place.
      return query
      update outbox_events e
      set status = 'processing',
          attempts = e.attempts + 1,
          available_at = now() + v_lease,
          metadata = case when jsonb_typeof(e.metadata) = 'object' then e.metadata else '{}' end
            || jsonb_build_object('lastClaimedAt', now(), 'claimToken', gen_random_uuid())
      from (
        select u.ctid
        from (
          select k.aggregate_type, k.aggregate_id,
            array_agg(k.position order by k.position) as positions, array_agg(k.ctid order by k.position) as places
          from unnest(v_lock.places, v_lock.types, v_lock.aggregates, v_lock.positions)
            as k (ctid, aggregate_type, aggregate_id, position)
          group by k.aggregate_type, k.aggregate_id
        ) l
        cross join lateral unnest(l.positions, l.places, array(
          select f.position from outbox_events f
          where f.unfinished and f.aggregate_type = l.aggregate_type and f.aggregate_id = l.aggregate_id
            and f.event_type <> all (v_passable)
          order by f.position
          limit cardinality(l.positions))) as u (position, ctid, oldest)
        where u.position = u.oldest
      ) as free
      where e.ctid = free.ctid
      returning e.*, null::jsonb;
      get diagnostics v_taken = row_count;
    end if;

    -- 4. Read on behind what was considered: everything, or, once the batch is full, the picks up to the last locked.
    select min(p.position) filter (where not p.delayed and p.position > v_fresh) as fresh,
           coalesce(bool_or(p.delayed), false) as delayed
    into v_left
    from unnest(v_pick.positions, v_pick.delayed) with ordinality as p (position, delayed, n)
    where v_lock.filled and p.n > v_lock.last;
    if v_blocked = v_fresh and v_pick.blocked then
      v_blocked := v_pick.fresh;
      v_blocked_until := least(v_blocked_until, v_pick.blocked_until, now() + c_trust);
    end if;
    v_fresh := greatest(v_fresh, least(v_pick.fresh, v_left.fresh - 1));
    if not v_left.delayed and not v_pick.postponed then
      v_wake := v_pick.wake_at;
      v_woken := v_pick.woken;
    end if;
    v_end := not (v_pick.more or v_left.fresh is not null or v_left.delayed);
    v_wanted := v_wanted - v_taken;
    v_window := case when v_taken = 0 then least(v_window * 4, case p_lost when 'take' then 4 else 1 end * c_effort)
                     else greatest(2 * v_wanted / greatest(cardinality(v_types), 1), 64) end;
    -- 5. Past many rows that wait, look ahead, as soon as that takes no longer than some times what it took to read them.
    v_futile := case when v_taken = 0 then v_futile + v_pick.effort else 0 end;
    if v_end or v_taken > 0 then
      v_ahead := null;
    elsif v_ahead is null and v_futile >= greatest(c_patience, 4 * v_tried) then
      v_ahead := case when c_entries * pg_relation_size(to_regclass('public.outbox_events_aggregate_idx'))
        / current_setting('block_size')::int <= c_eager * v_futile then '{}' end;
    end if;
    if v_ahead is not null then
      v_ahead := outbox_look_ahead(v_types, v_passable, v_fresh, v_ahead);
      if (v_ahead ->> 'done')::boolean then
        v_place := greatest((v_ahead ->> 'place')::bigint, v_fresh);
        v_tried := case when v_place > greatest(v_fresh, 0) + v_futile then 0 else v_futile end;
        if (v_ahead ->> 'sure')::bigint > v_blocked then
          v_blocked := (v_ahead ->> 'sure')::bigint;
          v_blocked_until := least((v_ahead ->> 'until')::timestamptz, now() + c_trust);
        end if;
        if v_place > v_fresh then
          v_futile := 0;
          v_fresh := v_place;
          v_window := greatest(v_wanted / greatest(cardinality(v_types), 1), 64);
          select array_agg(n.name ->> 0) as types, array_agg((n.name ->> 1)::uuid) as ids into v_named
          from jsonb_array_elements(v_ahead -> 'names') as n (name);
          v_ahead := null;
          continue;
        end if;
        v_ahead := null;
      end if;
    end if;
    exit when v_end or v_wanted <= 0 or v_lock.filled or ((v_effort >= c_effort or v_ahead is not null) and p_lost <> 'take');
  end loop;
  state := jsonb_build_object('end', v_end, 'lost', v_lost, 'leased', v_leased, 'cursor', jsonb_build_object(
    'fresh', v_fresh, 'wakeAt', v_wake, 'wakePosition', v_woken, 'window', case when v_taken = 0 then v_window end,
    'blocked', v_blocked, 'blockedUntil', v_blocked_until, 'many', v_many, 'futile', v_futile, 'tried', v_tried, 'ahead', v_ahead));
  return next; -- the other columns are null
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
begin
  return query
  select t.id, t.created_at, t.available_at, t.processed_at, t.aggregate_type, t.aggregate_id, t.event_type,
    t.idempotency_key, t.status, t.attempts, t.payload, t.error, t.metadata, t.position, t.unfinished, t.wake_at, t.spent
  from outbox_claim_lanes(
    p_event_types, p_known_event_types, '{}', least(greatest(coalesce(p_batch_size, 25), 1), 100), 1,
    p_visibility_seconds, p_max_attempts, p_lost => 'take') t
  where t.state is null;
end
$$;

-- Settles many rows in one call, each fenced by its token, and answers each in its place: processed, failed,
-- snoozed, discarded, released, or missed. The one implementation behind the one-row functions below.
-- The arrays run in parallel. Outcomes: processed (p_details), retry, discard, snooze (p_reasons, and the snooze's
-- delay), snooze_uncharged (the same, but snoozeCount stays), release (its delay). Of several entries for one row the first whose token holds counts; the others miss.
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
set enable_sort = on
set enable_indexscan = on
set enable_indexonlyscan = on
set enable_nestloop = on
set enable_tidscan = on
set enable_hashagg = on
set max_parallel_workers_per_gather = 0
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_base    int := least(greatest(coalesce(p_base_delay_seconds, 60), 5), 3600);
  v_cap     int := least(greatest(v_base, coalesce(p_max_delay_seconds, 3600)), 86400);
  v_ceiling int := least(greatest(coalesce(p_max_attempts, 8), 1), 20);
  v_mine    record;  -- the entries that hold their row, and whose row nobody else has locked
  v_answers text[];
  v_entry   record;
begin
  if p_event_ids is null or p_claim_tokens is null or p_outcomes is null or p_reasons is null or p_details is null
     or p_delay_seconds is null
     or cardinality(p_event_ids) <> any (array[cardinality(p_claim_tokens), cardinality(p_outcomes),
          cardinality(p_reasons), cardinality(p_details), cardinality(p_delay_seconds)]) then
    raise exception 'outbox_settle_invalid_input' using errcode = '22023';
  end if;
  v_answers := array_fill('missed'::text, array[cardinality(p_event_ids)]);

  -- Wait for the rows in one fixed order, so that overlapping calls can't deadlock, then look again.
  if p_wait then
    perform from outbox_events e where e.id = any (p_event_ids) and e.status = 'processing' order by e.id for no key update of e;
  end if;
  -- Looked up one by one, never joined: whatever is believed of the table's size, that is one plan.
  select array_agg(k.n) as n, array_agg(k.ctid) as places, array_agg(k.outcome) as outcomes, array_agg(k.reason) as reasons,
    array_agg(k.detail) as details, array_agg(k.delay) as delays,
    array_agg(case when k.outcome = 'retry' and k.attempts >= v_ceiling then 'discard'
                   when k.outcome = 'snooze_uncharged' then 'snooze' else k.outcome end) as effects
  into v_mine
  from (
    select distinct on (l.id) l.*
    from (
      select s.*, h.*
      from unnest(p_event_ids, p_claim_tokens, p_outcomes, p_reasons, p_details, p_delay_seconds)
        with ordinality as s (id, token, outcome, reason, detail, delay, n)
      cross join lateral (
        select e.ctid, e.attempts
        from outbox_events e
        where e.id = s.id and e.status = 'processing' and e.metadata ->> 'claimToken' = s.token
        for no key update of e skip locked
      ) h
    ) l
    where l.outcome in ('processed', 'retry', 'discard', 'snooze', 'snooze_uncharged', 'release')
    order by l.id, l.n
  ) k;

  -- A locked row stays where it is, so it is found by its place.
  for v_entry in
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
        metadata = case
          when s.effect = 'processed' and s.detail is not null then e.metadata ||
            -- A detail adds to the metadata, but never to the keys by which the rail works.
            case when jsonb_typeof(s.detail) <> 'object' then jsonb_build_object('detail', s.detail)
                 else s.detail - array['claimToken', 'lastClaimedAt', 'snoozeCount', 'lastSnoozedAt',
                   'discardReason', 'discardedAt', 'finalAttempts', 'traceparent'] end
          when s.effect = 'discard' then e.metadata || jsonb_build_object(
            'discardReason', case s.outcome when 'discard' then 'permanent_error' else 'max_attempts' end,
            'discardedAt', now(), 'finalAttempts', e.attempts)
          when s.effect = 'snooze' then e.metadata || jsonb_build_object(
            'snoozeCount', case s.outcome when 'snooze' then 1 else 0 end + case when e.metadata ->> 'snoozeCount' ~ '^ *[-+]?[0-9]{1,15} *$'
              then (e.metadata ->> 'snoozeCount')::bigint else 0 end,
            'lastSnoozedAt', now())
          else e.metadata end
    from unnest(v_mine.n, v_mine.places, v_mine.outcomes, v_mine.effects, v_mine.reasons, v_mine.details, v_mine.delays)
      as s (n, ctid, outcome, effect, reason, detail, delay)
    where e.ctid = s.ctid
    returning s.n, s.effect
  loop
    v_answers[v_entry.n] := case v_entry.effect
      when 'retry' then 'failed' when 'snooze' then 'snoozed' when 'discard' then 'discarded'
      when 'release' then 'released' else v_entry.effect end;
  end loop;

  -- What is held under its token even now was locked by somebody else.
  if not p_wait then
    for v_entry in
      select s.n
      from unnest(p_event_ids, p_claim_tokens, p_outcomes, v_answers) with ordinality as s (id, token, outcome, answer, n)
      cross join lateral (
        select from outbox_events e where e.id = s.id and e.status = 'processing' and e.metadata ->> 'claimToken' = s.token limit 1
      ) e
      where s.answer = 'missed' and s.outcome in ('processed', 'retry', 'discard', 'snooze', 'snooze_uncharged', 'release')
    loop
      v_answers[v_entry.n] := 'locked';
    end loop;
  end if;
  return query select a.n::int, a.answer from unnest(v_answers) with ordinality as a (answer, n);
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
