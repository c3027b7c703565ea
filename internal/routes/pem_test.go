package routes_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"sync"
	"time"
)

// pair is a certificate and its key in PEM, and a key of no certificate.
type pair struct{ certificate, key, otherKey string }

// client is the same pair for all tests of a run.
var client = sync.OnceValue(func() pair {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	other, otherErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil || otherErr != nil {
		panic("no random numbers")
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1, 0)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pair{certificate: inPEM("CERTIFICATE", certificate), key: privatePEM(key), otherKey: privatePEM(other)}
})

func privatePEM(key *ecdsa.PrivateKey) string {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return inPEM("PRIVATE KEY", der)
}

func inPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
