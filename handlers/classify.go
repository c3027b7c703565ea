package handlers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// Bounds of a Retry-After header.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 24 * time.Hour
)

// reasonGone begins the reason of a receiver that is gone for good.
const reasonGone = "http_410"

// httpFault is one row of the table from what happened to what becomes of the event. A row is about statuses (from
// low to high) or about errors of the transport (matches).
type httpFault struct {
	reason    string // start of the stored reason, stable
	meaning   string
	outcome   outbox.Outcome
	low, high int
	matches   func(error) bool
	disables  bool // holds the destination until an operator resets its circuit
}

// statusFaults is the half of the table for answers; the first row that fits decides.
func statusFaults() []httpFault {
	return []httpFault{
		{reason: "http_2xx", meaning: "accepted; the body is ignored", outcome: outbox.Processed, low: 200, high: 299},
		{reason: "http_3xx", meaning: "redirects are never followed", outcome: outbox.Retry, low: 300, high: 399},
		{reason: "http_408", meaning: "the receiver is overloaded", outcome: outbox.Snoozed, low: 408, high: 408},
		{
			reason: reasonGone, meaning: "the receiver is gone for good; the destination is held until an operator resets it",
			outcome: outbox.Discarded, low: 410, high: 410, disables: true,
		},
		{reason: "http_425", meaning: "the receiver asks to wait", outcome: outbox.Snoozed, low: 425, high: 425},
		{reason: "http_429", meaning: "the receiver asks to slow down", outcome: outbox.Snoozed, low: 429, high: 429},
		{reason: "http_4xx", meaning: "any other 4xx", outcome: outbox.Retry, low: 400, high: 499},
		{reason: "http_502", meaning: "the receiver is down", outcome: outbox.Snoozed, low: 502, high: 502},
		{reason: "http_503", meaning: "the receiver is down", outcome: outbox.Snoozed, low: 503, high: 503},
		{reason: "http_504", meaning: "the receiver is down", outcome: outbox.Snoozed, low: 504, high: 504},
		{reason: "http_5xx", meaning: "any other 5xx", outcome: outbox.Retry, low: 500, high: 599},
		{reason: "http_other", meaning: "a status that HTTP doesn't define", outcome: outbox.Retry, low: 0, high: 999},
	}
}

// transportFaults is the half for errors; the first row that fits decides, and the last fits every error.
func transportFaults() []httpFault {
	return []httpFault{
		{
			reason: "address_blocked", meaning: "the address is private or special, and not allowed",
			outcome: outbox.Discarded, matches: isType[*blockedError],
		},
		{
			reason: "port_blocked", meaning: "the port is not allowed",
			outcome: outbox.Discarded, matches: isAny(errPortBlocked),
		},
		{
			reason: "address_partly_blocked", meaning: "some addresses of the name are blocked, the others failed",
			outcome: outbox.Retry, matches: isAny(errPartlyBlocked),
		},
		{reason: "dns_not_found", meaning: "the name has no address", outcome: outbox.Retry, matches: isNotFound},
		{
			reason: "dns_failed", meaning: "the name could not be looked up", outcome: outbox.Retry,
			matches: isType[*net.DNSError],
		},
		{
			reason: "connection_refused", meaning: "nothing listens there", outcome: outbox.Retry,
			matches: isAny(syscall.ECONNREFUSED),
		},
		{
			reason: "network_unreachable", meaning: "no way to the address", outcome: outbox.Retry,
			matches: isAny(syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL),
		},
		{
			reason: "tls_certificate_invalid", meaning: "the certificate was not accepted", outcome: outbox.Retry,
			matches: isType[*tls.CertificateVerificationError],
		},
		{
			reason: "tls_handshake_failed", meaning: "no agreement on TLS, or none in time", outcome: outbox.Retry,
			matches: isTLS,
		},
		{
			reason: "connection_reset", meaning: "cut before an answer", outcome: outbox.Retry,
			matches: isAny(syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF),
		},
		{reason: "connect_timeout", meaning: "no connection in time", outcome: outbox.Retry, matches: isTimeout},
		{
			reason: "response_invalid", meaning: "the answer is no HTTP, or its headers are too large",
			outcome: outbox.Retry, matches: hasText("malformed", "response headers exceeded"),
		},
		{
			reason: "http2_failed", meaning: "the HTTP/2 stream or its connection ended",
			outcome: outbox.Retry, matches: hasText("http2: ", "stream error: "),
		},
		{
			reason: "request_failed", meaning: "anything else", outcome: outbox.Retry,
			matches: func(error) bool { return true },
		},
	}
}

// statusFault turns an answer, and what is kept of its body, into the handler's error; nil means delivered.
func statusFault(response *http.Response, snippet string, now time.Time) error {
	code := response.StatusCode
	for _, fault := range statusFaults() {
		if code < fault.low || code > fault.high {
			continue
		}
		var details []string
		if text := http.StatusText(code); text != "" {
			details = append(details, strings.ToLower(text))
		}
		delay := retryAfter(response.Header.Get("Retry-After"), now)
		if fault.outcome == outbox.Snoozed && delay > 0 {
			details = append(details, fmt.Sprintf("retry after %d s", int64(delay/time.Second)))
		}
		if snippet != "" {
			details = append(details, "body: "+snippet)
		}
		reason := "http_" + strconv.Itoa(code)
		if len(details) > 0 {
			reason += ": " + strings.Join(details, ", ")
		}
		switch {
		case fault.disables:
			return outbox.Disable(&delayed{reason: reason, delay: delay})
		case fault.outcome == outbox.Retry && delay > 0:
			return &delayed{reason: reason, delay: delay}
		}
		return outcomeError(fault.outcome, reason, delay)
	}
	return errors.New("http_other")
}

// delayed is a failure whose answer said for how long to wait, which counts only where a route makes it a snooze.
type delayed struct {
	reason string
	delay  time.Duration // 0: it did not say
}

func (e *delayed) Error() string { return e.reason }

// transportFault turns an error of the transport into the handler's. The error itself is dropped: net/http quotes
// the URL and what the receiver sent.
func transportFault(err error) error {
	for _, fault := range transportFaults() {
		if fault.matches(err) {
			return outcomeError(fault.outcome, fault.reason+": "+fault.meaning, 0)
		}
	}
	return errors.New("request_failed")
}

// contextFault says that the context ended first. What that means is the pass's business: a timeout of the route
// is a retry, a cancelled invocation is not.
func contextFault(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("canceled: %w", ctx.Err())
	}
	return fmt.Errorf("timeout: %w", ctx.Err())
}

func outcomeError(outcome outbox.Outcome, reason string, delay time.Duration) error {
	switch outcome {
	case outbox.Processed:
		return nil
	case outbox.Snoozed:
		return outbox.Snooze(errors.New(reason), delay)
	case outbox.Discarded:
		return outbox.Discard(errors.New(reason))
	default:
		return errors.New(reason)
	}
}

// retryAfter reads seconds or a date; 0 means none, or garbage.
func retryAfter(text string, now time.Time) time.Duration {
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseUint(text, 10, 32)
		if err != nil || seconds > uint64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return max(time.Duration(seconds)*time.Second, minRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), minRetryAfter), maxRetryAfter)
}

func isType[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

func isAny(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}

func isNotFound(err error) bool {
	var lookup *net.DNSError
	return errors.As(err, &lookup) && lookup.IsNotFound
}

func isTLS(err error) bool {
	return isType[tls.AlertError](err) || isType[tls.RecordHeaderError](err) ||
		errors.Is(err, http.ErrSchemeMismatch) || hasText("tls: ", "TLS handshake timeout")(err)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// hasText is for errors of net/http and crypto/tls that have no exported type.
func hasText(parts ...string) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(err.Error(), part) })
	}
}
