package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/openlup/outbox-dispatch/internal/routes"
	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	// secretLife is how long a secret is used before it is read again.
	secretLife = 10 * time.Minute
	// secretRetry is the pause before a secret that could not be read again is tried once more.
	secretRetry = time.Minute
	// secretTimeout is how long an invocation waits for Secrets Manager without a value, and secretAgain with one.
	secretTimeout = 5 * time.Second
	secretAgain   = 2 * time.Second
	// secretReads is how many secrets are read at once.
	secretReads = 8
)

var errSecretTimeout = errors.New("no answer from Secrets Manager in time; without a way out of a VPC there never is one")

// secrets reads secrets by their ARN and remembers them. It is safe for concurrent use.
type secrets struct {
	cloud  *cloud
	logger *slog.Logger

	mu    sync.Mutex
	known map[string]*secret // by ARN
}

// secret is what is known of one.
type secret struct {
	mu   sync.Mutex // held while it is read, so that those who ask at once read it once
	read bool
	text string
	due  time.Time // when to read it again, wall clock: the other one may stand still in a frozen sandbox
}

// resolve returns what a reference stands for, an ARN or an ARN#key (see [routes.IsSecret]): from memory for ten minutes,
// then read again. Where that fails the old value stays, with a warning in the log. Errors hold nothing of a secret.
func (s *secrets) resolve(ctx context.Context, reference string) (string, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return s.value(ctx, reference)
}

func (s *secrets) value(ctx context.Context, reference string) (string, error) {
	arn, key, hasKey := strings.Cut(reference, "#")
	text, err := s.of(arn).current(ctx, s, arn)
	if err != nil || !hasKey {
		return text, err
	}
	return valueOf(text, key)
}

// all resolves many references side by side. The error joins those of all that failed, each with the secret's name.
func (s *secrets) all(ctx context.Context, references []string) (map[string]string, error) {
	values, faults := make([]string, len(references)), make([]error, len(references))
	slots := make(chan struct{}, secretReads)
	ctx, cancel := inTime(ctx)
	defer cancel()
	var wait sync.WaitGroup
	for i, reference := range references {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			var err error
			if values[i], err = s.value(ctx, reference); err != nil {
				faults[i] = fmt.Errorf("%s: %w", routes.Unknown{Name: reference}.Label(), err)
			}
		})
	}
	wait.Wait()
	resolved := make(map[string]string, len(references))
	for i, reference := range references {
		resolved[reference] = values[i]
	}
	return resolved, errors.Join(faults...)
}

// forget makes the next look at any secret a reading, as after one that cannot be used.
func (s *secrets) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = nil
}

func (s *secrets) of(arn string) *secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]*secret{}
	}
	if s.known[arn] == nil {
		s.known[arn] = new(secret)
	}
	return s.known[arn]
}

func (e *secret) current(ctx context.Context, s *secrets, arn string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.read && time.Now().Round(0).Before(e.due) {
		return e.text, nil
	}
	wait := secretTimeout
	if e.read {
		wait = secretAgain
	}
	cfg, err := s.cloud.config(ctx)
	var text string
	if err == nil {
		text, err = readSecret(ctx, cfg, arn, wait)
	}
	switch {
	case err != nil && e.read:
		e.due = time.Now().Round(0).Add(secretRetry)
		s.logger.LogAttrs(ctx, slog.LevelWarn, "[outbox-dispatch] secret_unread",
			slog.String("secret", arn[strings.LastIndex(arn, ":")+1:]), slog.String("error", err.Error()))
	case err != nil:
		return "", err
	default:
		e.read, e.text, e.due = true, text, time.Now().Round(0).Add(secretLife)
	}
	return e.text, nil
}

// valueOf returns one key of a secret that is a JSON object.
func valueOf(text, key string) (string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return "", errors.New("it is no JSON object, and so has no keys")
	}
	raw, found := object[key]
	var value string
	switch err := json.Unmarshal(raw, &value); {
	case !found:
		return "", errors.New("its JSON object has no such key")
	case err == nil && string(raw) != "null":
		return value, nil
	case strings.ContainsAny(string(raw[:1]), "{[n"):
		return "", errors.New("what stands there is no text, number or boolean")
	}
	return string(raw), nil
}

// inTime bounds what is read, so that there is time for the answer before the invocation's deadline.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := secretTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-min(outbox.MarkMargin, left/2))
	}
	return context.WithTimeoutCause(ctx, wait, errSecretTimeout)
}

// checkSecretARN never shows what it refuses: it may be the routes or a secret itself.
func checkSecretARN(arn string) error {
	parts := strings.SplitN(arn, ":", 7)
	if len(parts) == 7 && parts[0] == "arn" && parts[2] == "secretsmanager" && parts[3] != "" && parts[5] == "secret" {
		return nil
	}
	return fmt.Errorf("%s: not an ARN, takes arn:aws:secretsmanager:<region>:<account>:secret:<name>", routesARN)
}

// readSecret returns the text of a secret whose ARN was checked. It waits no longer than that. Its errors hold nothing of
// the secret.
func readSecret(ctx context.Context, cfg aws.Config, arn string, wait time.Duration) (string, error) {
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

// secretsAmong returns the references to secrets among what a check left out, each once.
func secretsAmong(unknown []routes.Unknown) []string {
	var references []string
	for _, u := range unknown {
		references = append(references, u.Name)
	}
	slices.Sort(references)
	return slices.Compact(references)
}
