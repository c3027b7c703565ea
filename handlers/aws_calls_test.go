package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// callFault is a way in which a call gets no answer.
type callFault struct {
	outcome outbox.Outcome
	reason  string
	url     func(*testing.T) string
	client  aws.HTTPClient
	keys    aws.CredentialsProvider
}

func noServer(*testing.T) string { return "http://aws.test" }

// dialer is an HTTP client of another path.
func dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) aws.HTTPClient {
	return &http.Client{Transport: &http.Transport{DialContext: dial}}
}

func keysFail(err error) aws.CredentialsProvider {
	return aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, err
	}))
}

func callFaults() map[string]callFault {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("hunter2 refused")}
	return map[string]callFault{
		"name not found": {outcome: snoozeIt, reason: "unreachable", url: noServer, client: dialer(
			func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "hunter2", IsNotFound: true}
			})},
		"refused": {outcome: snoozeIt, reason: "unreachable", url: func(t *testing.T) string { return "http://" + rawAddress(t) }},
		"dial fails": {outcome: snoozeIt, reason: "unreachable", url: noServer, client: dialer(
			func(context.Context, string, string) (net.Conn, error) { return nil, refused })},
		"proxy refuses": {outcome: snoozeIt, reason: "unreachable", url: noServer, client: &http.Client{Transport: &http.Transport{
			Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"}),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, refused },
		}}},
		"certificate not accepted": {outcome: snoozeIt, reason: "unreachable", url: func(t *testing.T) string {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			return server.URL
		}},
		"no TLS": {outcome: snoozeIt, reason: "unreachable", url: func(t *testing.T) string {
			return "https://" + rawServer(t, func(c *net.TCPConn) { io.WriteString(c, "hunter2 speaks no TLS\r\n\r\n") })
		}},
		"cut before an answer": {outcome: retryIt, reason: "connection_lost", url: func(t *testing.T) string {
			return "http://" + rawServer(t, func(*net.TCPConn) {})
		}},
		"reset before an answer": {outcome: retryIt, reason: "connection_lost", url: func(t *testing.T) string {
			return "http://" + rawServer(t, func(c *net.TCPConn) { c.SetLinger(0) })
		}},
		"the client's own timeout": {outcome: retryIt, reason: "connection_lost", url: func(t *testing.T) string {
			return "http://" + rawServer(t, func(c *net.TCPConn) { untilClosed(c) })
		}, client: &http.Client{Timeout: 200 * time.Millisecond}},
		"endpoint cannot be parsed": {
			outcome: snoozeIt, reason: "endpoint_invalid", url: func(*testing.T) string { return "::hunter2" },
		},
		"endpoint has no scheme": {
			outcome: snoozeIt, reason: "endpoint_invalid", url: func(*testing.T) string { return "hunter2" },
		},
		"endpoint has no host": {
			outcome: snoozeIt, reason: "endpoint_invalid", url: func(*testing.T) string { return "http:///hunter2" },
		},
		"credentials fail": {
			outcome: snoozeIt, reason: "credentials_missing", url: noServer, keys: keysFail(errors.New("hunter2 has expired")),
		},
		"credentials cannot be fetched": {
			outcome: snoozeIt, reason: "credentials_missing", url: noServer, keys: keysFail(fmt.Errorf("fetch: %w", refused)),
		},
	}
}

func TestCallFaults(t *testing.T) {
	t.Parallel()
	for name, c := range callFaults() {
		check := func(t *testing.T, got outbox.Settlement, service string) {
			t.Helper()
			if want := service + "_" + c.reason + ": "; got.Outcome != c.outcome || !strings.HasPrefix(got.Reason, want) {
				t.Errorf("got %s %q, want %s %q", got.Outcome, got.Reason, c.outcome, want)
			}
			expectPrivate(t, got.Reason)
		}
		t.Run("sns "+name, func(t *testing.T) {
			t.Parallel()
			handler := newSNS(t, handlers.SNSConfig{}, c.url(t), func(o *sns.Options) {
				if c.client != nil {
					o.HTTPClient = c.client
				}
				if c.keys != nil {
					o.Credentials = c.keys
				}
			})
			check(t, settlementOf(t, handler, sampleEvent(), 0), "sns")
		})
		t.Run("ses "+name, func(t *testing.T) {
			t.Parallel()
			handler := newSES(t, handlers.SESConfig{}, c.url(t), func(o *sesv2.Options) {
				if c.client != nil {
					o.HTTPClient = c.client
				}
				if c.keys != nil {
					o.Credentials = c.keys
				}
			})
			check(t, settlementOf(t, handler, mailEvent(""), 0), "ses")
		})
	}
}

// In a VPC without a way out packets vanish: nothing fails, and only the route's timeout ends the call.
func TestACallThatNeverConnectsIsSnoozed(t *testing.T) {
	t.Parallel()
	lost := dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	for service, got := range map[string]outbox.Settlement{
		"sns": settlementOf(t, newSNS(t, handlers.SNSConfig{}, "http://aws.test", func(o *sns.Options) { o.HTTPClient = lost }),
			sampleEvent(), 50*time.Millisecond),
		"ses": settlementOf(t, newSES(t, handlers.SESConfig{}, "http://aws.test", func(o *sesv2.Options) { o.HTTPClient = lost }),
			mailEvent(""), 50*time.Millisecond),
	} {
		if got.Outcome != snoozeIt || !strings.HasPrefix(got.Reason, service+"_unreachable: ") {
			t.Errorf("got %s %q, want a snooze as %s_unreachable", got.Outcome, got.Reason, service)
		}
	}
}

// lateContext passes its deadline when told to.
type lateContext struct{ done chan struct{} }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (c lateContext) Done() <-chan struct{}     { return c.done }
func (lateContext) Value(any) any               { return nil }

func (c lateContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A call that was sent may have been accepted: by its timeout it is a retry, by the end of the pass nothing at all.
func TestACallThatWasSentEndsWithItsContext(t *testing.T) {
	t.Parallel()
	sent := make(chan struct{}, 16)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		sent <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	for service, deliver := range map[string]func(context.Context) error{
		"sns": func(ctx context.Context) error {
			_, err := newSNS(t, handlers.SNSConfig{}, server.URL).Handle(ctx, sampleEvent())
			return err
		},
		"ses": func(ctx context.Context) error {
			_, err := newSES(t, handlers.SESConfig{}, server.URL).Handle(ctx, mailEvent(""))
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-sent
			cancel()
		}()
		if err := deliver(ctx); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "canceled") {
			t.Errorf("%s canceled: error %v, want one that wraps the context's", service, err)
		}
		late := lateContext{done: make(chan struct{})}
		go func() {
			<-sent
			close(late.done)
		}()
		if err := deliver(late); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "timeout") {
			t.Errorf("%s late: error %v, want one that wraps the context's", service, err)
		}
	}
}

func TestCallsEndWithAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	topic, mail := snsAnswers(t), sesAnswers(t)
	if _, err := newSNS(t, handlers.SNSConfig{}, topic.URL).Handle(ctx, sampleEvent()); !errors.Is(err, context.Canceled) {
		t.Errorf("sns: error %v, want the context's", err)
	}
	if _, err := newSES(t, handlers.SESConfig{}, mail.URL).Handle(ctx, mailEvent("")); !errors.Is(err, context.Canceled) {
		t.Errorf("ses: error %v, want the context's", err)
	}
	if n := topic.requests.Load() + mail.requests.Load(); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

func TestCallsAreTriedTwiceAtMostWhateverTheClientAllows(t *testing.T) {
	t.Parallel()
	retryer := func(attempts int) aws.Retryer { return retry.AddWithMaxAttempts(eager(), attempts) }
	for name, c := range map[string]struct {
		retryer aws.Retryer
		limit   int // of the client itself
		want    int64
	}{
		"default":     {want: 2},
		"no limit":    {retryer: retryer(0), want: 2},
		"one":         {retryer: retryer(1), want: 1},
		"two":         {retryer: retryer(2), want: 2},
		"ten":         {retryer: retryer(10), want: 2},
		"none":        {retryer: aws.NopRetryer{}, want: 1},
		"limit ten":   {limit: 10, want: 2},
		"limit one":   {limit: 1, want: 1},
		"limit twice": {retryer: retryer(9), limit: 5, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic, mail := serve(t, http.StatusInternalServerError, ""), serve(t, http.StatusInternalServerError, "")
			publisher, err := handlers.NewSNS(handlers.SNSConfig{TopicARN: topicARN, Client: sns.New(sns.Options{
				BaseEndpoint: &topic.URL, Credentials: credentials(), Retryer: c.retryer, RetryMaxAttempts: c.limit,
			})})
			if err != nil {
				t.Fatal(err)
			}
			mailer, err := handlers.NewSES(handlers.SESConfig{From: sender, Client: sesv2.New(sesv2.Options{
				Region: "us-east-1", BaseEndpoint: &mail.URL, Credentials: credentials(), Retryer: c.retryer, RetryMaxAttempts: c.limit,
			})})
			if err != nil {
				t.Fatal(err)
			}
			settlementOf(t, publisher, sampleEvent(), 0)
			settlementOf(t, mailer, mailEvent(""), 0)
			if got := topic.requests.Load(); got != c.want {
				t.Errorf("sns: %d requests, want %d", got, c.want)
			}
			if got := mail.requests.Load(); got != c.want {
				t.Errorf("ses: %d requests, want %d", got, c.want)
			}
		})
	}
}

// A kept connection that died while the sandbox was frozen costs no attempt of the event.
func TestASecondAttemptDelivers(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, `{"MessageId": "2"}`)
	}))
	t.Cleanup(server.Close)
	if _, err := newSES(t, handlers.SESConfig{}, server.URL).Handle(t.Context(), mailEvent("")); err != nil {
		t.Error(err)
	}
}
