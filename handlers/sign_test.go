package handlers_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
)

func secretOf(size int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", size)))
}

func TestSignGivesTheOfficialVector(t *testing.T) {
	t.Parallel()
	secret, err := handlers.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := handlers.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 999), []byte(`{"test": 2432232314}`), secret)
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got != want {
		t.Errorf("signature %q, want %q", got, want)
	}
}

func TestSignWithoutSecretsIsEmpty(t *testing.T) {
	t.Parallel()
	if got := handlers.Sign("id", time.Unix(0, 0), nil); got != "" {
		t.Errorf("signature %q, want none", got)
	}
}

func TestParseSecretTakes24To64Bytes(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{0: false, 23: false, 24: true, 32: true, 64: true, 65: false} {
		if _, err := handlers.ParseSecret(secretOf(size)); (err == nil) != want {
			t.Errorf("%d bytes: error %v, want accepted %t", size, err, want)
		}
	}
}

func TestParseSecretErrorsHideTheText(t *testing.T) {
	t.Parallel()
	encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 31)))
	for _, text := range []string{
		"", "hunter2", encoded, "whsk_" + encoded, "WHSEC_" + encoded, "whsec_hunter2!", "whsec_" + encoded + "\n",
		"whsec_" + strings.TrimRight(encoded, "="), "whsec_" + encoded[:20] + "\n" + encoded[20:], "whsec_aHVudGVyMg==",
	} {
		_, err := handlers.ParseSecret(text)
		if err == nil {
			t.Errorf("%q was accepted", text)
			continue
		}
		if body := strings.TrimSpace(strings.TrimPrefix(text, "whsec_")); len(body) > 0 && strings.Contains(err.Error(), body) {
			t.Errorf("error %q shows the secret", err)
		}
	}
}

func TestSecretPrintsAsAPlaceholder(t *testing.T) {
	t.Parallel()
	secret, err := handlers.ParseSecret(secretOf(24))
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", slog.Any("s", secret))
	for _, text := range []string{fmt.Sprint(secret), fmt.Sprintf("%v %+v %#v %s", secret, secret, secret, secret), log.String()} {
		if strings.Contains(text, "kkk") || strings.Contains(text, "107") || !strings.Contains(text, "whsec_***") {
			t.Errorf("printed as %s, want whsec_***", text)
		}
	}
}
