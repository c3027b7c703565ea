package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// DefaultEndpointsTTL is how long an answer of [Endpoints] is used when its TTL is zero.
	DefaultEndpointsTTL = 15 * time.Second
	// DefaultEndpointsSize is how many tenants are remembered when Size is zero.
	DefaultEndpointsSize = 10_000
)

// Endpoint is a webhook endpoint of a tenant: a row of outbox_endpoints.
type Endpoint struct {
	ID, Tenant string
	URL        string
	// SecretRefs are references to the secrets that sign its requests, the newest first.
	SecretRefs []string
	// EventTypes are those that it takes; nil means all.
	EventTypes []string
	// Disabled tells that its events wait, and Reason why.
	Disabled bool
	Reason   string
}

// Endpoints looks up the endpoints of tenants, and remembers what it found, and what it did not find, for a while: so long
// may a change take to be seen. It is safe for concurrent use; its fields must not change once it is used.
type Endpoints struct {
	// Pool must not be nil. The caller owns and closes it.
	Pool *pgxpool.Pool
	// TTL is how long an answer is used; zero means [DefaultEndpointsTTL].
	TTL time.Duration
	// Size is how many tenants are remembered at most; zero means [DefaultEndpointsSize].
	Size int

	mu       sync.Mutex
	known    map[string]endpointsFound
	disabled int // how often Disable forgot something: answers from before are not remembered
}

// endpointsFound is what a tenant had.
type endpointsFound struct {
	endpoints []Endpoint
	until     time.Time // wall clock: the other one may stand still in a frozen sandbox
}

const (
	endpointsSQL = `
select id, tenant, url, secret_refs, event_types, disabled_at is not null, coalesce(reason, '')
from public.outbox_endpoints where tenant = any ($1::text[]) order by id`
	disableEndpointSQL = `select public.outbox_endpoint_disable($1::text, $2::text, $3::text)`
)

// Of returns the endpoints of these tenants, by tenant; one that has none is absent. It asks the database once for all
// that it doesn't remember. The caller must not change what it gets.
func (e *Endpoints) Of(ctx context.Context, tenants []string) (map[string][]Endpoint, error) {
	found, missing, before := e.remembered(tenants)
	if len(missing) == 0 {
		return found, nil
	}
	var read []Endpoint
	err := again(ctx, func() error {
		rows, err := e.Pool.Query(ctx, endpointsSQL, missing)
		if err != nil {
			return err
		}
		read, err = pgx.CollectRows(rows, scanEndpoint)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up endpoints: %w", err)
	}
	for _, endpoint := range read {
		found[endpoint.Tenant] = append(found[endpoint.Tenant], endpoint)
	}
	e.remember(missing, found, before)
	return found, nil
}

// Disable lets an endpoint's events wait until an operator enables it. That it moved or was removed meanwhile is an error: what
// its old place answered does not count. Other processes see it disabled when their TTL is over.
func (e *Endpoints) Disable(ctx context.Context, endpoint Endpoint, reason string) error {
	var there bool
	err := again(ctx, func() error {
		return e.Pool.QueryRow(ctx, disableEndpointSQL, endpoint.ID, clean(reason), endpoint.URL).Scan(&there)
	})
	if err == nil && !there {
		err = errors.New("it is no longer there")
	}
	e.mu.Lock()
	delete(e.known, endpoint.Tenant)
	e.disabled++
	e.mu.Unlock()
	if err != nil {
		return fmt.Errorf("disable endpoint %s: %w", endpoint.ID, err)
	}
	return nil
}

// remembered returns what is known of these tenants, those of which nothing is, and the state of that.
func (e *Endpoints) remembered(tenants []string) (found map[string][]Endpoint, missing []string, before int) {
	found = make(map[string][]Endpoint, len(tenants))
	now := time.Now().Round(0)
	asked := make(map[string]bool, len(tenants))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, tenant := range tenants {
		known, remembered := e.known[tenant]
		switch {
		case asked[tenant]:
		case remembered && now.Before(known.until):
			if len(known.endpoints) > 0 {
				found[tenant] = known.endpoints
			}
		case utf8.ValidString(tenant) && !strings.Contains(tenant, "\x00"): // else no row can have it
			missing = append(missing, tenant)
		}
		asked[tenant] = true
	}
	return found, missing, e.disabled
}

// remember keeps what was read, within the size: what is over goes first, then anything.
func (e *Endpoints) remember(tenants []string, found map[string][]Endpoint, before int) {
	ttl, size := e.TTL, e.Size
	if ttl == 0 {
		ttl = DefaultEndpointsTTL
	}
	if size == 0 {
		size = DefaultEndpointsSize
	}
	now := time.Now().Round(0)
	e.mu.Lock()
	defer e.mu.Unlock()
	if before != e.disabled {
		return
	}
	if e.known == nil {
		e.known = map[string]endpointsFound{}
	}
	if len(e.known)+len(tenants) > size {
		for tenant, known := range e.known {
			if !now.Before(known.until) {
				delete(e.known, tenant)
			}
		}
	}
	for tenant := range e.known {
		if len(e.known)+len(tenants) <= size {
			break
		}
		delete(e.known, tenant)
	}
	for _, tenant := range tenants[:min(len(tenants), size)] {
		e.known[tenant] = endpointsFound{endpoints: found[tenant], until: now.Add(ttl)}
	}
}

func scanEndpoint(row pgx.CollectableRow) (Endpoint, error) {
	var e Endpoint
	err := row.Scan(&e.ID, &e.Tenant, &e.URL, &e.SecretRefs, &e.EventTypes, &e.Disabled, &e.Reason)
	return e, err
}
