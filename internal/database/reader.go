package database

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// reader collects the faults of the environment.
type reader struct {
	getenv func(string) string
	faults []error
}

func (r *reader) fault(name, got, takes string) {
	r.faults = append(r.faults, fmt.Errorf("%s: got %q, takes %s", name, got, takes))
}

func (r *reader) say(name, text string) {
	r.faults = append(r.faults, fmt.Errorf("%s: %s", name, text))
}

func (r *reader) number(name string, otherwise, low, high int) int {
	text := r.getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		r.fault(name, text, fmt.Sprintf("a whole number from %d to %d", low, high))
		return otherwise
	}
	return n
}

func (r *reader) oneOf(name string, values []string) string {
	text := r.getenv(name)
	if text != "" && !slices.Contains(values, text) {
		r.fault(name, text, "one of "+strings.Join(values, ", "))
		return ""
	}
	return text
}

func (r *reader) execMode() pgx.QueryExecMode {
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	names := []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}
	name := r.oneOf("OUTBOX_DB_EXEC_MODE", names)
	if name == "" {
		return pgx.QueryExecModeCacheStatement
	}
	return modes[slices.Index(names, name)]
}

func (r *reader) secretARN() string {
	arn := r.getenv("DATABASE_SECRET_ARN")
	if arn == "" {
		return ""
	}
	if parts := strings.SplitN(arn, ":", 7); len(parts) != 7 || parts[0] != "arn" || parts[2] != "secretsmanager" || parts[3] == "" {
		// Not quoted: whoever mistakes this variable for the secret itself must not find it in a log.
		r.say("DATABASE_SECRET_ARN", "not an ARN, takes arn:aws:secretsmanager:<region>:<account>:secret:<name>")
	}
	return arn
}

// source tells which of the three sources is configured, and reports variables that contradict it.
func (r *reader) source(c Config) source {
	iam, err := strconv.ParseBool(cmp.Or(r.getenv("OUTBOX_DB_IAM_AUTH"), "false"))
	if err != nil {
		r.fault("OUTBOX_DB_IAM_AUTH", r.getenv("OUTBOX_DB_IAM_AUTH"), "true or false")
	}
	var found []source
	if r.getenv("DATABASE_URL") != "" {
		found = append(found, fromURL)
	}
	if c.secretARN != "" {
		found = append(found, fromSecret)
	}
	if iam {
		found = append(found, fromIAM)
	}
	switch {
	case len(found) == 0:
		r.say("DATABASE_URL", "not set; set DATABASE_URL, or DATABASE_SECRET_ARN, or OUTBOX_DB_IAM_AUTH=true with OUTBOX_DB_HOST and OUTBOX_DB_USER")
		return ""
	case len(found) > 1:
		r.say(string(found[0]), fmt.Sprintf("set beside %s, takes one source of credentials only", found[1:]))
		return ""
	}
	switch found[0] {
	case fromURL:
		r.refuse("the URL says it", "OUTBOX_DB_HOST", "OUTBOX_DB_PORT", "OUTBOX_DB_NAME", "OUTBOX_DB_USER")
	case fromSecret:
		r.refuse("the secret says it", "OUTBOX_DB_USER")
	case fromIAM:
		r.require("IAM authentication needs it", "OUTBOX_DB_HOST", "OUTBOX_DB_USER")
	}
	return found[0]
}

func (r *reader) refuse(why string, names ...string) {
	for _, name := range names {
		if text := r.getenv(name); text != "" {
			r.fault(name, text, "nothing: "+why)
		}
	}
}

func (r *reader) require(why string, names ...string) {
	for _, name := range names {
		if r.getenv(name) == "" {
			r.say(name, "not set: "+why)
		}
	}
}

// checkRoots reports a file of roots that cannot be used.
func (r *reader) checkRoots(name, file string) {
	if file == "" || file == "system" {
		return
	}
	text, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	switch {
	case err != nil:
		r.fault(name, file, "a readable PEM file or system: "+fileFault(err))
	case !holdsCertificate(text):
		r.fault(name, file, "a PEM file with at least one certificate, or system")
	}
}

// fileFault leaves out the path, which the fault already quotes.
func fileFault(err error) string {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}
