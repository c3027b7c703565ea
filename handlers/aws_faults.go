package handlers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/openlup/outbox-dispatch/outbox"
)

// A provider is where a call went, and what its reasons begin with.
const (
	providerSNS = "sns"
	providerSES = "ses"
)

// awsCall is what is known of a call that failed.
type awsCall struct {
	provider string
	path     *path
	mail     *mailContent // SES only
	from     string       // SES only: the sender's address alone
}

// awsAnswer is what came back from a call, as far as it can be told.
type awsAnswer struct {
	err     error
	code    string // of the service; empty without one
	message string // of the service; never shown
	status  int    // 0 without an answer
	sender  bool   // SNS only: of an entry in a batch, said to be the sender's fault
}

// awsFault is one row of the table from what happened to what becomes of the event. A row fits by one of its codes, or
// by its match, or where it has both by both.
type awsFault struct {
	provider string // empty: all
	codes    []string
	match    func(awsCall, awsAnswer) bool
	when     string // what match looks for, in words
	outcome  outbox.Outcome
	delay    time.Duration // of a snooze; zero means the pass's snooze seconds
	reason   string        // without the provider, stable
	advice   string        // what happened and, where an operator can mend it, how
}

// fault turns an error of the SDK into the handler's. The error itself is dropped: services quote addresses, ARNs and
// what was sent.
func (c awsCall) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return c.contextFault(ctx)
	}
	return c.outcome(newAnswer(err))
}

// outcome turns an answer into the handler's error, as its row of the table says.
func (c awsCall) outcome(answer awsAnswer) error {
	fault := c.judge(answer)
	reason := c.provider + "_" + fault.reason + ": " + fault.advice + answer.detail()
	return outcomeError(fault.outcome, reason, fault.delay)
}

// judge returns the first row of the table that fits an answer; the last one fits all.
func (c awsCall) judge(answer awsAnswer) awsFault {
	faults := awsFaults()
	for _, fault := range faults {
		if fault.fits(c, answer) {
			return fault
		}
	}
	return faults[len(faults)-1]
}

func (f awsFault) fits(call awsCall, answer awsAnswer) bool {
	if f.provider != "" && f.provider != call.provider {
		return false
	}
	if len(f.codes) > 0 && !slices.ContainsFunc(f.codes, func(code string) bool { return sameCode(code, answer.code) }) {
		return false
	}
	return f.match == nil || f.match(call, answer)
}

// sameCode compares a code with the table's, in which a * at the end stands for anything.
func sameCode(pattern, code string) bool {
	if prefix, found := strings.CutSuffix(pattern, "*"); found {
		return strings.HasPrefix(code, prefix)
	}
	return pattern == code
}

// contextFault says that the context ended first, like [contextFault]; a call that never had a connection by then is
// one that found no path.
func (c awsCall) contextFault(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) || c.path.connected.Load() {
		return contextFault(ctx)
	}
	return outbox.Snooze(fmt.Errorf("%s_unreachable: %s: %w", c.provider, adviceUnreachable, ctx.Err()), 0)
}

func newAnswer(err error) awsAnswer {
	answer := awsAnswer{err: err}
	if service, found := errors.AsType[smithy.APIError](err); found {
		answer.code, answer.message = service.ErrorCode(), service.ErrorMessage()
	}
	if response, found := errors.AsType[*smithyhttp.ResponseError](err); found {
		answer.status = response.HTTPStatusCode()
	}
	return answer
}

// detail names the code and status of an answer, as far as they look like ones.
func (a awsAnswer) detail() string {
	var parts []string
	if a.code != "" && len(a.code) <= maxCodeLength && isName(a.code, "._-") {
		parts = append(parts, a.code)
	}
	if a.status != 0 {
		parts = append(parts, fmt.Sprintf("status %d", a.status))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

const maxCodeLength = 64

func inText(parts ...string) func(awsCall, awsAnswer) bool {
	return func(_ awsCall, answer awsAnswer) bool {
		text := strings.ToLower(answer.message)
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}
}

func statusBetween(low, high int) func(awsCall, awsAnswer) bool {
	return func(_ awsCall, answer awsAnswer) bool { return answer.status >= low && answer.status <= high }
}

// startsWith looks at each link of an error's chain. The SDK has no types for some failures, only the words that a link
// starts with; what a service says never stands there.
func startsWith(prefixes ...string) func(awsCall, awsAnswer) bool {
	return func(_ awsCall, answer awsAnswer) bool {
		for err := answer.err; err != nil; err = errors.Unwrap(err) {
			text := err.Error()
			if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
				return true
			}
		}
		return false
	}
}

// isUnsendable is true of a request that the SDK itself refused.
func isUnsendable(_ awsCall, answer awsAnswer) bool {
	return isType[smithy.InvalidParamsError](answer.err)
}

// isUnreachable is true of a request that was not sent, for want of a connection.
func isUnreachable(_ awsCall, answer awsAnswer) bool {
	var operation *net.OpError
	dial := errors.As(answer.err, &operation) && (operation.Op == "dial" || operation.Op == "proxyconnect")
	return isType[*smithyhttp.RequestSendError](answer.err) &&
		(dial || isType[*net.DNSError](answer.err) || isTLS(answer.err))
}

// isSenders is true of an entry of a batch that the service calls the sender's fault.
func isSenders(_ awsCall, answer awsAnswer) bool { return answer.sender }

func isUnsent(_ awsCall, answer awsAnswer) bool {
	return isType[*smithyhttp.RequestSendError](answer.err)
}
