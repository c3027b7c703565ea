package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// errAnswerLate ends the attempts to answer CloudFormation.
var errAnswerLate = errors.New("CloudFormation did not take the answer in time")

// An answer is one PUT to the event's ResponseURL. cfn.LambdaWrap would send it without a deadline, show the signed URL
// in its error, and let an answer outgrow the limit of 4,096 bytes; CloudFormation then waits for its own timeout.
const (
	answerReserve = 10 * time.Second // most that is kept of the invocation for the answer
	answerLimit   = time.Minute      // for all tries: what is not reached by then is out of reach
	answerTry     = 3 * time.Second  // for one
	answerPause   = 100 * time.Millisecond
	reasonLimit   = 1024 // bytes, escapes included: the rest of the body is names and ids
)

var (
	errAnswerReserve = errors.New("stopped before the function's timeout, to leave time for this answer")
	errAnswerTry     = errors.New("no response within 3s")
)

// splitTime divides what is left of the invocation: work ends early enough for an answer, the answer early enough for
// the reply.
func splitTime(ctx context.Context) (work, answer context.Context, cancel func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, ctx, func() {}
	}
	kept := min(answerReserve, time.Until(deadline)/2)
	work, cancelWork := context.WithDeadlineCause(ctx, deadline.Add(-kept), errAnswerReserve)
	answer, cancelAnswer := context.WithDeadline(ctx, deadline.Add(-kept/5))
	return work, answer, func() { cancelWork(); cancelAnswer() }
}

// reason is the error for CloudFormation's events, which everybody sees who may look at the stack.
func reason(err error) string {
	return cut(typeName(err)+": "+err.Error(), reasonLimit)
}

// cut shortens a text to at most limit bytes, counted as in JSON, where one byte may take six.
func cut(text string, limit int) string {
	const mark = "…"
	text = strings.ToValidUTF8(text, "?")
	size, end := 0, 0
	for i, r := range text {
		if size <= limit-len(mark) {
			end = i
		}
		escaped, err := json.Marshal(string(r))
		if size += len(escaped) - len(`""`); err != nil || size > limit {
			return text[:end] + mark
		}
	}
	return text
}

// send puts the answer, again and again until it is taken or refused, or the time is up.
func (a *app) send(ctx context.Context, to string, body []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errAnswerLate)
	defer cancel()
	pause := answerPause
	for {
		again, err := put(ctx, to, body)
		if err == nil || !again || ctx.Err() != nil {
			return err
		}
		a.logger.LogAttrs(ctx, slog.LevelWarn, "CloudFormation did not take the answer, trying again", slog.String("error", err.Error()))
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
		pause = min(2*pause, answerTry)
	}
}

// put tells whether a failure may be another one's turn. Its error holds neither the URL nor what the server says about
// it.
func put(ctx context.Context, to string, body []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTry, errAnswerTry)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, to, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("ResponseURL is no URL")
	}
	request.Close = true // the sandbox may be frozen before the next one
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if at, ok := errors.AsType[*url.Error](err); ok {
			err = at.Err
		}
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return true, fmt.Errorf("%w (in a VPC the function needs a way to S3: a gateway endpoint or NAT)", err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	if response.StatusCode/100 == 2 {
		return false, nil
	}
	again = response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests
	return again, fmt.Errorf("status %d", response.StatusCode)
}
