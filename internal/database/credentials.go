package database

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

const (
	// secretLife is how long a secret is used before it is read again.
	secretLife = 10 * time.Minute
	// awsTimeout bounds what one connection waits for AWS. The pool connects in the background, without the
	// deadline of whoever asked.
	awsTimeout = 5 * time.Second
)

var errAWSTimeout = errors.New("AWS did not answer in time")

// login is what one connection attempt needs to know.
type login struct {
	host           string
	port           uint16
	name           string
	user, password string
}

// credentials gives each connection its login. It is safe for concurrent use; AWS is first called by the first
// connection.
type credentials struct {
	config Config

	mu      sync.Mutex // held while fetching, so that many connections fetch once
	aws     *aws.Config
	secret  secret
	fetched time.Time // zero: nothing fetched
	stale   bool      // the server refused this secret
}

func (c *credentials) login(ctx context.Context) (login, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, awsTimeout, errAWSTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config.source == fromIAM {
		return c.token(ctx)
	}
	s, err := c.current(ctx)
	if err != nil {
		return login{}, fmt.Errorf("read the secret of DATABASE_SECRET_ARN: %w", err)
	}
	l := login{host: s.Host, port: uint16(s.Port), name: s.Name, user: s.User, password: s.Password}
	if c.config.host != "" {
		l.host = c.config.host
	}
	if c.config.port != 0 {
		l.port = c.config.port
	}
	if c.config.name != "" {
		l.name = c.config.name
	}
	if l.host == "" {
		return login{}, errors.New("no host: the secret of DATABASE_SECRET_ARN has none and OUTBOX_DB_HOST is not set")
	}
	return l.withDefaults(), nil
}

func (l login) withDefaults() login {
	if l.port == 0 {
		l.port = DefaultPort
	}
	if l.name == "" {
		l.name = DefaultName
	}
	return l
}

// token signs a login by IAM; that is a computation, and only credentials may need the network.
func (c *credentials) token(ctx context.Context) (login, error) {
	l := login{host: c.config.host, port: c.config.port, name: c.config.name, user: c.config.user}.withDefaults()
	cfg, err := c.awsConfig(ctx)
	if err != nil {
		return login{}, err
	}
	if cfg.Region == "" {
		return login{}, errors.New("sign an IAM token: no region, set AWS_REGION")
	}
	endpoint := net.JoinHostPort(l.host, strconv.Itoa(int(l.port)))
	l.password, err = auth.BuildAuthToken(ctx, endpoint, cfg.Region, l.user, cfg.Credentials)
	if err != nil {
		return login{}, fmt.Errorf("sign an IAM token: %w", err)
	}
	return l, nil
}

// refused tells that the server refused the login, so that the next connection reads the secret again.
func (c *credentials) refused() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = true
}

// current returns the secret, read again when it is old or was refused. An old one that the server never refused
// outlives a Secrets Manager that does not answer.
func (c *credentials) current(ctx context.Context) (secret, error) {
	known := !c.fetched.IsZero()
	// Wall clock: the monotonic one may stand still while the sandbox is frozen.
	if known && !c.stale && time.Now().Round(0).Sub(c.fetched) < secretLife {
		return c.secret, nil
	}
	s, err := c.fetch(ctx)
	if err != nil {
		if known && !c.stale {
			return c.secret, nil
		}
		return secret{}, err
	}
	c.secret, c.fetched, c.stale = s, time.Now().Round(0), false
	return s, nil
}

func (c *credentials) fetch(ctx context.Context) (secret, error) {
	cfg, err := c.awsConfig(ctx)
	if err != nil {
		return secret{}, err
	}
	client := secretsmanager.NewFromConfig(cfg, func(o *secretsmanager.Options) {
		o.Region = strings.Split(c.config.secretARN, ":")[3] // the secret's own, FromEnv has checked the shape
	})
	out, err := client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &c.config.secretARN})
	if err != nil {
		return secret{}, err
	}
	return parseSecret(aws.ToString(out.SecretString))
}

func (c *credentials) awsConfig(ctx context.Context) (aws.Config, error) {
	if c.aws != nil {
		return *c.aws, nil
	}
	cfg, err := c.config.loadAWS(ctx)
	if err != nil {
		return aws.Config{}, fmt.Errorf("load the AWS configuration: %w", err)
	}
	c.aws = &cfg
	return cfg, nil
}

// secret is the JSON form of a database secret of RDS and its rotation templates.
type secret struct {
	Host     string `json:"host"`
	Port     port   `json:"port"`
	Name     string `json:"dbname"`
	User     string `json:"username"`
	Password string `json:"password"`
}

// parseSecret reads a secret. Its errors hold nothing of it, so they are not encoding/json's.
func parseSecret(text string) (secret, error) {
	var s secret
	if json.Unmarshal([]byte(text), &s) != nil {
		return secret{}, errors.New(`not a JSON object with "username", "password" and perhaps "host", "port", "dbname"`)
	}
	if s.User == "" || s.Password == "" {
		return secret{}, errors.New(`"username" or "password" is missing`)
	}
	return s, nil
}

// port is a JSON number or a text that holds one.
type port uint16

// UnmarshalJSON reads either form; null and the empty text are zero.
func (p *port) UnmarshalJSON(text []byte) error {
	digits := strings.Trim(string(text), `"`)
	if digits == "" || digits == "null" {
		return nil
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	*p = port(n)
	return err
}
