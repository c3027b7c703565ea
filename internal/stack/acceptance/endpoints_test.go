package acceptance_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	tenants = 2000
	// keyed is how many signing secrets the tenants have between them: each tenant's is that of its number.
	keyed = 20
)

const endpointRoutes = `
version: 1
destinations:
  customers: {endpoints: {by: payload.tenant, allow_http: true, allow_ports: [1-65535], allow_private: [127.0.0.0/8]}}
routes:
  order.placed: {to: customers}
`

// signingKey is the text of a secret; generations differ.
func signingKey(tenant, generation int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d of generation %d", tenant%keyed, generation))
	return "whsec_" + base64.StdEncoding.EncodeToString(sum[:])
}

// tenantsHook is the receiver of all tenants: it knows by which generations of a tenant's own secret a request is signed.
type tenantsHook struct {
	*httptest.Server
	mu     sync.Mutex
	signed map[int]string // of the last request
	times  map[int]int
	status map[int]int
}

func newTenantsHook(t *testing.T) *tenantsHook {
	t.Helper()
	h := &tenantsHook{status: map[int]int{}}
	h.forget()
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var tenant int
		if _, err := fmt.Sscanf(r.URL.Path, "/hooks/%d", &tenant); err != nil {
			t.Errorf("a request to %s: %v", r.URL.Path, err)
		}
		by := generations(tenant, r.Header, body)
		h.mu.Lock()
		h.signed[tenant] = by
		h.times[tenant]++
		status := h.status[tenant]
		h.mu.Unlock()
		if status != 0 {
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h
}

// generations are those of the tenant's secrets that signed a request, by the standard's own words; "?" stands for others.
func generations(tenant int, header http.Header, body []byte) string {
	var by []string
	for signature := range strings.FieldsSeq(header.Get("webhook-signature")) {
		found := "?"
		for generation := range 3 {
			key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(signingKey(tenant, generation), "whsec_"))
			mac := hmac.New(sha256.New, key)
			fmt.Fprintf(mac, "%s.%s.%s", header.Get("webhook-id"), header.Get("webhook-timestamp"), body)
			if hmac.Equal([]byte(signature), []byte("v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))) {
				found = fmt.Sprint(generation)
			}
		}
		by = append(by, found)
	}
	return strings.Join(by, "+")
}

func (h *tenantsHook) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signed, h.times = map[int]string{}, map[int]int{}
}

// want wants each tenant but some to have been called that often, signed by what signed says.
func (h *tenantsHook) want(t *testing.T, times int, signed func(tenant int) string, but ...int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	wrong := 0
	for tenant := range tenants {
		if slices.Contains(but, tenant) {
			continue
		}
		if h.times[tenant] != times || h.signed[tenant] != signed(tenant) {
			if wrong++; wrong < 5 {
				t.Errorf("tenant %d was called %d times, last signed by %q, want %d times by %q",
					tenant, h.times[tenant], h.signed[tenant], times, signed(tenant))
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d tenants got something else", wrong, tenants)
	}
}

// TestTwoThousandEndpoints plays the life of customers' webhooks. A new sandbox stands for the 15 seconds after which a change is seen.
func TestTwoThousandEndpoints(t *testing.T) {
	t.Parallel()
	w, hooks := newWorld(t), newTenantsHook(t)
	w.env = []string{"OUTBOX_ROUTES=" + endpointRoutes}
	for key := range keyed {
		for generation := range 3 {
			w.env = append(w.env, fmt.Sprintf("KEY_%d_%d=%s", key, generation, signingKey(key, generation)))
		}
	}
	f := w.function(30 * time.Second)
	place := func() {
		t.Helper()
		hooks.forget()
		w.exec(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
			select 'order', gen_random_uuid(), 'order.placed', gen_random_uuid(), jsonb_build_object('tenant', n)
			from generate_series(0, $1::int - 1) n order by n`, tenants)
	}
	settings := func(sql string, args ...any) {
		t.Helper()
		w.exec(sql, args...)
		f.Stop()
		f = w.function(30 * time.Second)
	}
	only := func(generation string) func(int) string { return func(int) string { return generation } }

	w.exec(`select outbox_endpoint_add('ep-' || n, $1 || '/hooks/' || n, array['env:KEY_' || n % $2::int || '_0'], n::text)
		from generate_series(0, $3::int - 1) n`, hooks.URL, keyed, tenants)
	place()
	w.dispatch(f)
	hooks.want(t, 1, only("0"))

	// One is down, one is gone, one is disabled by its customer: nobody else notices.
	hooks.status[7], hooks.status[8] = http.StatusServiceUnavailable, http.StatusGone
	settings(`select outbox_endpoint_disable('ep-9', 'on holiday')`)
	place()
	place()
	began := w.dispatch(f)
	hooks.want(t, 2, only("0"), 7, 8, 9)
	if began.Processed != 2*(tenants-3) || hooks.times[7] > 2 || hooks.times[8] > 2 || hooks.times[9] != 0 {
		t.Errorf("%+v, and %d, %d and %d calls of those that don't take events, want two at most", began, hooks.times[7], hooks.times[8], hooks.times[9])
	}
	if got := w.count(`status = 'discarded' and payload ->> 'tenant' = '8'`); got < 1 || got > 2 {
		t.Errorf("%d events of the endpoint that is gone were discarded, want those that it answered 410", got)
	}
	if got := w.count(`status = 'failed' and attempts = 0 and payload ->> 'tenant' in ('7', '8', '9')`); got < 4 {
		t.Errorf("%d events wait uncharged, want all but those answered 410", got)
	}
	hooks.status[7], hooks.status[8] = 0, 0

	// All change to a new secret, half of them have done so, and those that waited come again.
	settings(`select outbox_endpoint_rotate('ep-' || n, 'env:KEY_' || n % $1::int || '_1') from generate_series(0, $2::int - 1) n`, keyed, tenants)
	w.exec(`select outbox_endpoint_rotate('ep-' || n) from generate_series(1, $1::int - 1, 2) n`, tenants)
	w.exec(`select outbox_endpoint_enable('ep-' || n) from generate_series(8, 9) n`)
	place()
	for range 3 { // what is put back while one event probes comes later
		w.ageLeases()
		w.dispatch(f)
	}
	hooks.want(t, 1, func(tenant int) string { return []string{"1+0", "1"}[tenant%2] }, 7, 8, 9)
	if left := w.count(`status not in ('processed', 'discarded')`); left != 0 || hooks.times[7] < 2 || hooks.times[9] < 3 {
		t.Errorf("%d events are left; %d and %d calls of those that waited, want none left", left, hooks.times[7], hooks.times[9])
	}
	if attempts := w.count(`status = 'processed' and attempts > 1`); attempts != 0 {
		t.Errorf("%d events were charged for an outage that was not theirs", attempts)
	}
}
