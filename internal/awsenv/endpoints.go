package awsenv

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// endpoints tells the SDK's clients, which look for these methods among the sources of a configuration, where to send.
type endpoints struct {
	getenv          func(string) string
	fips, dualStack flag
	ignored         bool // the addresses, not the two above
}

// GetServiceBaseEndpoint returns the address of one service, by the name that it has in the SDK.
func (e endpoints) GetServiceBaseEndpoint(_ context.Context, service string) (address string, found bool, err error) {
	address = e.getenv("AWS_ENDPOINT_URL_" + strings.ReplaceAll(strings.ToUpper(service), " ", "_"))
	return address, address != "", nil
}

// GetIgnoreConfiguredEndpoints tells whether addresses count for nothing.
func (e endpoints) GetIgnoreConfiguredEndpoints(context.Context) (ignored, found bool, err error) {
	return e.ignored, e.ignored, nil
}

// GetUseFIPSEndpoint tells whether FIPS's endpoints are to be used.
func (e endpoints) GetUseFIPSEndpoint(context.Context) (state aws.FIPSEndpointState, found bool, err error) {
	states := map[flag]aws.FIPSEndpointState{on: aws.FIPSEndpointStateEnabled, off: aws.FIPSEndpointStateDisabled}
	return states[e.fips], e.fips != unset, nil
}

// GetUseDualStackEndpoint tells whether endpoints with IPv6 are to be used.
func (e endpoints) GetUseDualStackEndpoint(context.Context) (state aws.DualStackEndpointState, found bool, err error) {
	states := map[flag]aws.DualStackEndpointState{on: aws.DualStackEndpointStateEnabled, off: aws.DualStackEndpointStateDisabled}
	return states[e.dualStack], e.dualStack != unset, nil
}
