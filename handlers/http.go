package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	tlsTimeout  = 5 * time.Second
	idleTimeout = 50 * time.Second // below the 60 s of common load balancers
	pingTimeout = 5 * time.Second

	maxHeaderBytes = 64 << 10
)

// HTTP posts events to one URL. Build it with [NewHTTP]; it may be used concurrently and holds connections that it
// uses again.
type HTTP struct {
	request   *http.Request // what every request is copied from
	transport *http.Transport
	secrets   []Secret
	envelope  Envelope
	snippet   int
	clock     func() time.Time
}

var _ outbox.Handler = (*HTTP)(nil)

// NewHTTP builds the handler. Its error joins every fault of the configuration, each a *[FieldError].
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	if err := joinFaults(config.Faults()); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, config.URL, http.NoBody)
	if err != nil {
		return nil, &FieldError{Field: "url", Problem: "no request can be made for it"}
	}
	request.Header.Set("User-Agent", config.UserAgent)
	config.setHeaders(request.Header)
	// The webhook-id makes a repetition harmless, and this tells the transport so: a kept connection that turns
	// out dead, as after a sandbox was frozen, is replaced without an attempt lost. Nothing is sent for it.
	request.Header["Idempotency-Key"] = nil
	secrets := make([]Secret, len(config.Secrets))
	for i, text := range config.Secrets {
		if secrets[i], err = ParseSecret(text); err != nil {
			return nil, fmt.Errorf("secrets[%d]: %w", i, err)
		}
	}
	return &HTTP{
		request: request, transport: newTransport(config), secrets: secrets,
		envelope: config.Envelope, snippet: config.ResponseSnippet, clock: config.Clock,
	}, nil
}

// at returns a handler for another URL, which was checked, with other secrets: it shares everything else.
func (h *HTTP) at(ctx context.Context, url string, secrets []Secret) (*HTTP, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return nil, errors.New("no request can be made for it") // the error quotes the URL
	}
	request.Header = h.request.Header
	other := *h
	other.request, other.secrets = request, secrets
	return &other, nil
}

// newTransport has no proxy, since the guard would then see only the proxy's address.
func newTransport(config HTTPConfig) *http.Transport {
	return &http.Transport{
		DialContext:            newGuard(config).dial,
		TLSClientConfig:        config.tlsConfig(),
		TLSHandshakeTimeout:    tlsTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           config.MaxIdleConns,
		MaxIdleConnsPerHost:    config.MaxIdleConns,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		// A dead HTTP/2 connection would otherwise fail every event until TCP gives it up.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingTimeout, PingTimeout: pingTimeout},
	}
}

// Handle posts the event in its envelope. A 2xx answer means delivered, whatever its body holds or fails to; the receipt
// is then {"http": {"status": 200, "durationMs": 12}}, with a "body" if the configuration keeps one. All else is an error
// by the table in docs/routes.md; once ctx has ended the error wraps ctx.Err. Without a deadline in ctx it is
// [outbox.DefaultHandlerTimeout].
func (h *HTTP) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	started := h.clock()
	// The transport alone, without http.Client: it follows no redirects.
	response, err := h.transport.RoundTrip(h.newRequest(ctx, event, started))
	if err != nil {
		if ctx.Err() != nil {
			return nil, contextFault(ctx)
		}
		return nil, transportFault(err)
	}
	defer response.Body.Close() //nolint:errcheck // the outcome is known by then
	answered := h.clock()
	snippet := ""
	if response.StatusCode != http.StatusSwitchingProtocols { // there the body is the connection, and may never end
		snippet = drain(response.Body, h.snippet, cancel)
	}
	if err := statusFault(response, snippet, answered); err != nil {
		return nil, err
	}
	receipt := map[string]any{"status": response.StatusCode, "durationMs": answered.Sub(started).Milliseconds()}
	if snippet != "" {
		receipt["body"] = snippet
	}
	return outbox.Receipt{"http": receipt}, nil
}

// errHandlerLate ends a delivery to which nobody gave a time.
var errHandlerLate = errors.New("the time for one event is over")

func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, limited := ctx.Deadline(); limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, outbox.DefaultHandlerTimeout, errHandlerLate)
}

func (h *HTTP) newRequest(ctx context.Context, event outbox.Event, now time.Time) *http.Request {
	request := h.request.Clone(ctx)
	body, contentType, headers := h.envelope.encode(event)
	if len(body) > 0 {
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		request.Body = io.NopCloser(bytes.NewReader(body))
		request.ContentLength = int64(len(body))
	}
	request.Header.Set("Content-Type", contentType)
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	// The dot separates what is signed, so an id must not hold one. UUIDs don't.
	id := strings.ReplaceAll(encodeHeader(event.ID, ""), ".", "%2E")
	request.Header.Set("Webhook-Id", id)
	request.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	if len(h.secrets) > 0 {
		request.Header.Set("Webhook-Signature", Sign(id, now, body, h.secrets...))
	}
	for name, value := range map[string]string{
		"Outbox-Event-Type":      event.Type,
		"Outbox-Aggregate-Type":  event.AggregateType,
		"Outbox-Aggregate-Id":    event.AggregateID,
		"Outbox-Idempotency-Key": event.IdempotencyKey,
		"Outbox-Position":        strconv.FormatInt(event.Position, 10),
		"Outbox-Attempt":         strconv.Itoa(event.Attempts),
		"Outbox-Created-At":      event.CreatedAt.UTC().Format(time.RFC3339Nano),
	} {
		if value != "" {
			request.Header.Set(name, encodeHeader(value, ""))
		}
	}
	return request
}

// encodeHeader percent-encodes every byte of value but visible ASCII, the percent sign included, so that decoding
// gives the value back. Bytes in keep stay.
func encodeHeader(value, keep string) string {
	var b strings.Builder
	for _, c := range []byte(value) {
		if c > ' ' && c < 0x7f && c != '%' || strings.IndexByte(keep, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}
