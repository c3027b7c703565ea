-- What the dispatcher's own worker uses beside the contract: a claim that knows held types and isolates rows whose
-- process died, and figures about the queue.

-- Claims for one worker: the contract's claim, and
-- p_held_event_types: never claimed, and always blocking, dormant or not;
-- crash isolation: rows whose lease ran out are claimed again one at a time, alone, since one of them may be what
-- killed its process. p_prefer_recovered asks for such a row before any other, if one stands among the oldest
-- candidates; otherwise it comes only when nothing else is claimable.
create function public.outbox_claim_events(
  p_event_types        text[],
  p_known_event_types  text[]  default '{}',
  p_held_event_types   text[]  default '{}',
  p_batch_size         int     default 25,
  p_visibility_seconds int     default 300,
  p_max_attempts       int     default 8,
  p_prefer_recovered   boolean default false
) returns table (
  id uuid, "position" bigint, created_at timestamptz, aggregate_type text, aggregate_id uuid, event_type text,
  idempotency_key text, attempts int, payload jsonb, metadata jsonb, recovered boolean
)
language plpgsql volatile
set search_path = public, pg_catalog
as $$
#variable_conflict use_column
declare
  v_held       text[] := array_remove(coalesce(p_held_event_types, '{}'), null);
  v_types      text[];
  v_passable   text[];
  v_batch      int := least(greatest(coalesce(p_batch_size, 25), 1), 100);
  v_visibility int := least(greatest(coalesce(p_visibility_seconds, 300), 300), 3600);
  v_ceiling    int := least(greatest(coalesce(p_max_attempts, 8), 1), 20);
  v_kind       text;
begin
  if p_event_types is null or cardinality(p_event_types) = 0 then
    raise exception 'outbox_claim_allowlist_required' using errcode = '22023';
  end if;
  v_types := array(select distinct t from unnest(p_event_types) t where btrim(t, ' ') <> '' and t <> all (v_held));
  v_passable := array(
    select t from (select unnest(p_known_event_types) union select event_type from outbox_dormant_event_types) p (t)
    where t is not null and t <> all (v_types) and t <> all (v_held));

  perform outbox_discard_spent(v_types, v_ceiling);
  foreach v_kind in array case when p_prefer_recovered then array['front', 'ordinary', 'recovered']
                               else array['ordinary', 'recovered'] end loop
    return query
    select e.id, e.position, e.created_at, e.aggregate_type, e.aggregate_id, e.event_type, e.idempotency_key,
      e.attempts, e.payload, e.metadata, v_kind <> 'ordinary'
    from outbox_take(v_types, v_passable, v_kind, v_batch, v_visibility, v_ceiling) e;
    exit when found;
  end loop;
end
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
