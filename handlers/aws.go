package handlers

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
)

// maxAttempts is how often the SDK may send one request. The outbox is the retry engine: the second attempt is there
// for a connection that died while the sandbox was frozen.
const maxAttempts = 2

// fewAttempts keeps a client's retryer, but for more attempts than maxAttempts; 0 stands for no limit.
func fewAttempts(retryer aws.Retryer) aws.Retryer {
	if n := retryer.MaxAttempts(); n >= 1 && n <= maxAttempts {
		return retryer
	}
	return retry.AddWithMaxAttempts(retryer, maxAttempts)
}

// path tells whether a call ever had a connection. Where a VPC has neither NAT nor an endpoint, packets vanish and the
// call ends by its timeout alone.
type path struct{ connected atomic.Bool }

func watchPath(ctx context.Context) (context.Context, *path) {
	p := new(path)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { p.connected.Store(true) },
	}), p
}

// joinFaults returns nil when there are none.
func joinFaults(faults []*FieldError) error {
	all := make([]error, len(faults))
	for i, fault := range faults {
		all[i] = fault
	}
	return errors.Join(all...)
}
