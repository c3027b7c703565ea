package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/openlup/outbox-dispatch/outbox"
)

// EventError is an event that the function does not understand; nothing was claimed.
type EventError struct{ err error }

func (e *EventError) Error() string { return "event: " + e.err.Error() }
func (e *EventError) Unwrap() error { return e.err }

// Sources of an event that a schedule sent. The first two are the envelopes of an EventBridge rule and of a Scheduler
// without input, whose content says nothing; the third is the input that our own schedules give.
const (
	sourceRule      = "aws.events"
	sourceScheduler = "aws.scheduler"
	sourceInput     = "schedule"
)

// parseEvent reads what an invocation asks for: nothing in particular ({}, null, an empty body, a schedule), or some
// event types and a batch size. routed are the types it may name. The error is an [*EventError] that holds every
// fault.
func parseEvent(payload []byte, routed []string) (outbox.Pass, error) {
	var pass outbox.Pass
	if payload = bytes.TrimSpace(payload); len(payload) == 0 {
		return pass, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(payload, &fields); err != nil {
		return pass, &EventError{errors.New("not a JSON object, takes {} or " + taken)}
	}
	source, err := eventSource(fields)
	if err != nil {
		return pass, &EventError{err}
	}
	if source == sourceRule || source == sourceScheduler {
		return pass, nil
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var err error
		switch name {
		case "eventTypes":
			pass.EventTypes, err = eventTypes(fields[name], routed)
		case "batchSize":
			pass.BatchSize, err = eventBatchSize(fields[name])
		case "source":
		case "scheduleArn", "scheduledTime", "executionId", "attemptNumber":
			// What a schedule's input may hold to tell one tick from another in the logs of others.
			if source != sourceInput {
				err = fmt.Errorf("%s: taken beside source %q only", name, sourceInput)
			}
		default:
			err = fmt.Errorf("unknown key %q, takes %s", name, taken)
		}
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return outbox.Pass{}, &EventError{err}
	}
	return pass, nil
}

const taken = "eventTypes, batchSize, source"

func eventSource(fields map[string]json.RawMessage) (string, error) {
	raw, found := fields["source"]
	if !found {
		return "", nil
	}
	var source string
	if json.Unmarshal(raw, &source) == nil && slices.Contains([]string{sourceRule, sourceScheduler, sourceInput}, source) {
		return source, nil
	}
	return "", fmt.Errorf("source: got %s, takes %q, %q or %q", short(raw), sourceRule, sourceScheduler, sourceInput)
}

func eventTypes(raw json.RawMessage, routed []string) ([]string, error) {
	var types []*string
	if err := json.Unmarshal(raw, &types); err != nil || len(types) == 0 || slices.Contains(types, nil) {
		return nil, fmt.Errorf("eventTypes: got %s, takes a list of at least one event type", short(raw))
	}
	var names, unknown []string
	for _, name := range types {
		if !slices.Contains(routed, *name) {
			unknown = append(unknown, fmt.Sprintf("%q", *name))
		}
		names = append(names, *name)
	}
	if unknown != nil {
		return nil, fmt.Errorf("eventTypes: no route for %s, takes some of %s", strings.Join(unknown, ", "), strings.Join(routed, ", "))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func eventBatchSize(raw json.RawMessage) (int, error) {
	var size int
	if err := json.Unmarshal(raw, &size); err != nil || size < 1 || size > 1000 {
		return 0, fmt.Errorf("batchSize: got %s, takes a whole number from 1 to 1000", short(raw))
	}
	return size, nil
}

// short quotes a value in an error, cut where it gets long.
func short(raw json.RawMessage) string {
	const most = 60
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "…"
	}
	return string(raw)
}
