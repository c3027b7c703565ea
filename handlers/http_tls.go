package handlers

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const certificateBlock = "CERTIFICATE"

// tlsFaults looks at the certificates and the key, and shows none of them.
func (c HTTPConfig) tlsFaults() (faults []*FieldError) {
	report := func(field string, err error) {
		if err != nil {
			faults = append(faults, &FieldError{Field: field, Problem: err.Error()})
		}
	}
	if c.CA != "" {
		_, err := parseCertificates(c.CA)
		report("ca", err)
	}
	switch {
	case c.ClientCertificate == "" && c.ClientKey == "":
	case c.ClientCertificate == "":
		report("client_certificate", errors.New("missing, takes the certificate of client_key in PEM"))
	case c.ClientKey == "":
		report("client_key", errors.New("missing, takes the private key of client_certificate in PEM"))
	default:
		if _, err := parseCertificates(c.ClientCertificate); err != nil {
			report("client_certificate", err)
			break
		}
		report("client_key", checkKey(c.ClientCertificate, c.ClientKey))
	}
	return faults
}

// parseCertificates reads one certificate or more in PEM; every block must be one.
func parseCertificates(text string) (certificates []*x509.Certificate, err error) {
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != certificateBlock {
			return nil, errors.New("holds a block that is no certificate, takes certificates in PEM")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("holds a certificate that cannot be parsed, number %d", len(certificates)+1)
		}
		certificates = append(certificates, certificate)
	}
	if len(certificates) == 0 {
		return nil, errors.New("holds no certificate, takes PEM that begins with -----BEGIN CERTIFICATE-----")
	}
	return certificates, nil
}

// checkKey is for a certificate that can be parsed. It repeats no error of crypto/tls: some quote what they were given.
func checkKey(certificate, key string) error {
	if block, _ := pem.Decode([]byte(key)); block == nil {
		return errors.New("holds no private key, takes PEM that begins with -----BEGIN PRIVATE KEY-----")
	}
	if _, err := tls.X509KeyPair([]byte(certificate), []byte(key)); err != nil {
		return errors.New("cannot be parsed, or is not the key of client_certificate's first certificate; " +
			"takes an unencrypted private key in PEM")
	}
	return nil
}

// tlsConfig is for a configuration without faults.
func (c HTTPConfig) tlsConfig() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.RootCAs}
	if authorities, err := parseCertificates(c.CA); err == nil {
		config.RootCAs = x509.NewCertPool()
		for _, authority := range authorities {
			config.RootCAs.AddCert(authority)
		}
	}
	if pair, err := tls.X509KeyPair([]byte(c.ClientCertificate), []byte(c.ClientKey)); err == nil {
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}
