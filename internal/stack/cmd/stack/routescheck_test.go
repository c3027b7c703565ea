package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// check runs make's target on a file, without anything in the environment but these variables.
func check(t *testing.T, text string, env ...string) (out, problems string, code int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "routes.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, "routes-check", "routes.yaml")
	command.Dir, command.Env = folder, append([]string{"LC_ALL=C"}, env...) // nothing of this process
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	_ = command.Run() // the code tells
	return stdout.String(), stderr.String(), command.ProcessState.ExitCode()
}

func TestRoutesCheckPrintsEveryFaultWithItsLine(t *testing.T) {
	t.Parallel()
	out, problems, code := check(t, `version: 1
destinations:
  crm: {http: {url: "http://crm.test", secret: hunter2}}
routes:
  order.placed: {to: crm, discard_on: [http_4x4]}
`)
	for _, want := range []string{
		`routes.yaml:3: destinations.crm.http: unknown key "secret", did you mean secrets?`,
		"routes.yaml:3: destinations.crm.http.url: has scheme http, takes https",
		`routes.yaml:5: routes["order.placed"].discard_on[0]: is no reason of a failure there, did you mean http_4`, "stack: routes-check: faults: 3\n",
	} {
		if !strings.Contains(problems, want) {
			t.Errorf("standard error\n%s\nwant %s", problems, want)
		}
	}
	if code != 1 || out != "" || strings.Contains(problems, "hunter2") {
		t.Errorf("exit %d, standard output %q, standard error\n%s", code, out, problems)
	}
}

func TestRoutesCheckTellsWhatItDidNotLookAt(t *testing.T) {
	t.Parallel()
	const text = `version: 1
known: [order.archived]
destinations:
  crm:
    http: {url: "${CRM_URL}", secrets: ["${arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/crm-AbCdEf#signing}"]}
  mail: {ses: {from: "orders@example.com"}}
routes:
  order.placed: {to: crm}
  order.paid: {to: crm}
  order.mailed: {to: mail}
`
	out, problems, code := check(t, text)
	want := `routes.yaml: no fault
  crm            http  order.paid, order.placed
  mail           ses   order.mailed
  other workers        order.archived
not checked, since these values are not known here:
  line 5  destinations.crm.http.url         environment variable CRM_URL
  line 5  destinations.crm.http.secrets[0]  secret shop/crm-AbCdEf#signing
`
	if code != 0 || out != want || problems != "" {
		t.Errorf("exit %d, standard error %q, standard output\n%s\nwant\n%s", code, problems, out, want)
	}
	// What is set is looked at.
	if _, problems, code := check(t, text, "CRM_URL=ftp://hunter2"); code != 1 || strings.Contains(problems, "hunter2") ||
		!strings.Contains(problems, "routes.yaml:5: destinations.crm.http.url: has another scheme or none, takes https") {
		t.Errorf("exit %d, standard error %q, want the fault of the variable", code, problems)
	}
	if out, _, code := check(t, text, "CRM_URL=https://hunter2.test/hunter2"); code != 0 || strings.Contains(out, "hunter2") || strings.Contains(out, "CRM_URL") {
		t.Errorf("exit %d, standard output\n%s\nwant no word of the variable", code, out)
	}
}
