package handlers

import (
	"bytes"
	"crypto/ed25519"
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

// Forms of a secret, and its bounds in bytes once decoded.
const (
	symmetricPrefix = "whsec_"
	minSecretSize   = 24
	maxSecretSize   = 64

	privatePrefix = "whsk_"

	takesForm = "takes whsec_ and base64 of 24 to 64 bytes, or whsk_ and base64 of an ed25519 key"
)

// Secret is a signing key of Standard Webhooks: symmetric, or the private half of an ed25519 pair. It prints as a
// placeholder.
type Secret struct {
	symmetric []byte
	private   ed25519.PrivateKey // nil for a symmetric one
}

// ParseSecret reads a secret in its text form: whsec_ followed by standard base64 of 24 to 64 random bytes, or whsk_
// followed by that of an ed25519 private key, which is 32 bytes of seed, or these with the 32 of the public key behind
// them. Errors don't show the text.
func ParseSecret(text string) (Secret, error) {
	if encoded, found := strings.CutPrefix(text, privatePrefix); found {
		return parsePrivate(encoded)
	}
	encoded, found := strings.CutPrefix(text, symmetricPrefix)
	if !found {
		return Secret{}, errors.New("starts with neither whsec_ nor whsk_, " + takesForm)
	}
	key, err := decodeKey(encoded)
	if err != nil {
		return Secret{}, err
	}
	if len(key) < minSecretSize || len(key) > maxSecretSize {
		return Secret{}, fmt.Errorf("holds %d bytes, takes %d to %d", len(key), minSecretSize, maxSecretSize)
	}
	return Secret{symmetric: key}, nil
}

func parsePrivate(encoded string) (Secret, error) {
	key, err := decodeKey(encoded)
	if err != nil {
		return Secret{}, err
	}
	switch len(key) {
	case ed25519.SeedSize:
		return Secret{private: ed25519.NewKeyFromSeed(key)}, nil
	case ed25519.PrivateKeySize:
		// A public half of another key would make signatures that nobody can verify.
		private := ed25519.NewKeyFromSeed(key[:ed25519.SeedSize])
		if !bytes.Equal(private, key) {
			return Secret{}, errors.New("holds a public key that is not its private key's, takes a pair")
		}
		return Secret{private: private}, nil
	}
	return Secret{}, fmt.Errorf("holds %d bytes, takes %d (a seed) or %d (a seed and its public key)",
		len(key), ed25519.SeedSize, ed25519.PrivateKeySize)
}

func decodeKey(encoded string) ([]byte, error) {
	// StdEncoding skips line breaks, and a secret that holds one was copied wrongly.
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") {
		return nil, errors.New("is not standard base64 after its prefix, " + takesForm)
	}
	return key, nil
}

// String hides the key.
func (s Secret) String() string {
	if s.private != nil {
		return privatePrefix + "***"
	}
	return symmetricPrefix + "***"
}

// GoString hides the key.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the key.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Sign returns the webhook-signature header of Standard Webhooks 1.0.0: a signature for each secret, in their order and
// separated by spaces, v1 (HMAC-SHA256) for a symmetric one and v1a (ed25519) for a private key; empty without secrets.
// It signs the id (which must not hold a dot), the Unix time of the attempt in seconds, and the body exactly as sent.
func Sign(id string, at time.Time, body []byte, secrets ...Secret) string {
	if len(secrets) == 0 {
		return ""
	}
	content := append([]byte(id+"."+strconv.FormatInt(at.Unix(), 10)+"."), body...)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signatures[i] = secret.sign(content)
	}
	return strings.Join(signatures, " ")
}

func (s Secret) sign(content []byte) string {
	if s.private != nil {
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(s.private, content))
	}
	mac := hmac.New(sha256.New, s.symmetric)
	mac.Write(content)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
