// Package webhook is the receiving end's view of Standard Webhooks: it makes secrets and checks signatures, with nothing
// of the code that signs.
package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Key is one secret's bytes.
type Key []byte

// NewKey makes a random key.
func NewKey() Key {
	key := make(Key, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

// Secret is the key as a routes file takes it.
func (k Key) Secret() string { return "whsec_" + base64.StdEncoding.EncodeToString(k) }

// Signed tells whether a request is of now and carries one valid v1 signature for each key, in the keys' order, and no
// other.
func Signed(header http.Header, body []byte, keys []Key, now time.Time) bool {
	timestamp := header.Get("webhook-timestamp")
	return recent(timestamp, now) &&
		verify(keys, header.Get("webhook-id"), timestamp, body, header.Get("webhook-signature"))
}

// recent tells whether a timestamp in Unix seconds is within five minutes of now, as Standard Webhooks asks.
func recent(timestamp string, now time.Time) bool {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	return err == nil && now.Sub(time.Unix(seconds, 0)).Abs() <= 5*time.Minute
}

func verify(keys []Key, id, timestamp string, body []byte, list string) bool {
	signatures := strings.Fields(list)
	if len(keys) == 0 || len(signatures) != len(keys) {
		return false
	}
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		if !hmac.Equal([]byte(signatures[i]), []byte("v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))) {
			return false
		}
	}
	return true
}
