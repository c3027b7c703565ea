package routes

import (
	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// endpoints reads the kind endpoints: webhooks whose URLs and secrets are in the database.
func (p *parser) endpoints(kind entry) Destination {
	fields, ok := p.fields(kind.value, kind.path, append([]string{"by"}, requestFields()...)...)
	if !ok {
		return Destination{}
	}
	seen := places{}
	config := handlers.EndpointsConfig{HTTP: p.request(kind, fields, seen), By: p.required(kind, fields, "by", seen)}
	p.reportFields(config.Faults(), seen)
	return Destination{Endpoints: &config, Timeout: p.timeout(fields["timeout"])}
}

// UsesEndpoints tells whether some destination needs [Options].Endpoints and Secret.
func (f File) UsesEndpoints() bool {
	for _, destination := range f.Destinations {
		if destination.Endpoints != nil {
			return true
		}
	}
	return false
}

// forEndpoints builds the handler of the kind endpoints.
func (o Options) forEndpoints(config handlers.EndpointsConfig, envelope handlers.Envelope) (outbox.Handler, error) {
	config.HTTP = o.overHTTP(config.HTTP, envelope)
	config.Source, config.Secret = o.Endpoints, o.Secret
	return handlers.NewEndpoints(config)
}

// overHTTP fills in what is not among a webhook's own fields.
func (o Options) overHTTP(config handlers.HTTPConfig, envelope handlers.Envelope) handlers.HTTPConfig {
	config.Envelope = envelope
	config.MaxIdleConns = o.Concurrency
	config.UserAgent = o.UserAgent
	config.RootCAs = o.RootCAs
	return config
}
