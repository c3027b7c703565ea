package database

import (
	"crypto/tls"
	"crypto/x509"
	_ "embed" // for the roots
	"encoding/pem"
	"net/netip"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// amazonRoots are the authorities of RDS, Aurora and RDS Proxy; the file says where it is from, and when.
//
//go:embed roots/amazon.pem
var amazonRoots []byte

// sslModes leaves out allow and prefer, which fall back to plaintext without a word.
func sslModes() []string { return []string{"disable", "require", "verify-ca", defaultMode} }

// defaultMode is how a server is verified when nothing is said.
const defaultMode = "verify-full"

// tlsRules completes the TLS of a parsed configuration. With no mode said, hosts of this machine are reached in
// plaintext and every other is verified in full; plaintext to another machine must be said. With no roots said,
// Amazon's and the system's are trusted.
func tlsRules(c *pgconn.Config, mode, root string) {
	c.TLSConfig = tlsRule(c.Host, c.TLSConfig, mode, root)
	for _, fallback := range c.Fallbacks {
		fallback.TLSConfig = tlsRule(fallback.Host, fallback.TLSConfig, mode, root)
	}
}

func tlsRule(host string, parsed *tls.Config, mode, root string) *tls.Config {
	// Plaintext explicitly: pgx takes sslrootcert=system for a wish to verify, whatever the mode.
	if mode == "disable" || mode == "" && isLocal(host) {
		return nil
	}
	if parsed != nil && root == "" {
		// In place: the check of verify-ca reads the roots through this pointer.
		parsed.RootCAs = trustedRoots()
	}
	return parsed
}

func trustedRoots() *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(amazonRoots)
	return pool
}

// isLocal tells whether a host is this machine: a Unix socket's folder, localhost, or a loopback address.
func isLocal(host string) bool {
	if strings.HasPrefix(host, "/") || host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// holdsCertificate tells whether a PEM text holds a certificate that parses.
func holdsCertificate(text []byte) bool {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return false
		}
		if block.Type == "CERTIFICATE" {
			if _, err := x509.ParseCertificate(block.Bytes); err == nil {
				return true
			}
		}
	}
}
