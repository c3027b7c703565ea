package routes

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
)

// http reads the kind http.
func (p *parser) http(kind entry) Destination {
	fields, ok := p.fields(kind.value, kind.path, "url", "secrets", "timeout", "allow_http", "allow_private")
	if !ok {
		return Destination{}
	}
	var config handlers.HTTPConfig
	// The faults of the handler's own check, by field. A field that is not here was reported already.
	places := map[string]text{}
	if url, found := fields["url"]; !found {
		places["url"] = text{line: kind.line, path: join(kind.path, "url")}
	} else if t, sound := p.text(url.value, url.path); sound {
		config.URL, places["url"] = t.value, t
	}
	if secrets, found := fields["secrets"]; found {
		for _, t := range p.texts(secrets.value, secrets.path) {
			places[fmt.Sprintf("secrets[%d]", len(config.Secrets))] = t
			config.Secrets = append(config.Secrets, t.value)
		}
	}
	if allow, found := fields["allow_http"]; found {
		config.AllowHTTP = p.truth(allow.value, allow.path)
	}
	networksSound := true
	if allow, found := fields["allow_private"]; found {
		before := len(p.faults)
		for _, t := range p.texts(allow.value, allow.path) {
			if prefix, sound := p.prefix(t); sound {
				config.AllowPrivate = append(config.AllowPrivate, prefix)
			}
		}
		networksSound = len(p.faults) == before
	}
	for _, problem := range config.Faults() {
		if place, unreported := places[problem.Field]; unreported {
			p.report(place.line, place.path, "%s", problem.Problem)
		}
	}
	// A network that was refused is fault enough: it may be the one that is missing.
	if blocked := config.BlockedHost(); blocked != nil && networksSound {
		p.report(places["url"].line, places["url"].path, "%s", blocked.Problem)
	}
	return Destination{HTTP: &config, Timeout: p.timeout(fields["timeout"], DefaultHTTPTimeout)}
}

func (p *parser) prefix(t text) (netip.Prefix, bool) {
	prefix, err := netip.ParsePrefix(t.value)
	switch {
	case err != nil:
		p.report(t.line, t.path, "is no network, takes one like 10.0.0.0/8 or fd00::/8%s", networkHint(t))
		return prefix, false
	case handlers.CheckPrefix(prefix) == nil:
		return prefix, true
	case t.expanded:
		p.report(t.line, t.path, "has bits set after its length, or is no IPv4 network in its own form")
	default:
		p.report(t.line, t.path, "%v", handlers.CheckPrefix(prefix))
	}
	return prefix, false
}

// networkHint is for an address that lacks its length.
func networkHint(t text) string {
	address, err := netip.ParseAddr(t.value)
	if err != nil || t.expanded || address.Zone() != "" {
		return ""
	}
	address = address.Unmap()
	return fmt.Sprintf("; did you mean %v/%d?", address, address.BitLen())
}

// timeout reads a duration; an entry without value is one that the file doesn't hold.
func (p *parser) timeout(e entry, otherwise time.Duration) time.Duration {
	if e.value == nil {
		return otherwise
	}
	t, ok := p.text(e.value, e.path)
	if !ok {
		return otherwise
	}
	timeout, err := time.ParseDuration(t.value)
	// Only units that a person writes; a digit first leaves signs out.
	if err != nil || t.value[0] < '0' || t.value[0] > '9' || strings.ContainsAny(t.value, "nuµμ") {
		p.report(t.line, t.path, "is no duration, takes one like 10s, 500ms or 1m30s")
	} else if timeout < MinTimeout || timeout > MaxTimeout {
		p.report(t.line, t.path, "is out of range, takes 100ms to 900s")
	}
	return timeout
}
