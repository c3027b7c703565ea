package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// The actions of an event; no action means up.
const (
	actionUp     = "up"
	actionStatus = "status"
	actionVerify = "verify"
)

const takes = `takes {} or {"action":"up"}, {"action":"status"} or {"action":"verify"}, or the event of a custom resource`

// parseEvent returns the action. Any field but action is refused, so that a misdirected event changes nothing.
func parseEvent(event json.RawMessage) (string, error) {
	if bytes.Equal(bytes.TrimSpace(event), []byte("null")) {
		return "", &RequestError{Got: "null"}
	}
	var fields struct {
		Action *string `json:"action"`
	}
	decoder := json.NewDecoder(bytes.NewReader(event))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&fields); err != nil {
		return "", &RequestError{Got: err.Error()}
	}
	if _, err := decoder.Token(); err != io.EOF {
		return "", &RequestError{Got: "more than one JSON value"}
	}
	if fields.Action == nil {
		return actionUp, nil
	}
	switch action := *fields.Action; action {
	case actionUp, actionStatus, actionVerify:
		return action, nil
	default:
		return "", &RequestError{Got: fmt.Sprintf("action %.40q", action)}
	}
}
