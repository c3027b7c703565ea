package database

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	static "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/jackc/pgx/v5/pgproto3"
)

// server speaks as much of PostgreSQL's protocol as a login and a ping need, and asks for the password in clear
// text, so that tests see what is presented.
type server struct {
	port   int
	cert   *tls.Certificate // nil: no TLS
	accept func(password string) bool

	mu     sync.Mutex
	logins []attempt
	open   []net.Conn
	deaf   map[net.Conn]bool
	unread int // queries that deaf connections got
}

type attempt struct {
	user, database, application, password string
	encrypted                             bool
}

func startServer(t *testing.T, cert *tls.Certificate, accept func(password string) bool) *server {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{port: listener.Addr().(*net.TCPAddr).Port, cert: cert, accept: accept}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open = append(s.open, conn)
			s.mu.Unlock()
			running.Go(func() { _ = s.serve(conn); _ = conn.Close() })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); s.hangUp(); running.Wait() })
	return s
}

func (s *server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.open {
		_ = conn.Close()
	}
	s.open = nil
}

// goDeaf lets the open connections answer nothing any more, as when the way to them is lost: new ones are well.
func (s *server) goDeaf() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = map[net.Conn]bool{}
	for _, conn := range s.open {
		s.deaf[conn] = true
	}
}

func (s *server) hears(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf[conn] {
		s.unread++
	}
	return !s.deaf[conn]
}

func (s *server) attempts() []attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]attempt(nil), s.logins...)
}

func (s *server) serve(conn net.Conn) error {
	backend, got, err := s.greet(conn)
	if err != nil {
		return err
	}
	backend.Send(&pgproto3.AuthenticationCleartextPassword{})
	if err := errors.Join(backend.Flush(), backend.SetAuthType(pgproto3.AuthTypeCleartextPassword)); err != nil {
		return err
	}
	message, err := backend.Receive()
	if err != nil {
		return err
	}
	password, ok := message.(*pgproto3.PasswordMessage)
	if !ok {
		return errors.New("no password message")
	}
	got.password = password.Password
	s.mu.Lock()
	s.logins = append(s.logins, got)
	s.mu.Unlock()
	if !s.accept(got.password) {
		backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "password authentication failed"})
		return backend.Flush()
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for backend.Flush() == nil {
		message, err := backend.Receive()
		if err != nil {
			return err
		}
		if _, ok := message.(*pgproto3.Query); ok && s.hears(conn) {
			backend.Send(&pgproto3.EmptyQueryResponse{})
			backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
	return nil
}

// greet answers up to the startup message.
func (s *server) greet(conn net.Conn) (*pgproto3.Backend, attempt, error) {
	var got attempt
	backend := pgproto3.NewBackend(conn, conn)
	for {
		message, err := backend.ReceiveStartupMessage()
		if err != nil {
			return nil, got, err
		}
		switch message := message.(type) {
		case *pgproto3.SSLRequest:
			if s.cert == nil {
				_, err = conn.Write([]byte("N"))
			} else {
				_, err = conn.Write([]byte("S"))
				conn = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{*s.cert}})
				backend, got.encrypted = pgproto3.NewBackend(conn, conn), true
			}
			if err != nil {
				return nil, got, err
			}
		case *pgproto3.StartupMessage:
			got.user, got.database = message.Parameters["user"], message.Parameters["database"]
			got.application = message.Parameters["application_name"]
			return backend, got, nil
		default:
			return nil, got, errors.New("unexpected startup")
		}
	}
}

// certificate makes a self-signed one for a host name or address, and a file that holds it.
func certificate(t *testing.T, host string) (*tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// secrets is a Secrets Manager that holds one secret; the SDK's own client calls it.
type secrets struct {
	url   string
	value atomic.Value // the secret's text; "" answers an error
	calls atomic.Int32
}

func startSecrets(t *testing.T, value string) *secrets {
	t.Helper()
	s := &secrets{}
	s.value.Store(value)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.calls.Add(1)
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		text := s.value.Load().(string)
		if text == "" {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"__type": "ResourceNotFoundException", "message": "no such secret"})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": text})
	}))
	t.Cleanup(endpoint.Close)
	s.url = endpoint.URL
	return s
}

// loadAWS is an AWS configuration that knows one endpoint.
func (s *secrets) loadAWS(context.Context, ...func(*config.LoadOptions) error) (aws.Config, error) {
	return aws.Config{
		Region: "eu-central-1", BaseEndpoint: &s.url,
		Credentials: static.NewStaticCredentialsProvider("AKIATEST", "not-a-secret", ""),
	}, nil
}

const testARN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:outbox-AbCdEf"

// environment is a getenv over a map.
func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func fromEnv(t *testing.T, values map[string]string) Config {
	t.Helper()
	c, err := FromEnv(environment(values))
	if err != nil {
		t.Fatalf("FromEnv: %v", err)
	}
	return c
}

func openPool(t *testing.T, c Config) *Pool {
	t.Helper()
	pool, err := Open(t.Context(), c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (s *server) url(settings string) string {
	return "postgres://app:secret@127.0.0.1:" + strconv.Itoa(s.port) + "/shop" + settings
}
