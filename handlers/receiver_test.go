package handlers_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// verify is the receiver's check of docs/routes.md, written from the specification and not from Sign.
func verify(secret string, header http.Header, body []byte) bool {
	stamp, err := strconv.ParseInt(header.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(stamp, 0)).Abs() > 5*time.Minute {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", header.Get("webhook-id"), stamp, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return slices.ContainsFunc(strings.Fields(header.Get("webhook-signature")), func(got string) bool {
		return hmac.Equal([]byte(got), []byte(want))
	})
}

// verifyPair is the same for a key pair.
func verifyPair(public string, header http.Header, body []byte) bool {
	stamp, err := strconv.ParseInt(header.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(stamp, 0)).Abs() > 5*time.Minute {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(public, "whpk_"))
	if err != nil || len(key) != ed25519.PublicKeySize {
		return false
	}
	signed := fmt.Appendf(nil, "%s.%d.%s", header.Get("webhook-id"), stamp, body)
	return slices.ContainsFunc(strings.Fields(header.Get("webhook-signature")), func(got string) bool {
		signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(got, "v1a,"))
		return err == nil && strings.HasPrefix(got, "v1a,") && ed25519.Verify(key, signed, signature)
	})
}

func TestReceiverIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("receiver_test.go")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(content), "\n## Verifying a signature\n")
	blocks := strings.Split(chapter, "```go\n")
	if len(blocks) != 3 {
		t.Fatalf("docs/routes.md holds %d receivers in Go, want 2", len(blocks)-1)
	}
	for _, block := range blocks[1:] {
		documented, _, found := strings.Cut(block, "```")
		if !found || !strings.Contains(string(source), documented) {
			t.Errorf("docs/routes.md holds\n%s\nwhich is not a function of this file", documented)
		}
	}
}
