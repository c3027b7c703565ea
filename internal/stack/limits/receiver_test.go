package limits_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"
)

// receiver is a webhook that remembers what came by id.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	came   map[string]delivery
	refuse int // the next so many deliveries are answered 500
}

type delivery struct {
	times int
	sent  time.Time // webhook-timestamp
	body  []byte    // of the last
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{came: map[string]delivery{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		seconds, err := strconv.ParseInt(request.Header.Get("webhook-timestamp"), 10, 64)
		if err != nil {
			t.Errorf("webhook-timestamp: %v", err)
		}
		id := request.Header.Get("webhook-id")
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.refuse > 0 {
			r.refuse--
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.came[id] = delivery{times: r.came[id].times + 1, sent: time.Unix(seconds, 0), body: body}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// deliveries returns what came so far.
func (r *receiver) deliveries() map[string]delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.came)
}
