// Package awsenv makes the AWS configuration of the functions from the environment, which is where Lambda puts it. The SDK's
// own package for that looks in many more places, and every client that it would need there is set up at each start of a process.
package awsenv

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

var errNoCredentials = errors.New("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY: not set")

// Load reads the variables that the SDK's clients for SNS, SES, SQS, EventBridge and Secrets Manager know, with the meaning
// that they have for the SDK; an empty one counts as unset. It calls nobody, and reads no file but AWS_CA_BUNDLE. A missing
// region is an empty one; missing credentials are an error of each request. A nil client is the SDK's. The error joins all
// faults, each naming its variable.
func Load(getenv func(string) string, client *awshttp.BuildableClient) (aws.Config, error) {
	r := reader{getenv: getenv}
	if client == nil {
		client = awshttp.NewBuildableClient()
	}
	config := aws.Config{
		Region:                     cmp.Or(getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION")),
		Credentials:                credentials(getenv),
		HTTPClient:                 r.trust(client),
		RetryMaxAttempts:           r.attempts(),
		RetryMode:                  r.retryMode(),
		AppID:                      getenv("AWS_SDK_UA_APP_ID"),
		DisableClockSkewCorrection: r.flag("AWS_DISABLE_CLOCK_SKEW_CORRECTION") == on,
		AuthSchemePreference: strings.FieldsFunc(getenv("AWS_AUTH_SCHEME_PREFERENCE"), func(c rune) bool {
			return c == ',' || c == ' '
		}),
		// "auto" would ask the instance's metadata service.
		DefaultsMode: aws.DefaultsModeLegacy,
	}
	endpoints := endpoints{
		getenv:    getenv,
		fips:      r.flag("AWS_USE_FIPS_ENDPOINT"),
		dualStack: r.flag("AWS_USE_DUALSTACK_ENDPOINT"),
		ignored:   r.flag("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") == on,
	}
	config.ConfigSources = []any{endpoints}
	if base := getenv("AWS_ENDPOINT_URL"); base != "" && !endpoints.ignored {
		config.BaseEndpoint = &base
	}
	if err := errors.Join(r.faults...); err != nil {
		return aws.Config{}, err
	}
	return config, nil
}

// credentials are those that Lambda gives a sandbox; they outlive it.
func credentials(getenv func(string) string) aws.CredentialsProvider {
	found := aws.Credentials{
		AccessKeyID:     cmp.Or(getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_ACCESS_KEY")),
		SecretAccessKey: cmp.Or(getenv("AWS_SECRET_ACCESS_KEY"), getenv("AWS_SECRET_KEY")),
		SessionToken:    getenv("AWS_SESSION_TOKEN"),
		AccountID:       getenv("AWS_ACCOUNT_ID"),
		Source:          "environment",
	}
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		if !found.HasKeys() {
			return aws.Credentials{}, errNoCredentials
		}
		return found, nil
	})
}

// reader collects the faults of the environment.
type reader struct {
	getenv func(string) string
	faults []error
}

func (r *reader) attempts() int {
	const name = "AWS_MAX_ATTEMPTS"
	text := r.getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		r.faults = append(r.faults, fmt.Errorf("%s: got %q, takes a whole number", name, text))
	}
	return n
}

func (r *reader) retryMode() aws.RetryMode {
	const name = "AWS_RETRY_MODE"
	text := r.getenv(name)
	if text == "" {
		return ""
	}
	mode, err := aws.ParseRetryMode(text)
	if err != nil {
		r.faults = append(r.faults, fmt.Errorf("%s: got %q, takes standard or adaptive", name, text))
	}
	return mode
}

// flag is a variable that is true, false, or not set.
type flag int

const (
	unset flag = iota
	off
	on
)

func (r *reader) flag(name string) flag {
	switch text := r.getenv(name); {
	case text == "":
		return unset
	case strings.EqualFold(text, "true"):
		return on
	case strings.EqualFold(text, "false"):
		return off
	default:
		r.faults = append(r.faults, fmt.Errorf("%s: got %q, takes true or false", name, text))
		return unset
	}
}

// trust lets a client trust the authorities of AWS_CA_BUNDLE alone, if there is one.
func (r *reader) trust(client *awshttp.BuildableClient) *awshttp.BuildableClient {
	const name = "AWS_CA_BUNDLE"
	path := r.getenv(name)
	if path == "" {
		return client
	}
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	roots := x509.NewCertPool()
	switch {
	case err != nil:
		r.faults = append(r.faults, fmt.Errorf("%s: takes a readable PEM file: %w", name, err))
	case !roots.AppendCertsFromPEM(text):
		r.faults = append(r.faults, fmt.Errorf("%s: got %q, takes a PEM file with at least one certificate", name, path))
	}
	return client.WithTransportOptions(func(t *http.Transport) {
		if t.TLSClientConfig == nil {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		t.TLSClientConfig.RootCAs = roots
	})
}
