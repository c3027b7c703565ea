package handlers_test

import (
	"crypto/ed25519"
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
		"", "hunter2", encoded, "whsk_" + encoded, "whpk_" + encoded, "WHSK_" + encoded, "whsk_hunter2!", "WHSEC_" + encoded, "whsec_hunter2!", "whsec_" + encoded + "\n",
		"whsec_" + strings.TrimRight(encoded, "="), "whsec_" + encoded[:20] + "\n" + encoded[20:], "whsec_aHVudGVyMg==",
	} {
		_, err := handlers.ParseSecret(text)
		if err == nil {
			t.Errorf("%q was accepted", text)
			continue
		}
		if body := strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text, "whsec_"), "whsk_")); len(body) > 0 && strings.Contains(err.Error(), body) {
			t.Errorf("error %q shows the secret", err)
		}
	}
}

// privateSecret makes a key from a seed of one byte repeated: its text with the public half behind the seed, its text
// without, and the public key.
func privateSecret(fill byte) (long, short string, public ed25519.PublicKey) {
	private := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(fill)), ed25519.SeedSize)))
	return "whsk_" + base64.StdEncoding.EncodeToString(private), "whsk_" + base64.StdEncoding.EncodeToString(private.Seed()),
		private.Public().(ed25519.PublicKey)
}

func TestParseSecretTakesAPrivateKeyWithAndWithoutItsPublicHalf(t *testing.T) {
	t.Parallel()
	long, short, public := privateSecret('k')
	for _, text := range []string{long, short} {
		secret, err := handlers.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		got := handlers.Sign("msg_1", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), secret)
		encoded, found := strings.CutPrefix(got, "v1a,")
		signature, err := base64.StdEncoding.DecodeString(encoded)
		if !found || err != nil {
			t.Fatalf("signature %q (%v), want v1a, and base64", got, err)
		}
		if !ed25519.Verify(public, []byte(`msg_1.1614265330.{"test": 2432232314}`), signature) {
			t.Errorf("%q does not verify with the public key", got)
		}
	}
}

// A key whose halves are not one pair would sign what no receiver can verify.
func TestParseSecretRefusesAPublicHalfOfAnotherKey(t *testing.T) {
	t.Parallel()
	_, _, public := privateSecret('k')
	seed := []byte(strings.Repeat("j", ed25519.SeedSize))
	_, err := handlers.ParseSecret("whsk_" + base64.StdEncoding.EncodeToString(append(seed, public...)))
	if err == nil || !strings.Contains(err.Error(), "public key") {
		t.Errorf("error %v, want one about the public key", err)
	}
}

func TestParseSecretTakesPrivateKeysOf32Or64Bytes(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 24, 31, 33, 63, 65} {
		text := "whsk_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", size)))
		if _, err := handlers.ParseSecret(text); err == nil {
			t.Errorf("a private key of %d bytes was accepted", size)
		}
	}
}

func TestSecretPrintsAsAPlaceholder(t *testing.T) {
	t.Parallel()
	long, short, _ := privateSecret('k')
	for text, want := range map[string]string{secretOf(24): "whsec_***", long: "whsk_***", short: "whsk_***"} {
		secret, err := handlers.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("m", slog.Any("s", secret))
		for _, text := range []string{fmt.Sprint(secret), fmt.Sprintf("%v %+v %#v %s", secret, secret, secret, secret), log.String()} {
			if strings.Contains(text, "kkk") || strings.Contains(text, "107") || !strings.Contains(text, want) {
				t.Errorf("printed as %s, want %s", text, want)
			}
		}
	}
}
