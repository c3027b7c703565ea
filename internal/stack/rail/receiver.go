package rail

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

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
	secrets map[string][][]byte // by endpoint; one signature each
	journal *journal

	mu       sync.Mutex
	requests []request
	seen     map[string]int // requests by event
	outage   int            // how many requests billing still turns away
}

func newReceiver(journal *journal) *receiver {
	r := &receiver{journal: journal, seen: map[string]int{}, outage: 3, secrets: map[string][][]byte{
		crm: {randomKey()}, billing: {randomKey(), randomKey()}, members: {randomKey()},
	}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.receive))
	return r
}

// env is what the routes need to know.
func (r *receiver) env() []string {
	return []string{
		"HOOKS=" + r.URL, "CRM_SECRET=" + secret(r.secrets[crm][0]), "MEMBERS_SECRET=" + secret(r.secrets[members][0]),
		"BILLING_NEW=" + secret(r.secrets[billing][0]), "BILLING_OLD=" + secret(r.secrets[billing][1]),
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
			position: req.Header.Get("outbox-position"), body: string(body),
		},
	}
	timestamp := req.Header.Get("webhook-timestamp")
	got.signed = recent(timestamp, time.Now()) &&
		verify(r.secrets[got.endpoint], got.id, timestamp, body, req.Header.Get("webhook-signature"))
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

// recent tells whether a timestamp in Unix seconds is within five minutes of now, as Standard Webhooks asks.
func recent(timestamp string, now time.Time) bool {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	return err == nil && now.Sub(time.Unix(seconds, 0)).Abs() <= 5*time.Minute
}

// received returns what came so far.
func (r *receiver) received() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.requests...)
}

// verify checks a Standard Webhooks signature list on its own: one v1 signature for each key, and no other.
func verify(keys [][]byte, id, timestamp string, body []byte, header string) bool {
	signatures := strings.Fields(header)
	if len(keys) == 0 || len(signatures) != len(keys) {
		return false
	}
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		if !hmac.Equal([]byte(signatures[i]), []byte("v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))) {
			return false
		}
	}
	return true
}

func randomKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

// secret is a key as the routes take it.
func secret(key []byte) string { return "whsec_" + base64.StdEncoding.EncodeToString(key) }

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
