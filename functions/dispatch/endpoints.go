package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/internal/routes"
	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// endpoints are those of tenants, in the database. One serves all routes that the process ever has.
type endpoints struct {
	lookup postgres.Endpoints
}

var _ handlers.EndpointSource = (*endpoints)(nil)

// Endpoints implements [handlers.EndpointSource].
func (e *endpoints) Endpoints(ctx context.Context, tenants []string) (map[string][]handlers.Endpoint, error) {
	found, err := e.lookup.Of(ctx, tenants)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]handlers.Endpoint, len(found))
	for tenant, some := range found {
		for _, endpoint := range some {
			all[tenant] = append(all[tenant], handlers.Endpoint(endpoint))
		}
	}
	return all, nil
}

// Disable implements [handlers.EndpointSource].
func (e *endpoints) Disable(ctx context.Context, endpoint handlers.Endpoint, reason string) error {
	return e.lookup.Disable(ctx, postgres.Endpoint(endpoint), reason)
}

// endpointSecret returns the secret that an endpoint refers to: env:NAME, or the ARN of one in Secrets Manager. Its errors hold
// nothing of a secret.
func (r *router) endpointSecret(ctx context.Context, reference string) (string, error) {
	name, inEnvironment := strings.CutPrefix(reference, "env:")
	switch {
	case inEnvironment && r.getenv(name) == "":
		return "", fmt.Errorf("the environment variable %s is not set", name)
	case inEnvironment:
		return r.getenv(name), nil
	case !routes.IsSecret(reference):
		return "", errors.New("the reference is neither env:NAME nor arn:…:secretsmanager:…, with #key for one key of it")
	}
	return r.secrets.resolve(ctx, reference)
}
