package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime/debug"
	"strconv"

	"github.com/aws/aws-lambda-go/cfn"

	"github.com/openlup/outbox-dispatch/outbox/postgres"
)

// physicalID never changes: to CloudFormation another id is another resource, and it would delete the old one.
const physicalID = "outbox-schema"

// The resource's properties. Version is what the template wants of the schema, and as an attribute what the database
// has; Run counts how often somebody asked for more than that.
const (
	versionKey = "Version"
	runKey     = "Run"
)

// parseResource reads an event that CloudFormation sends for a custom resource; found is false for any other event. The
// error is a [*RequestError]. It shows nothing of ResponseURL, which is signed: whoever has it can answer.
func parseResource(raw json.RawMessage) (event cfn.Event, found bool, err error) {
	var keys map[string]json.RawMessage
	_ = json.Unmarshal(raw, &keys) // what is no object has no keys; parseEvent says what is wrong with it
	_, typed := keys["RequestType"]
	_, answerable := keys["ResponseURL"]
	switch {
	case !typed && !answerable:
		return event, false, nil
	case !answerable:
		return event, false, &RequestError{Got: "RequestType without ResponseURL, a custom resource's event has both"}
	case !typed:
		return event, false, &RequestError{Got: "ResponseURL without RequestType, a custom resource's event has both"}
	}
	if err := json.Unmarshal(raw, &event); err != nil {
		return event, false, &RequestError{Got: "no custom resource's event: " + err.Error()}
	}
	if u, err := url.Parse(event.ResponseURL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return event, false, &RequestError{Got: "ResponseURL is no https or http URL"}
	}
	return event, true, nil
}

// answerResource does what the event asks for, tells CloudFormation, and returns what it told. A failure that was told
// is no error: Lambda would repeat the invocation, and CloudFormation takes one answer. The error is an
// [*AnswerError].
func (a *app) answerResource(ctx context.Context, event cfn.Event) (json.RawMessage, error) {
	work, answer, cancel := splitTime(ctx)
	defer cancel()
	version, err := a.converge(work, event)
	response := cfn.NewResponse(&event)
	response.PhysicalResourceID = physicalID
	if err != nil {
		response.Status, response.Reason = cfn.StatusFailed, reason(err)
	} else {
		response.Status = cfn.StatusSuccess
		if version != "" {
			response.Data = map[string]any{versionKey: version}
		}
	}
	body, err := json.Marshal(response)
	if err != nil {
		return nil, &AnswerError{Err: fmt.Errorf("encode: %w", err)}
	}
	if err := a.send(answer, event.ResponseURL, body); err != nil {
		return nil, &AnswerError{Err: err}
	}
	return body, nil
}

// converge returns the version of the schema afterwards, which is empty for a Delete.
func (a *app) converge(ctx context.Context, event cfn.Event) (version string, err error) {
	defer func() {
		if p := recover(); p != nil {
			a.logger.LogAttrs(ctx, slog.LevelError, "migrate panicked",
				slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
			err = &PanicError{}
		}
	}()
	switch event.RequestType {
	case cfn.RequestDelete:
		// Without a look at the configuration: a stack whose deployment failed over it must go away, too.
		a.logger.LogAttrs(ctx, slog.LevelInfo, "custom resource deleted, the database stays as it is")
		return "", nil
	case cfn.RequestCreate, cfn.RequestUpdate:
		return a.converged(ctx, event)
	default:
		err := &RequestError{Got: fmt.Sprintf("RequestType %.40q", event.RequestType)}
		a.log(ctx, "", postgres.Report{}, err)
		return "", err
	}
}

// converged migrates. Only an update that asks for something new may fail: for more than a version or run before.
// CloudFormation undoes a failed update by another one, whose properties have changed places, and if that fails as well
// the stack is stuck. So whatever fails then is a warning, and so is a database ahead of this binary, since migrations
// only go forward.
func (a *app) converged(ctx context.Context, event cfn.Event) (string, error) {
	wanted, known := asked(event.ResourceProperties)
	before, knownBefore := asked(event.OldResourceProperties)
	undone := known && knownBefore && !wanted.after(before)

	action := actionUp
	if ships, err := a.ships(); err == nil && known {
		if wanted.version != ships {
			a.logger.LogAttrs(ctx, slog.LevelWarn, "the template wants another version than this function ships",
				slog.Int("wanted", wanted.version), slog.Int("ships", ships))
		}
		if undone && wanted.version < before.version && wanted.version < ships {
			action = actionStatus // this function belongs to the deployment that is being undone
		}
	}
	report, err := a.do(ctx, action)
	reached := report.VersionAfter
	if undone && reached == 0 {
		reached = wanted.version // nobody could look, or nothing is there
	}
	if _, ahead := errors.AsType[*postgres.DatabaseAheadError](err); err != nil && (ahead || undone) {
		a.logger.LogAttrs(ctx, slog.LevelWarn, "nothing new is asked for, so the stack goes on in spite of this failure",
			slog.Int("version", reached), slog.String("error", err.Error()))
		err = nil
	}
	a.log(ctx, string(event.RequestType), report, err)
	return strconv.Itoa(reached), err
}

// request is what an event asks for.
type request struct{ version, run int }

// after tells whether r asks for more than before did.
func (r request) after(before request) bool {
	return r.version > before.version || r.version == before.version && r.run > before.run
}

// asked reads the properties; known is false without a version. CloudFormation turns numbers into text. A run that is no
// number counts as none, so that a change of it never fails: nobody could tell which way it goes.
func asked(properties map[string]any) (r request, known bool) {
	r.run, _ = strconv.Atoi(fmt.Sprint(properties[runKey]))
	version, err := strconv.Atoi(fmt.Sprint(properties[versionKey]))
	r.version = version
	return r, err == nil
}

// ships is the newest version that this binary can make.
func (a *app) ships() (int, error) {
	if a.migrator == nil {
		return 0, a.fault
	}
	return postgres.Latest(a.migrator.Files)
}
