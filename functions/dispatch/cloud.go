package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
)

const (
	// awsConnectTimeout is the time for a connection to AWS, and again for its TLS.
	awsConnectTimeout = 5 * time.Second
	// awsIdleTimeout is below the time after which AWS and NAT gateways give up a quiet connection.
	awsIdleTimeout = 50 * time.Second
)

// loadAWS is config.LoadDefaultConfig, which reads the environment and files.
type loadAWS func(context.Context, ...func(*awsconfig.LoadOptions) error) (aws.Config, error)

// cloud is the AWS configuration, loaded when something needs it. It is safe for concurrent use.
type cloud struct {
	load  loadAWS
	conns int // idle connections to keep for each service

	mu    sync.Mutex
	known *aws.Config
}

// config loads the configuration once; a failure is tried again. It calls nobody.
func (c *cloud) config(ctx context.Context) (aws.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known != nil {
		return *c.known, nil
	}
	cfg, err := c.load(ctx,
		awsconfig.WithHTTPClient(httpClient(c.conns)),
		awsconfig.WithDefaultsMode(aws.DefaultsModeLegacy), // "auto" would ask the instance's metadata service
	)
	if err != nil {
		return aws.Config{}, fmt.Errorf("load the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return aws.Config{}, errors.New("AWS_REGION: not set, takes a region like eu-central-1")
	}
	c.known = &cfg
	return cfg, nil
}

// httpClient keeps as many connections as are used at once. Only what comes before a request has limits of its own: an
// answer is waited for until the event's timeout, since a request that was given up early and sent again is two mails.
func httpClient(conns int) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = awsConnectTimeout }).
		WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns = 0 // no limit over all hosts
			t.MaxIdleConnsPerHost = conns
			t.TLSHandshakeTimeout = awsConnectTimeout
			t.IdleConnTimeout = awsIdleTimeout
		})
}
