-- Destinations that live in the database: webhook endpoints of customers, to be added and changed while everything runs. And
-- discards of which somebody is to be told.

create table public.outbox_endpoints (
  id          text        not null,
  tenant      text        not null, -- whose it is: the key by which a route finds it
  url         text        not null,
  -- References to signing secrets, never secrets: the newest first, and beside it the one before while receivers change over.
  secret_refs text[]      not null default '{}',
  event_types text[],               -- that it takes; null: all
  created_at  timestamptz not null default now(),
  updated_at  timestamptz not null default now(),
  disabled_at timestamptz,          -- its events wait; null: they are delivered
  reason      text,                 -- why it is disabled

  constraint outbox_endpoints_pkey primary key (id),
  constraint outbox_endpoints_id_check check (id ~ '^[A-Za-z0-9._:-]{1,200}$'),
  constraint outbox_endpoints_tenant_nonempty_check check (btrim(tenant, ' ') <> ''),
  constraint outbox_endpoints_url_check
    check (length(url) <= 2048 and url ~ '^https?://[^[:space:]/?#@\\]+([/?][^[:space:]#]*)?$'),
  constraint outbox_endpoints_secret_refs_check
    check (array_position(secret_refs, null) is null and array_position(secret_refs, '') is null
           and array_to_string(secret_refs, ' ') ~ '^((arn:[^[:space:]]+|env:[A-Za-z_][A-Za-z0-9_]*)( |$)){0,2}$'),
  constraint outbox_endpoints_event_types_check
    check (cardinality(event_types) > 0 and array_position(event_types, null) is null and array_position(event_types, '') is null)
);

create index outbox_endpoints_tenant_idx on public.outbox_endpoints (tenant);

-- Refuses what the table's checks refuse, before a row is made of it: their errors show the whole row, and a secret that was put in
-- the place of a reference, or a token in a URL, would end up in logs. A null is not looked at.
create function public.outbox_endpoint_check(
  p_id text default null, p_tenant text default null, p_url text default null, p_secret_refs text[] default null,
  p_event_types text[] default null
) returns void
language plpgsql stable
set search_path = public, pg_catalog
as $$
begin
  if p_id !~ '^[A-Za-z0-9._:-]{1,200}$' then
    raise exception 'outbox_endpoint_id' using errcode = '22023',
      hint = 'An id takes 1 to 200 letters, digits, dots, _, : and -.';
  end if;
  if btrim(p_tenant, ' ') = '' then
    raise exception 'outbox_endpoint_tenant' using errcode = '22023', hint = 'A tenant must not be blank.';
  end if;
  if length(p_url) > 2048 or p_url !~ '^https?://[^[:space:]/?#@\\]+([/?][^[:space:]#]*)?$' then
    raise exception 'outbox_endpoint_url' using errcode = '22023',
      hint = 'A url takes https://host/path of 2,048 characters at most, without user information, fragment and spaces.';
  end if;
  if cardinality(p_secret_refs) > 2
    or exists (select from unnest(p_secret_refs) r where (r ~ '^(arn:[^[:space:]]+|env:[A-Za-z_][A-Za-z0-9_]*)$') is not true) then
    raise exception 'outbox_endpoint_secret_ref' using errcode = '22023',
      hint = 'A secret is named by reference, never given: arn:… of a secret in Secrets Manager, or env:NAME; two at most.';
  end if;
  if cardinality(p_event_types) = 0 or exists (select from unnest(p_event_types) t where btrim(t, ' ') = '' or t is null) then
    raise exception 'outbox_endpoint_event_types' using errcode = '22023',
      hint = 'Event types take at least one that is not blank, or null for all.';
  end if;
end
$$;

-- One event has one outcome, so it goes to one endpoint: of a tenant at most one takes a type. Whoever changes what a tenant
-- has waits for others who do, so that two of them can't each miss what the other adds.
create function public.outbox_endpoint_check_overlap(p_id text, p_tenant text, p_event_types text[]) returns void
language plpgsql volatile
set search_path = public, pg_catalog
as $$
declare
  v_other text;
begin
  perform pg_advisory_xact_lock(hashtext('outbox_endpoints'), hashtext(p_tenant));
  select o.id into v_other
  from outbox_endpoints o
  where o.tenant = p_tenant and o.id <> p_id
    and (o.event_types is null or p_event_types is null or o.event_types && p_event_types)
  order by o.id
  limit 1;
  if found then
    raise exception 'outbox_endpoint_overlap' using errcode = '22023',
      detail = format('Endpoint %s of the same tenant takes some of these event types already.', v_other),
      hint = 'Give each endpoint event types of its own, or remove the other one first in the same transaction.';
  end if;
end
$$;

-- Adds an endpoint. p_tenant: whose it is; null makes it the only one of a tenant by its own id, for routes whose key names an
-- endpoint. p_secret_refs: newest first, two at most, each arn:… (Secrets Manager, with #key for one key of a JSON secret) or env:NAME;
-- none: its requests are not signed. p_event_types: null for all.
-- Errors (22023), none of which shows what it got: outbox_endpoint_id, outbox_endpoint_tenant, outbox_endpoint_url,
-- outbox_endpoint_secret_ref, outbox_endpoint_event_types, outbox_endpoint_exists, outbox_endpoint_overlap.
create function public.outbox_endpoint_add(
  p_id text, p_url text, p_secret_refs text[] default '{}', p_tenant text default null, p_event_types text[] default null
) returns void
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  perform outbox_endpoint_check(coalesce(p_id, ''), p_tenant, coalesce(p_url, ''), p_secret_refs, p_event_types);
  perform outbox_endpoint_check_overlap(p_id, coalesce(p_tenant, p_id), p_event_types);
  insert into outbox_endpoints (id, tenant, url, secret_refs, event_types)
  values (p_id, coalesce(p_tenant, p_id), p_url, coalesce(p_secret_refs, '{}'), p_event_types)
  on conflict on constraint outbox_endpoints_pkey do nothing;
  if not found then
    raise exception 'outbox_endpoint_exists' using errcode = '22023', detail = format('There is an endpoint %s.', p_id);
  end if;
end
$$;

-- Says where an endpoint is from now on. False when there is none of this id. Error: outbox_endpoint_url (22023).
create function public.outbox_endpoint_move(p_id text, p_url text) returns boolean
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  perform outbox_endpoint_check(p_url => coalesce(p_url, ''));
  update outbox_endpoints set url = p_url, updated_at = now() where id = p_id;
  return found;
end
$$;

-- Says which event types an endpoint takes from now on; null: all. False when there is none of this id.
-- Errors: outbox_endpoint_event_types, outbox_endpoint_overlap (22023).
create function public.outbox_endpoint_subscribe(p_id text, p_event_types text[]) returns boolean
language plpgsql volatile
set search_path = public, pg_catalog
as $$
declare
  v_tenant text;
begin
  perform outbox_endpoint_check(p_event_types => p_event_types);
  select tenant into v_tenant from outbox_endpoints where id = p_id;
  if not found then
    return false;
  end if;
  perform outbox_endpoint_check_overlap(p_id, v_tenant, p_event_types);
  update outbox_endpoints set event_types = p_event_types, updated_at = now() where id = p_id;
  return found;
end
$$;

-- Puts a new secret in front. The one before it stays beside it, so that requests carry a signature of each; a second call
-- without a reference drops it, once the receiver has the new one. To go back, rotate to the old reference. False when there
-- is no endpoint of this id. Error: outbox_endpoint_secret_ref (22023).
create function public.outbox_endpoint_rotate(p_id text, p_secret_ref text default null) returns boolean
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  perform outbox_endpoint_check(p_secret_refs => array_remove(array[p_secret_ref], null));
  update outbox_endpoints
  set secret_refs = case when p_secret_ref is null then secret_refs[1:1]
        else (p_secret_ref || array_remove(secret_refs, p_secret_ref))[1:2] end,
      updated_at = now()
  where id = p_id;
  return found;
end
$$;

-- Lets an endpoint's events wait until it is enabled; see docs/routes.md for how long they may. A second call keeps when and
-- why it was disabled first. p_url: only if it still is there, so that what the old place answered does not disable the new
-- one. False when there is no such endpoint.
create function public.outbox_endpoint_disable(p_id text, p_reason text default null, p_url text default null) returns boolean
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  update outbox_endpoints
  set disabled_at = coalesce(disabled_at, now()),
      reason = case when disabled_at is null then left(p_reason, 2000) else reason end,
      updated_at = now()
  where id = p_id and url = coalesce(p_url, url);
  return found;
end
$$;

-- Enables an endpoint again, and closes its circuits, so that the next pass tries it. Which destinations post to it only the routes
-- know: all circuits whose keys end in /id are closed, also that of another kind's part of this name (a topic's), which is then
-- tried once, early. Circuits that are held stay held. False when there is none of this id.
create function public.outbox_endpoint_enable(p_id text) returns boolean
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  update outbox_endpoints set disabled_at = null, reason = null, updated_at = now() where id = p_id;
  if not found then
    return false;
  end if;
  update outbox_circuits
  set open_until = null, openings = 0, probe_until = null, retried = '{}', updated_at = now()
  where right(key, length(p_id) + 1) = '/' || p_id and mode = 'auto' and (open_until is not null or retried <> '{}');
  return true;
end
$$;

-- Removes an endpoint. Its events are discarded from then on, unless another endpoint of the tenant takes them. False when
-- there is none of this id.
create function public.outbox_endpoint_remove(p_id text) returns boolean
language plpgsql volatile
set search_path = public, pg_catalog
as $$
begin
  delete from outbox_endpoints where id = p_id;
  return found;
end
$$;

-- Discarded rows of these types of which outbox_discards_told has not heard, the oldest of each type first, at most p_limit
-- (1..1,000), whoever discarded them. mark says which discard of the row this is: it may be delivered again, and discarded again.
-- Its cost does not follow the history. Two callers at once get the same rows.
create function public.outbox_discards_untold(p_event_types text[], p_limit int default 100)
returns table (
  id uuid, "position" bigint, created_at timestamptz, aggregate_type text, aggregate_id uuid, event_type text,
  idempotency_key text, attempts int, error text, discard_reason text, discarded_at timestamptz, mark text
)
language sql stable
set search_path = public, pg_catalog
set enable_bitmapscan = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
set enable_sort = off
set max_parallel_workers_per_gather = 0
set jit = off
as $$
  select u.id, u.position, u.created_at, u.aggregate_type, u.aggregate_id, u.event_type, u.idempotency_key, u.attempts, u.error,
    u.metadata ->> 'discardReason', outbox_discarded_at(u.metadata, u.created_at, u.available_at),
    coalesce(u.metadata ->> 'discardedAt', '')
  from (select distinct n.event_type from unnest(p_event_types) as n (event_type)) t
  cross join lateral (
    select e.* from outbox_events e
    where e.spent is not null and e.event_type = t.event_type and e.spent = -1
    order by e.wake_at, e.position -- wake_at is null
    limit least(greatest(coalesce(p_limit, 100), 1), 1000)
  ) u
  limit least(greatest(coalesce(p_limit, 100), 1), 1000)
$$;

-- Notes that somebody was told of these discards, each by its id and mark, and returns of how many. A row that was discarded
-- anew meanwhile, or that somebody else has locked, stays untold.
-- Errors: outbox_discards_told_invalid_input (22023) when an array is null or their counts differ.
create function public.outbox_discards_told(p_ids uuid[], p_marks text[]) returns int
language plpgsql volatile
set search_path = public, pg_catalog
set enable_bitmapscan = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
set plan_cache_mode = force_generic_plan
set max_parallel_workers_per_gather = 0
set jit = off
as $$
declare
  v_told int;
begin
  if p_ids is null or p_marks is null or cardinality(p_ids) <> cardinality(p_marks) then
    raise exception 'outbox_discards_told_invalid_input' using errcode = '22023';
  end if;
  update outbox_events e
  set metadata = case when jsonb_typeof(e.metadata) = 'object' then e.metadata else '{}' end
    || jsonb_build_object('discardTold', coalesce(e.metadata ->> 'discardedAt', ''))
  where e.id = any (array(
    select l.id
    from (select o.id, o.mark from unnest(p_ids, p_marks) as o (id, mark) order by o.id) k
    cross join lateral (
      select e.id
      from outbox_events e
      where e.id = k.id
        and e.spent is not distinct from -1 -- which no index answers: the rows are found by their ids
        and coalesce(e.metadata ->> 'discardedAt', '') = k.mark
      for no key update of e skip locked
    ) l));
  get diagnostics v_told = row_count;
  return v_told;
end
$$;
