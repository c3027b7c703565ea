package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// disabledWait is how long an event of a disabled endpoint waits before it looks again.
const disabledWait = 10 * time.Minute

// Endpoint is a webhook endpoint of a tenant, found while events are delivered.
type Endpoint struct {
	ID, Tenant string
	URL        string
	// SecretRefs are references to the secrets that sign its requests, the newest first; none leaves them unsigned.
	SecretRefs []string
	// EventTypes are those that it takes; nil means all.
	EventTypes []string
	// Disabled tells that its events wait, and Reason why.
	Disabled bool
	Reason   string
}

// EndpointSource knows the endpoints of tenants. It is safe for concurrent use.
type EndpointSource interface {
	// Endpoints returns the endpoints of these tenants, by tenant; one that has none is absent. It remembers them for a while,
	// and under a context that has ended answers from memory or not at all.
	Endpoints(ctx context.Context, tenants []string) (map[string][]Endpoint, error)
	// Disable lets an endpoint's events wait until an operator enables it; an error if it is no longer where it was.
	Disable(ctx context.Context, endpoint Endpoint, reason string) error
}

// EndpointsConfig configures an [Endpoints] handler. All but HTTP is required.
type EndpointsConfig struct {
	// HTTP is what requests to all endpoints share; without URL and Secrets, which each endpoint has.
	HTTP HTTPConfig
	// By says where an event names its tenant: see [CheckEndpointKey].
	By string
	// Source looks endpoints up.
	Source EndpointSource
	// Secret returns the secret behind a reference, in the form of [ParseSecret]. It is called for each request, so it
	// should remember.
	Secret func(ctx context.Context, ref string) (string, error)
}

// Endpoints posts each event to the endpoint of its tenant, over connections that all of them share. Build it with
// [NewEndpoints]; it may be used concurrently.
type Endpoints struct {
	config EndpointsConfig
	key    endpointKey
	http   *HTTP // without a URL of its own
}

var _ outbox.Handler = (*Endpoints)(nil)

// Faults returns every fault of the configuration, but for the source and the resolver of secrets, which come later.
func (c EndpointsConfig) Faults() []*FieldError {
	faults := slices.DeleteFunc(c.HTTP.Faults(), func(f *FieldError) bool { return f.Field == "url" })
	if _, err := parseEndpointKey(c.By); err != nil {
		faults = append(faults, &FieldError{Field: "by", Problem: err.Error()})
	}
	return faults
}

// NewEndpoints builds the handler. Its error joins every fault of the configuration, each a *[FieldError].
func NewEndpoints(config EndpointsConfig) (*Endpoints, error) {
	faults := config.Faults()
	if config.Source == nil || config.Secret == nil {
		faults = append(faults, &FieldError{Field: "endpoints", Problem: "nobody looks them up, takes a source and a resolver of secrets"})
	}
	if len(config.HTTP.Secrets) > 0 || config.HTTP.URL != "" {
		faults = append(faults, &FieldError{Field: "endpoints", Problem: "takes neither a URL nor secrets, which each endpoint has"})
	}
	if err := joinFaults(faults); err != nil {
		return nil, err
	}
	key, _ := parseEndpointKey(config.By) // one of the faults
	shared := config.HTTP
	shared.URL = "https://endpoint.invalid/"
	http, err := NewHTTP(shared)
	if err != nil {
		return nil, err
	}
	return &Endpoints{config: config, key: key, http: http}, nil
}

// Prepare looks up the endpoints of these events at once. It is an [outbox.Route]'s; what goes wrong shows when an event is
// handled.
func (e *Endpoints) Prepare(ctx context.Context, events []outbox.Event) {
	var tenants []string
	for _, event := range events {
		if tenant := e.key.of(event); tenant != "" {
			tenants = append(tenants, tenant)
		}
	}
	if len(tenants) > 0 {
		_, _ = e.config.Source.Endpoints(ctx, tenants)
	}
}

// Part names the endpoint that an event goes to, so that each has a circuit of its own; the tenant where it has none, or none
// is remembered. It is an [outbox.Route]'s.
func (e *Endpoints) Part(event outbox.Event) string {
	tenant := e.key.of(event)
	if tenant == "" {
		return ""
	}
	remembered, cancel := context.WithCancel(context.Background())
	cancel()
	found, err := e.config.Source.Endpoints(remembered, []string{tenant})
	if err != nil {
		return tenant
	}
	if i := slices.IndexFunc(found[tenant], subscribed(event)); i >= 0 {
		return found[tenant][i].ID
	}
	return tenant
}

// Handle posts the event as [HTTP] does, signed with the endpoint's secrets of this moment. An event whose tenant has no
// endpoint, or none that takes its type, is discarded as benign; that of a disabled one waits; a 410 disables the endpoint.
// docs/routes.md has the whole table. The receipt names the endpoint beside what HTTP's holds.
func (e *Endpoints) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	endpoint, err := e.find(ctx, event)
	if err != nil {
		return nil, err
	}
	secrets, err := e.secrets(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	place := e.config.HTTP
	place.URL = endpoint.URL
	if err := place.checkURL(); err != nil { // all else was checked at the start
		return nil, outbox.Discard(fmt.Errorf("endpoint_url_refused: %s %w", endpoint.ID, err))
	}
	there, err := e.http.at(ctx, endpoint.URL, secrets)
	if err != nil {
		return nil, outbox.Discard(fmt.Errorf("endpoint_url_refused: %s %w", endpoint.ID, err))
	}
	receipt, err := there.Handle(ctx, event)
	if err == nil {
		receipt["endpoint"] = endpoint.ID
		return receipt, nil
	}
	if strings.HasPrefix(err.Error(), reasonGone) {
		return nil, e.disable(ctx, endpoint, err)
	}
	return nil, err
}

// find returns the endpoint that an event goes to, or the outcome of an event that goes nowhere.
func (e *Endpoints) find(ctx context.Context, event outbox.Event) (Endpoint, error) {
	tenant := e.key.of(event)
	if tenant == "" {
		return Endpoint{}, outbox.Discard(fmt.Errorf("endpoint_key_missing: the event has no text or number at %s", e.config.By))
	}
	found, err := e.config.Source.Endpoints(ctx, []string{tenant})
	switch {
	case ctx.Err() != nil:
		return Endpoint{}, contextFault(ctx)
	case err != nil:
		return Endpoint{}, fmt.Errorf("endpoint_lookup_failed: %w", err)
	case len(found[tenant]) == 0:
		return Endpoint{}, outbox.Benign(errors.New("endpoint_missing: the tenant has none"))
	}
	i := slices.IndexFunc(found[tenant], subscribed(event))
	if i < 0 {
		return Endpoint{}, outbox.Benign(errors.New("endpoint_not_subscribed: none of the tenant's takes this type"))
	}
	endpoint := found[tenant][i]
	if endpoint.Disabled {
		return Endpoint{}, outbox.Snooze(fmt.Errorf("endpoint_disabled: %s", endpoint.ID), disabledWait)
	}
	return endpoint, nil
}

func subscribed(event outbox.Event) func(Endpoint) bool {
	return func(endpoint Endpoint) bool {
		return endpoint.EventTypes == nil || slices.Contains(endpoint.EventTypes, event.Type)
	}
}

// secrets reads what an endpoint's references name. One that cannot be read holds this endpoint back, and no other.
func (e *Endpoints) secrets(ctx context.Context, endpoint Endpoint) ([]Secret, error) {
	var secrets []Secret
	for i, ref := range endpoint.SecretRefs {
		text, err := e.config.Secret(ctx, ref)
		if ctx.Err() != nil {
			return nil, contextFault(ctx)
		}
		if err != nil {
			return nil, outbox.Snooze(fmt.Errorf("endpoint_secret_unread: %s, secret %d: %w", endpoint.ID, i+1, err), 0)
		}
		secret, err := ParseSecret(text)
		if err != nil {
			return nil, outbox.Snooze(fmt.Errorf("endpoint_secret_invalid: %s, secret %d: %w", endpoint.ID, i+1, err), 0)
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// disable notes that an endpoint is gone. An event is not given up before that is known to all.
func (e *Endpoints) disable(ctx context.Context, endpoint Endpoint, gone error) error {
	if err := e.config.Source.Disable(ctx, endpoint, gone.Error()); err != nil {
		return fmt.Errorf("endpoint_disable_failed: %w", err)
	}
	return outbox.Discard(fmt.Errorf("%s, endpoint %s is disabled", gone.Error(), endpoint.ID))
}
