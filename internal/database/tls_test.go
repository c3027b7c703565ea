package database

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"
)

func yes(string) bool { return true }

func TestTLSByHostAndMode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		url, mode string
		want      string // per host: plain, full, or unverified
	}{
		"another machine":              {"postgres://db.example.com/d", "", "full"},
		"loopback name":                {"postgres://localhost/d", "", "plain"},
		"loopback v4":                  {"postgres://127.0.0.2/d", "", "plain"},
		"loopback v6":                  {"postgres://[::1]/d", "", "plain"},
		"socket":                       {"postgres:///d?host=/var/run/postgresql", "", "plain"},
		"a name that looks like it":    {"postgres://localhost.example.com/d", "", "full"},
		"several hosts":                {"postgres://localhost:1,db.example.com:2/d", "", "plain full"},
		"said in the URL":              {"postgres://db.example.com/d?sslmode=disable", "", "plain"},
		"said for loopback":            {"postgres://localhost/d?sslmode=verify-full", "", "full"},
		"the variable overrides":       {"postgres://db.example.com/d?sslmode=disable", "verify-full", "full"},
		"the variable overrides down":  {"postgres://db.example.com/d?sslmode=verify-full", "disable", "plain"},
		"encryption only":              {"postgres://db.example.com/d?sslmode=require", "", "unverified"},
		"disable beside system roots":  {"postgres://db.example.com/d?sslmode=disable&sslrootcert=system", "", "plain"},
		"require beside system roots":  {"postgres://db.example.com/d?sslmode=require&sslrootcert=system", "", "full"},
		"question mark in a password":  {"postgres://u:p?w@db.example.com/d?sslmode=disable", "", "plain"},
		"user that looks like a query": {"postgres://u:p?sslmode=disable@db.example.com/d", "", "full"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fromEnv(t, map[string]string{"DATABASE_URL": test.url, "OUTBOX_DB_SSLMODE": test.mode})
			conn := c.url.ConnConfig
			got := []string{}
			describe := func(skip, isNil bool) {
				switch {
				case isNil:
					got = append(got, "plain")
				case skip:
					got = append(got, "unverified")
				default:
					got = append(got, "full")
				}
			}
			describe(conn.TLSConfig != nil && conn.TLSConfig.InsecureSkipVerify, conn.TLSConfig == nil)
			for _, f := range conn.Fallbacks {
				describe(f.TLSConfig != nil && f.TLSConfig.InsecureSkipVerify, f.TLSConfig == nil)
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestServerIsVerified(t *testing.T) {
	t.Parallel()
	right, rightRoot := certificate(t, "127.0.0.1")
	other, otherRoot := certificate(t, "db.example.com")
	for name, test := range map[string]struct {
		settings string
		other    bool   // the server shows the certificate of another host
		want     string // part of the error; empty: connects
	}{
		"trusted":                            {settings: "?sslmode=verify-full&sslrootcert=" + rightRoot},
		"another host's certificate":         {settings: "?sslmode=verify-full&sslrootcert=" + otherRoot, other: true, want: "127.0.0.1"},
		"verify-ca takes any name":           {settings: "?sslmode=verify-ca&sslrootcert=" + otherRoot, other: true},
		"unknown authority, default roots":   {settings: "?sslmode=verify-full", want: "unknown authority"},
		"verify-ca against default roots":    {settings: "?sslmode=verify-ca", want: "unknown authority"},
		"require verifies nothing":           {settings: "?sslmode=require"},
		"plaintext to loopback when unsaid":  {settings: ""},
		"repeated mode: ours is what counts": {settings: "?sslmode=verify-full&sslmode=verify-full&sslrootcert=" + rightRoot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cert := right
			if test.other {
				cert = other
			}
			s := startServer(t, cert, yes)
			pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url(test.settings)}))
			err := pool.Ready(t.Context())
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, want an error with %q", err, test.want)
				}
				if n := len(s.attempts()); n != 0 {
					t.Errorf("the password was sent to a server that was not verified")
				}
				return
			}
			if err != nil {
				t.Fatalf("got %v, want a connection", err)
			}
			if got, want := s.attempts()[0].encrypted, test.settings != ""; got != want {
				t.Errorf("encrypted: got %v, want %v", got, want)
			}
		})
	}
}

func TestTLSIsNotGivenUpWhenTheServerHasNone(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, yes)
	pool := openPool(t, fromEnv(t, map[string]string{"DATABASE_URL": s.url("?sslmode=require")}))
	if err := pool.Ready(t.Context()); err == nil {
		t.Error("got a plaintext connection, want an error")
	}
	if got := s.attempts(); len(got) != 0 {
		t.Errorf("got %d logins, want none", len(got))
	}
}

func TestEmbeddedRootsParseAndAreCurrent(t *testing.T) {
	t.Parallel()
	taken := time.Date(2026, time.November, 30, 0, 0, 0, 0, time.UTC)
	regional, amazon := 0, 0
	for text := amazonRoots; ; {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		if !cert.IsCA || taken.Before(cert.NotBefore) || taken.After(cert.NotAfter) || !bytes.Equal(cert.RawIssuer, cert.RawSubject) {
			t.Errorf("%s (until %v) is no current root", cert.Subject, cert.NotAfter)
		}
		if strings.HasPrefix(cert.Subject.CommonName, "Amazon RDS ") {
			regional++
		} else {
			amazon++
		}
	}
	// Three keys for each of 27 regions; four Amazon roots and Starfield's.
	if regional != 81 || amazon != 5 {
		t.Errorf("got %d regional roots and %d of Amazon Trust, want 81 and 5", regional, amazon)
	}
}
