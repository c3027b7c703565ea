package routes

import (
	"fmt"

	"github.com/openlup/outbox-dispatch/handlers"
)

// http reads the kind http.
func (p *parser) http(kind entry) Destination {
	fields, ok := p.fields(kind.value, kind.path, append([]string{"url", "secrets"}, requestFields()...)...)
	if !ok {
		return Destination{}
	}
	seen := places{}
	config := p.request(kind, fields, seen)
	config.URL = p.required(kind, fields, "url", seen)
	if secrets, found := fields["secrets"]; found {
		config.Secrets = p.list(secrets, "secrets", seen)
	}
	p.reportFields(config.Faults(), seen)
	if blocked := config.BlockedHost(); blocked != nil {
		p.report(seen["url"].line, seen["url"].path, "%s", blocked.Problem)
	}
	return Destination{HTTP: &config, Timeout: p.timeout(fields["timeout"])}
}

// requestFields are the fields of a webhook that say how its requests are made, but not where to and signed with what.
func requestFields() []string {
	return []string{
		"timeout", "headers", "client_certificate", "client_key", "ca", "response_snippet", "allow_http", "allow_ports", "allow_private",
	}
}

// request reads those fields, but for the timeout.
func (p *parser) request(kind entry, fields map[string]entry, seen places) (config handlers.HTTPConfig) {
	if headers, found := fields["headers"]; found {
		config.Headers = p.headers(headers, seen)
	}
	config.ClientCertificate = p.optional(fields, "client_certificate", seen)
	config.ClientKey = p.optional(fields, "client_key", seen)
	_, certificate := fields["client_certificate"]
	_, key := fields["client_key"]
	if missing := map[bool]string{true: "client_key", false: "client_certificate"}[certificate]; certificate != key {
		seen[missing] = text{line: kind.line, path: join(kind.path, missing)}
	}
	config.CA = p.optional(fields, "ca", seen)
	if snippet, found := fields["response_snippet"]; found {
		config.ResponseSnippet = p.whole(snippet.value, snippet.path)
		seen["response_snippet"] = text{line: snippet.value.Line, path: snippet.path}
	}
	p.network(fields, &config)
	return config
}

// network reads what may be reached.
func (p *parser) network(fields map[string]entry, config *handlers.HTTPConfig) {
	if allow, found := fields["allow_http"]; found {
		before := len(p.unknown)
		config.AllowHTTP = p.truth(allow.value, allow.path) || len(p.unknown) > before // unknown is no fault of the URL
	}
	if allow, found := fields["allow_ports"]; found {
		config.AllowPorts = p.ports(allow.value, allow.path)
	}
	if allow, found := fields["allow_private"]; found {
		config.AllowPrivate = p.networks(allow.value, allow.path)
	}
}

// headers returns those entries of a mapping whose values are sound.
func (p *parser) headers(field entry, seen places) map[string]string {
	headers := map[string]string{}
	entries, _ := p.mapping(field.value, field.path)
	for _, e := range entries {
		if t, sound := p.text(e.value, e.path); sound {
			headers[e.key], seen["headers."+e.key] = t.value, t
		}
	}
	return headers
}

// places are where the values stand that a handler's own check looks at, by the field's name in its faults. One that is
// not here has been reported already.
type places map[string]text

// required returns the text of a field that must be there; without it the handler's check says what is missing.
func (p *parser) required(kind entry, fields map[string]entry, name string, seen places) string {
	field, found := fields[name]
	if !found {
		seen[name] = text{line: kind.line, path: join(kind.path, name)}
		return ""
	}
	t, sound := p.text(field.value, field.path)
	if !sound {
		return ""
	}
	seen[name] = t
	return t.value
}

// optional returns the text of a field that may be missing, but not empty.
func (p *parser) optional(fields map[string]entry, name string, seen places) string {
	field, found := fields[name]
	if !found {
		return ""
	}
	t, sound := p.text(field.value, field.path)
	if !sound {
		return ""
	}
	if t.value == "" {
		p.report(t.line, t.path, "is empty; leave it out for none")
		return ""
	}
	seen[name] = t
	return t.value
}

// list returns those texts of a list that are sound.
func (p *parser) list(field entry, name string, seen places) (values []string) {
	for _, t := range p.texts(field.value, field.path) {
		seen[fmt.Sprintf("%s[%d]", name, len(values))] = t
		values = append(values, t.value)
	}
	return values
}

// reportFields reports what a handler's own check found.
func (p *parser) reportFields(faults []*handlers.FieldError, seen places) {
	for _, fault := range faults {
		if place, unreported := seen[fault.Field]; unreported {
			p.report(place.line, place.path, "%s", fault.Problem)
		}
	}
}
