package connections_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"

	"github.com/openlup/outbox-dispatch/internal/stack/port"
)

// proxy is Toxiproxy between the function and PostgreSQL.
type proxy struct {
	*testing.T
	*toxiproxy.Proxy
	generation *atomic.Int64 // of the connections
}

// newProxy starts one before the server of a URL, and returns the URL through it.
func newProxy(t *testing.T, database string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	free, err := port.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{T: t, Proxy: toxiproxy.NewProxy(server, "postgres", port.Address(free), u.Host), generation: new(atomic.Int64)}
	generations.Store(p.Listen, p.generation)
	p.accept()
	t.Cleanup(p.Stop)
	for _, direction := range []string{"upstream", "downstream"} {
		p.add(fmt.Sprintf(`{"name": "strand-%s", "type": "strand", "stream": "%[1]s", "attributes": {"proxy": %q}}`, direction, p.Listen))
	}
	u.Host = p.Listen
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return p, u.String()
}

func (p *proxy) add(toxic string) {
	p.Helper()
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		p.Errorf("add toxic %s: %v", toxic, err)
	}
}

// accept takes connections again after Stop, which closes all and refuses new ones.
func (p *proxy) accept() {
	p.Helper()
	if err := p.Start(); err != nil {
		p.Errorf("start the proxy: %v", err)
	}
}

// cut closes every connection; new ones are taken.
func (p *proxy) cut() {
	p.Helper()
	p.Stop()
	p.accept()
}

// silence lets nothing through any more, with no FIN: neither on open connections nor on new ones.
func (p *proxy) silence() {
	p.Helper()
	p.add(`{"name": "silence-upstream", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`)
	p.add(`{"name": "silence-downstream", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`)
}

// strand lets nothing through any more on the connections that are open now, with no FIN. New ones are well.
func (p *proxy) strand() { p.generation.Add(1) }

// speak ends the silence.
func (p *proxy) speak() {
	p.Helper()
	for _, direction := range []string{"upstream", "downstream"} {
		if err := p.Toxics.RemoveToxic(p.Context(), "silence-"+direction); err != nil {
			p.Errorf("end the silence: %v", err)
		}
	}
}

// generations are the counters of all proxies, by their address: Toxiproxy makes its toxics itself, out of JSON, and one that
// is changed while it works is a data race.
var generations sync.Map

// strandToxic swallows what comes on connections that are older than its proxy's generation.
type strandToxic struct {
	Proxy string `json:"proxy"`
}

type strandState struct {
	generation *atomic.Int64
	born       int64
}

func (s *strandToxic) NewState() any {
	counter, _ := generations.Load(s.Proxy)
	generation := counter.(*atomic.Int64)
	return &strandState{generation: generation, born: generation.Load()}
}

func (*strandToxic) Pipe(stub *toxics.ToxicStub) {
	state := stub.State.(*strandState)
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			if state.generation.Load() == state.born {
				stub.Output <- chunk
			}
		}
	}
}
