package handlers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Bounds of a secret, in bytes once decoded.
const (
	secretPrefix  = "whsec_"
	minSecretSize = 24
	maxSecretSize = 64
)

// Secret is a symmetric signing key of Standard Webhooks. It prints as a placeholder.
type Secret struct{ key []byte }

// ParseSecret reads a secret in its text form: whsec_ followed by standard base64 of 24 to 64 random bytes. Errors
// don't show the text.
func ParseSecret(text string) (Secret, error) {
	encoded, found := strings.CutPrefix(text, secretPrefix)
	if !found {
		return Secret{}, errors.New("does not start with whsec_, takes whsec_ and base64 of 24 to 64 bytes")
	}
	// StdEncoding skips line breaks, and a secret that holds one was copied wrongly.
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") {
		return Secret{}, errors.New("is not standard base64 after whsec_, takes whsec_ and base64 of 24 to 64 bytes")
	}
	if len(key) < minSecretSize || len(key) > maxSecretSize {
		return Secret{}, fmt.Errorf("holds %d bytes, takes %d to %d", len(key), minSecretSize, maxSecretSize)
	}
	return Secret{key: key}, nil
}

// String hides the key.
func (Secret) String() string { return secretPrefix + "***" }

// GoString hides the key.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the key.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Sign returns the webhook-signature header of Standard Webhooks 1.0.0: a v1 signature (HMAC-SHA256) for each
// secret, separated by spaces; empty without secrets. It signs the id (which must not hold a dot), the Unix time of
// the attempt in seconds, and the body exactly as sent.
func Sign(id string, at time.Time, body []byte, secrets ...Secret) string {
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		mac := hmac.New(sha256.New, secret.key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}
