-- What the dispatcher's own worker uses beside the contract and the claim of lanes: figures about the queue.

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
