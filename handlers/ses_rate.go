package handlers

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/smithy-go"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	// firstRate is what every account may send, the sandbox's.
	firstRate = 1

	rateTimeout = 3 * time.Second
	rateAge     = 15 * time.Minute
	rateRetry   = time.Minute // after a question that was not answered
)

// errRateLate ends the question for the account's rate.
var errRateLate = errors.New("SES did not tell the account's rate in time")

// SESRate keeps an [outbox.Limit] at the rate that an account may send at, in recipients per second: the maximum send
// rate that SES's GetAccount answers, which is for one account and region. Build one with [NewSESRate] for all handlers
// that send through them.
type SESRate struct {
	client *sesv2.Client
	most   float64
	limit  *outbox.Limit

	mu     sync.Mutex
	known  bool          // there was an answer, or a refusal
	next   time.Time     // when to ask again
	asking chan struct{} // closed when the question under way is answered; nil without one
}

// NewSESRate returns a rate that is learnt with the first mail, and again every 15 minutes. Until then it is one
// recipient per second. most is a limit of its own, for an account that others send through too; zero means none. When
// the account may not be asked (ses:GetAccount is not granted) the rate is most, or stays at one without it. An emulator
// without that call has no rate.
func NewSESRate(client *sesv2.Client, most float64) *SESRate {
	r := &SESRate{client: client, most: most}
	r.limit = outbox.NewLimit(r.capped(firstRate))
	return r
}

// Limit is what routes are given as theirs.
func (r *SESRate) Limit() *outbox.Limit { return r.limit }

func (r *SESRate) capped(rate float64) float64 {
	if r.most > 0 {
		return min(rate, r.most)
	}
	return rate
}

// learn asks for the rate when it is time to. Who comes before there is a first answer waits for it; later questions hold
// nobody up but the one who asks.
func (r *SESRate) learn(ctx context.Context) {
	if r == nil {
		return
	}
	r.mu.Lock()
	asking, known := r.asking, r.known
	if asking == nil && !time.Now().Before(r.next) {
		r.asking = make(chan struct{})
		r.mu.Unlock()
		r.ask(ctx)
		return
	}
	r.mu.Unlock()
	if asking != nil && !known {
		select {
		case <-asking:
		case <-ctx.Done():
		}
	}
}

// ask sets the limit to what the account may send.
func (r *SESRate) ask(ctx context.Context) {
	wait := rateRetry
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.known = r.known || wait == rateAge
		r.next = time.Now().Add(wait)
		close(r.asking)
		r.asking = nil
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, rateTimeout, errRateLate)
	defer cancel()
	account, err := r.client.GetAccount(ctx, &sesv2.GetAccountInput{}, fewTries)
	switch {
	case err == nil && account.SendQuota != nil && account.SendQuota.MaxSendRate > 0:
		wait = rateAge
		r.limit.Set(r.capped(account.SendQuota.MaxSendRate))
	case err == nil || isDenied(err):
		wait = rateAge
		if r.most > 0 {
			r.limit.Set(r.most)
		}
	case isMissing(err):
		wait = rateAge
		r.limit.Set(r.capped(math.Inf(1)))
	}
}

// isMissing tells whether an endpoint doesn't know a call at all, which is an emulator's; SES does, and has a rate.
func isMissing(err error) bool {
	return slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}, newAnswer(err).status)
}

// isDenied tells whether IAM refused a call.
func isDenied(err error) bool {
	var service smithy.APIError
	return errors.As(err, &service) && slices.ContainsFunc(deniedCodes(), func(code string) bool {
		return sameCode(code, service.ErrorCode())
	})
}
