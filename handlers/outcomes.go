package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// Outcomes are what some failures mean at one destination, where that differs from the tables in docs/routes.md and
// docs/faults.md. A failure is named by its reason, the word that a stored error begins with; for webhooks
// the statuses without a row of their own are named both together (http_4xx) and each (http_404), and each goes first.
// The zero value changes nothing. A success, a timeout of the route and a cancelled invocation stay what they are.
type Outcomes struct {
	// DiscardOn are the reasons that discard the event. One that disables its destination too no longer does.
	DiscardOn []string
	// SnoozeOn are the reasons that snooze it: the destination is taken to be out.
	SnoozeOn []string
}

// Faults returns every reason that is not among those of the destination's kind ([HTTPReasons] and the like), and every
// one that is in both lists, with the fields discard_on[0] and so on.
func (o Outcomes) Faults(reasons []string) []*FieldError {
	var faults []*FieldError
	check := func(field string, list []string) {
		for i, reason := range list {
			switch {
			case !slices.Contains(reasons, reason):
				faults = append(faults, &FieldError{Field: fmt.Sprintf("%s[%d]", field, i), Problem: "is no reason of a failure there"})
			case field == "snooze_on" && slices.Contains(o.DiscardOn, reason):
				faults = append(faults, &FieldError{
					Field: fmt.Sprintf("%s[%d]", field, i), Problem: reason + " is in discard_on too, takes one of both",
				})
			}
		}
	}
	check("discard_on", o.DiscardOn)
	check("snooze_on", o.SnoozeOn)
	return faults
}

// HTTPReasons are the reasons of failures that [HTTP] answers, in order.
func HTTPReasons() []string {
	var all []string
	for _, fault := range slices.Concat(statusFaults(), transportFaults()) {
		if fault.outcome != outbox.Processed {
			all = append(all, fault.reason)
		}
	}
	for status := 300; status < 600; status++ {
		all = append(all, "http_"+strconv.Itoa(status))
	}
	return sorted(all)
}

// EndpointsReasons are the reasons of failures that [Endpoints] answers, in order.
func EndpointsReasons() []string {
	return sorted(append(HTTPReasons(), "endpoint_disable_failed", "endpoint_disabled", "endpoint_key_missing", "endpoint_lookup_failed",
		"endpoint_missing", "endpoint_not_subscribed", "endpoint_secret_invalid", "endpoint_secret_unread", "endpoint_url_refused"))
}

// SNSReasons are the reasons of failures that [SNS] answers, in order.
func SNSReasons() []string {
	return sorted(append(awsReasons(providerSNS), "sns_message_empty", "sns_topic_field_missing", "sns_topic_not_allowed"))
}

// SESReasons are the reasons of failures that [SES] answers, in order.
func SESReasons() []string { return append(awsReasons(providerSES), "ses_payload_invalid") }

func awsReasons(provider string) []string {
	var all []string
	for _, fault := range awsFaults() {
		if fault.provider == "" || fault.provider == provider {
			all = append(all, provider+"_"+fault.reason)
		}
	}
	return sorted(all)
}

func sorted(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// Over returns the handler with these outcomes. What else it can do (batches, weights) it still can.
func (o Outcomes) Over(handler outbox.Handler) outbox.Handler {
	if len(o.DiscardOn) == 0 && len(o.SnoozeOn) == 0 {
		return handler
	}
	single := &overridden{inner: handler, discard: setOf(o.DiscardOn), snooze: setOf(o.SnoozeOn)}
	batch, batches := handler.(outbox.BatchHandler)
	weigher, weighs := handler.(outbox.Weigher)
	switch {
	case batches && weighs:
		return struct {
			*overriddenBatch
			outbox.Weigher
		}{&overriddenBatch{single, batch}, weigher}
	case batches:
		return &overriddenBatch{single, batch}
	case weighs:
		return struct {
			*overridden
			outbox.Weigher
		}{single, weigher}
	default:
		return single
	}
}

func setOf(reasons []string) map[string]bool {
	set := make(map[string]bool, len(reasons))
	for _, reason := range reasons {
		set[reason] = true
	}
	return set
}

// overridden is a handler with outcomes of its own.
type overridden struct {
	inner           outbox.Handler
	discard, snooze map[string]bool
}

func (h *overridden) Handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	receipt, err := h.inner.Handle(ctx, event)
	return receipt, h.judge(err)
}

type overriddenBatch struct {
	*overridden
	batch outbox.BatchHandler
}

func (h *overriddenBatch) BatchLimit() int { return h.batch.BatchLimit() }

func (h *overriddenBatch) HandleBatch(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	deliveries := h.batch.HandleBatch(ctx, events)
	for i := range deliveries {
		deliveries[i].Err = h.judge(deliveries[i].Err)
	}
	return deliveries
}

// judge returns the error with its outcome replaced where a list names its reason.
func (h *overridden) judge(err error) error {
	if err == nil {
		return nil
	}
	reason, _, _ := strings.Cut(err.Error(), ":")
	for _, name := range []string{reason, rowOf(reason)} {
		switch {
		case h.discard[name]:
			return outbox.Discard(restate(err))
		case h.snooze[name] && isSnoozed(name):
			return err // as it is, since it may say for how long
		case h.snooze[name]:
			return outbox.Snooze(restate(err), askedDelay(err))
		}
	}
	return err
}

// askedDelay is for how long the destination asked to wait; 0 where it did not.
func askedDelay(err error) time.Duration {
	if asked, found := errors.AsType[*delayed](err); found {
		return asked.delay
	}
	return 0
}

// rowOf returns the table's reason for a status, "http_4xx" for "http_404"; any other reason is its own.
func rowOf(reason string) string {
	status, err := strconv.Atoi(strings.TrimPrefix(reason, "http_"))
	if err != nil || !strings.HasPrefix(reason, "http_") {
		return reason
	}
	for _, fault := range statusFaults() {
		if status >= fault.low && status <= fault.high {
			return fault.reason
		}
	}
	return reason
}

// isSnoozed tells whether the tables snooze a reason anyway.
func isSnoozed(reason string) bool {
	for _, fault := range statusFaults() {
		if fault.reason == rowOf(reason) {
			return fault.outcome == outbox.Snoozed
		}
	}
	provider, name, _ := strings.Cut(reason, "_")
	return slices.ContainsFunc(awsFaults(), func(fault awsFault) bool {
		return fault.reason == name && (fault.provider == "" || fault.provider == provider) && fault.outcome == outbox.Snoozed
	})
}

// restate keeps an error's text, and whether a context's end is behind it, but not its outcome.
func restate(err error) error {
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, end) {
			return &restated{text: err.Error(), end: end}
		}
	}
	return errors.New(err.Error())
}

type restated struct {
	text string
	end  error
}

func (e *restated) Error() string { return e.text }
func (e *restated) Unwrap() error { return e.end }
