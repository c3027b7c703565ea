package webhook

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"
)

func TestTimestampsAreOfNow(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for timestamp, want := range map[string]bool{
		"1700000000": true, "1699999700": true, "1700000300": true, "1699999699": false, "1700000301": false, "": false, "now": false,
	} {
		if got := recent(timestamp, now); got != want {
			t.Errorf("recent(%q) is %t, want %t", timestamp, got, want)
		}
	}
}

// The vector is that of the Standard Webhooks specification.
func TestVerify(t *testing.T) {
	t.Parallel()
	raw, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	key := Key(raw)
	const id, timestamp, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`
	const signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	for _, c := range []struct {
		name       string
		keys       []Key
		body, sent string
		want       bool
	}{
		{"the vector", []Key{key}, body, signature, true},
		{"another body", []Key{key}, body + " ", signature, false},
		{"another signature", []Key{key}, body, signature + "x", false},
		{"one of two", []Key{key, key}, body, signature, false},
		{"no key", nil, body, "", false},
	} {
		if got := verify(c.keys, id, timestamp, []byte(c.body), c.sent); got != c.want {
			t.Errorf("%s: verified %t, want %t", c.name, got, c.want)
		}
	}
}

func TestSignedReadsTheHeaders(t *testing.T) {
	t.Parallel()
	raw, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	header.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	header.Set("webhook-timestamp", "1614265330")
	header.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	body := []byte(`{"test": 2432232314}`)
	if now := time.Unix(1614265331, 0); !Signed(header, body, []Key{raw}, now) {
		t.Error("not signed, want signed")
	}
	if late := time.Unix(1614265330+301, 0); Signed(header, body, []Key{raw}, late) {
		t.Error("signed, want the timestamp too old")
	}
	if Signed(header, body, []Key{NewKey()}, time.Unix(1614265331, 0)) {
		t.Error("signed, want another key to refuse")
	}
}
