package live

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/webhook"
)

// hook is the webhooks' receiver. It prints what it gets and answers 200, or the status last posted to /answer.
type hook struct {
	*httptest.Server
	key    webhook.Key
	feed   *feed
	answer atomic.Int64
}

func newHook(feed *feed) *hook {
	h := &hook{key: webhook.NewKey(), feed: feed}
	h.answer.Store(http.StatusOK)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook", h.receive)
	mux.HandleFunc("POST /answer", h.change)
	h.Server = httptest.NewServer(mux)
	return h
}

func (h *hook) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	status, signature := int(h.answer.Load()), "signature valid"
	if !webhook.Signed(r.Header, body, []webhook.Key{h.key}, time.Now()) {
		status, signature = http.StatusUnauthorized, "signature NOT valid"
	}
	w.WriteHeader(status)
	h.feed.say("webhook", "%s  %s/%s  attempt %s  %s  (%s, answered %d)",
		r.Header.Get("outbox-event-type"), r.Header.Get("outbox-aggregate-type"), r.Header.Get("outbox-aggregate-id"),
		r.Header.Get("outbox-attempt"), body, signature, status)
}

// change sets the answer to all further webhooks.
func (h *hook) change(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(io.LimitReader(r.Body, 100))
	if err != nil {
		return
	}
	status, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || status < 200 || status > 599 {
		http.Error(w, "post a status from 200 to 599", http.StatusBadRequest)
		return
	}
	h.answer.Store(int64(status))
	h.feed.say("webhook", "from now on every answer is %d", status)
	_, _ = fmt.Fprintf(w, "from now on every answer is %d\n", status)
}
