package awsenv_test

import (
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/openlup/outbox-dispatch/internal/awsenv"
)

// variables are those of the SDK that a test leaves unset unless it names them.
func variables() []string {
	var names []string
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			names = append(names, name)
		}
	}
	return names
}

// setEnvironment makes the AWS part of the process's own environment, which the SDK reads.
func setEnvironment(t *testing.T, values map[string]string) {
	t.Helper()
	for _, name := range variables() {
		t.Setenv(name, "")
		_ = os.Unsetenv(name) // after Setenv has noted what to restore
	}
	none := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	for name, value := range values {
		t.Setenv(name, value)
	}
}

// described is what the clients make of a configuration.
func described(t *testing.T, c aws.Config) map[string]string {
	t.Helper()
	keys, err := c.Credentials.Retrieve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys.Source = ""
	told := map[string]string{
		"config": fmt.Sprint(c.Region, c.RetryMaxAttempts, c.RetryMode, c.AppID, c.DisableClockSkewCorrection, c.AuthSchemePreference, keys),
	}
	for name, options := range map[string]any{
		"sns": sns.NewFromConfig(c).Options(), "sqs": sqs.NewFromConfig(c).Options(), "ses": sesv2.NewFromConfig(c).Options(),
		"events": eventbridge.NewFromConfig(c).Options(), "secrets": secretsmanager.NewFromConfig(c).Options(),
	} {
		o := reflect.ValueOf(options)
		for _, field := range []string{"Region", "RetryMaxAttempts", "RetryMode", "AppID", "DefaultsMode", "AuthSchemePreference"} {
			told[name+" "+field] = fmt.Sprint(o.FieldByName(field))
		}
		told[name+" base"] = aws.ToString(o.FieldByName("BaseEndpoint").Interface().(*string))
		endpoint := o.FieldByName("EndpointOptions")
		for _, field := range []string{"UseFIPSEndpoint", "UseDualStackEndpoint"} {
			told[name+" "+field] = fmt.Sprint(endpoint.FieldByName(field))
		}
	}
	return told
}

func TestVariablesMeanWhatTheyMeanForTheSDK(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true") // nor does the SDK ask anybody then
	for name, values := range map[string]map[string]string{
		"as in Lambda":       {"AWS_SESSION_TOKEN": "token"},
		"other names":        {"AWS_REGION": "", "AWS_DEFAULT_REGION": "eu-north-1", "AWS_ACCESS_KEY_ID": "", "AWS_ACCESS_KEY": "A", "AWS_SECRET_ACCESS_KEY": "", "AWS_SECRET_KEY": "B"},
		"region missing":     {"AWS_REGION": ""},
		"account":            {"AWS_ACCOUNT_ID": "123456789012"},
		"an emulator":        {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"},
		"one service":        {"AWS_ENDPOINT_URL_SESV2": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_SECRETS_MANAGER": "http://127.0.0.1:2"},
		"one service beside": {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566", "AWS_ENDPOINT_URL_SNS": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_SQS": "http://127.0.0.1:2", "AWS_ENDPOINT_URL_EVENTBRIDGE": "http://127.0.0.1:3"},
		"endpoints ignored":  {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566", "AWS_ENDPOINT_URL_SNS": "http://127.0.0.1:1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "True"},
		"not ignored":        {"AWS_ENDPOINT_URL": "http://127.0.0.1:4566", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false"},
		"fips":               {"AWS_USE_FIPS_ENDPOINT": "true"},
		"no fips":            {"AWS_USE_FIPS_ENDPOINT": "FALSE"},
		"dual stack":         {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
		"no dual stack":      {"AWS_USE_DUALSTACK_ENDPOINT": "false"},
		"retries":            {"AWS_MAX_ATTEMPTS": "7", "AWS_RETRY_MODE": "adaptive"},
		"name":               {"AWS_SDK_UA_APP_ID": "shop"},
		"clock":              {"AWS_DISABLE_CLOCK_SKEW_CORRECTION": "true"},
		"schemes":            {"AWS_AUTH_SCHEME_PREFERENCE": "sigv4a, sigv4,"},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]string{"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
			maps.Copy(all, values)
			t.Setenv("AWS_PROFILE", "")
			setEnvironment(t, all)
			sdks, err := config.LoadDefaultConfig(t.Context(), config.WithDefaultsMode(aws.DefaultsModeLegacy))
			if err != nil {
				t.Fatal(err)
			}
			ours, err := awsenv.Load(os.Getenv, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := described(t, sdks)
			for field, got := range described(t, ours) {
				if got != want[field] {
					t.Errorf("%s: got %s, want %s", field, got, want[field])
				}
			}
		})
	}
}

func TestFaultsOfVariablesAreReportedTogether(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bundle := range []string{empty, empty + ".gone"} {
		values := map[string]string{
			"AWS_MAX_ATTEMPTS": "many", "AWS_RETRY_MODE": "never", "AWS_USE_FIPS_ENDPOINT": "1", "AWS_USE_DUALSTACK_ENDPOINT": "no",
			"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "yes", "AWS_DISABLE_CLOCK_SKEW_CORRECTION": "on", "AWS_CA_BUNDLE": bundle,
		}
		_, err := awsenv.Load(func(name string) string { return values[name] }, nil)
		for name := range values {
			if err == nil || !strings.Contains(err.Error(), name+": ") {
				t.Errorf("got %v, want a fault of %s", err, name)
			}
		}
	}
}

func TestMissingCredentialsAreAnErrorOfTheRequest(t *testing.T) {
	t.Parallel()
	c, err := awsenv.Load(func(string) string { return "" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sns.NewFromConfig(c, func(o *sns.Options) { o.Region = "eu-central-1" }).ListTopics(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Errorf("got %v, want the variables to set", err)
	}
}

func TestBundleIsAllThatIsTrusted(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	bundle := filepath.Join(t.TempDir(), "bundle.pem")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"": false, bundle: true} {
		given := awshttp.NewBuildableClient()
		c, err := awsenv.Load(func(name string) string { return map[string]string{"AWS_CA_BUNDLE": path}[name] }, given)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.HTTPClient.Do(request)
		if (err == nil) != want {
			t.Errorf("bundle %q: got %v, want an answer: %t", path, err, want)
		}
		if response != nil {
			_ = response.Body.Close()
		}
	}
}
