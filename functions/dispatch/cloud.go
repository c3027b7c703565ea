package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	// awsConnectTimeout is the time for a connection to AWS, and again for its TLS.
	awsConnectTimeout = 5 * time.Second
	// awsIdleTimeout is below the time after which AWS and NAT gateways give up a quiet connection.
	awsIdleTimeout = 50 * time.Second
	// secretTimeout is how long an invocation waits for Secrets Manager without routes, and secretAgain with those that
	// it has.
	secretTimeout = 5 * time.Second
	secretAgain   = 2 * time.Second
)

var errSecretTimeout = errors.New("no answer from Secrets Manager in time; without a way out of a VPC there never is one")

// loadAWS is config.LoadDefaultConfig, which reads the environment and files.
type loadAWS func(context.Context, ...func(*awsconfig.LoadOptions) error) (aws.Config, error)

// cloud is the AWS configuration, loaded when something needs it. It is not safe for concurrent use.
type cloud struct {
	load  loadAWS
	conns int // idle connections to keep for each service
	known *aws.Config
}

// config loads the configuration once; a failure is tried again. It calls nobody.
func (c *cloud) config(ctx context.Context) (aws.Config, error) {
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

// checkSecretARN never shows what it refuses: it may be the routes or a secret itself.
func checkSecretARN(arn string) error {
	parts := strings.SplitN(arn, ":", 7)
	if len(parts) == 7 && parts[0] == "arn" && parts[2] == "secretsmanager" && parts[3] != "" && parts[5] == "secret" {
		return nil
	}
	return fmt.Errorf("%s: not an ARN, takes arn:aws:secretsmanager:<region>:<account>:secret:<name>", routesARN)
}

// readSecret returns the text of a secret whose ARN was checked. It waits no longer than that, and leaves time for the
// answer before the invocation's deadline. Its errors hold nothing of the secret.
func readSecret(ctx context.Context, cfg aws.Config, arn string, wait time.Duration) (string, error) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-min(outbox.MarkMargin, left/2))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errSecretTimeout)
	defer cancel()
	client := secretsmanager.NewFromConfig(cfg, func(o *secretsmanager.Options) { o.Region = strings.Split(arn, ":")[3] })
	out, err := client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &arn})
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errSecretTimeout):
		return "", errSecretTimeout
	case err != nil:
		return "", err
	case out.SecretString == nil:
		return "", errors.New("it is binary, takes text")
	}
	return *out.SecretString, nil
}
