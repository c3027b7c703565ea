package rail

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
	"github.com/openlup/outbox-dispatch/internal/stack/webhook"
)

// outageRequests is how many requests billing turns away at first.
const outageRequests = 3

// request is one webhook, as the receiver saw it.
type request struct {
	endpoint, id string
	facts
	signed bool // every expected signature verifies, and the timestamp is of now
	status int  // what the receiver answered
}

// facts are what a delivery says about its event, in headers or attributes, and its body.
type facts struct {
	aggregate string // type/id
	eventType string
	key       string
	position  string
	body      string
}

// receiver is the webhooks' other end: it verifies signatures, answers as the scenario wants, and remembers.
type receiver struct {
	*httptest.Server
	secrets map[string][]webhook.Key // by endpoint; one signature each
	journal *journal

	mu       sync.Mutex
	requests []request
	seen     map[string]int // requests by event
	outage   int            // how many requests billing still turns away
}

func newReceiver(journal *journal) *receiver {
	r := &receiver{journal: journal, seen: map[string]int{}, outage: outageRequests, secrets: map[string][]webhook.Key{
		crm: {webhook.NewKey()}, billing: {webhook.NewKey(), webhook.NewKey()}, members: {webhook.NewKey()},
	}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.receive))
	return r
}

// env is what the routes need to know.
func (r *receiver) env() []string {
	return []string{
		"HOOKS=" + r.URL, "CRM_SECRET=" + r.secrets[crm][0].Secret(), "MEMBERS_SECRET=" + r.secrets[members][0].Secret(),
		"BILLING_NEW=" + r.secrets[billing][0].Secret(), "BILLING_OLD=" + r.secrets[billing][1].Secret(),
	}
}

func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	got := request{
		endpoint: strings.TrimPrefix(req.URL.Path, "/"), id: req.Header.Get("webhook-id"),
		facts: facts{
			aggregate: req.Header.Get("outbox-aggregate-type") + "/" + req.Header.Get("outbox-aggregate-id"),
			eventType: req.Header.Get("outbox-event-type"), key: req.Header.Get("outbox-idempotency-key"),
			position: req.Header.Get("outbox-position"), body: unwrap(req.Header, string(body)),
		},
	}
	got.signed = webhook.Signed(req.Header, body, r.secrets[got.endpoint], time.Now())
	r.journal.note(got.id)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[got.id]++
	got.status = r.answer(got)
	r.requests = append(r.requests, got)
	if got.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "60")
	}
	w.WriteHeader(got.status)
}

// unwrap takes the payload out of its envelope, which each endpoint has another of; an envelope that names another event, or
// is none that its endpoint takes, holds nothing.
func unwrap(header http.Header, body string) string {
	switch mediaType := header.Get("content-type"); {
	case mediaType == "application/cloudevents+json; charset=utf-8":
		var event struct{ ID, Type string }
		if json.Unmarshal([]byte(body), &event) != nil || event.ID != header.Get("webhook-id") || event.Type != header.Get("outbox-event-type") {
			return ""
		}
		return cloud.Message{Body: body}.Data()
	case mediaType != "application/json":
		return ""
	case header.Get("ce-specversion") != "" && (header.Get("ce-id") != header.Get("webhook-id") || header.Get("ce-type") != header.Get("outbox-event-type")):
		return ""
	default:
		return body
	}
}

// answer plays the scenario: billing is out at first, members fails now and then and refuses two kinds of payload.
func (r *receiver) answer(got request) int {
	switch {
	case !got.signed:
		return http.StatusUnauthorized
	case got.endpoint == billing && r.outage > 0:
		r.outage--
		return http.StatusServiceUnavailable
	case strings.Contains(got.body, `"gone"`):
		return http.StatusGone
	case strings.Contains(got.body, `"mailbox": 42`):
		return http.StatusUnprocessableEntity
	case got.endpoint == members && r.seen[got.id] == 1 && (strings.HasSuffix(got.key, "3") || strings.HasSuffix(got.key, "7")):
		return http.StatusInternalServerError
	default:
		return http.StatusOK
	}
}

// received returns what came so far.
func (r *receiver) received() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.requests...)
}

// journal notes which events were sent, wherever to, in the order of arrival. It may be written concurrently.
type journal struct {
	mu  sync.Mutex
	ids []string
}

func (j *journal) note(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ids = append(j.ids, id)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.ids...)
}
