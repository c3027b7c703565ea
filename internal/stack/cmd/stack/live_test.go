package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/internal/stack/live"
)

func TestUpRunsWhatItPrintsAndDownLeavesNothing(t *testing.T) {
	t.Parallel()
	folder := folderOf(t)
	out, code := stack(t, nil, "up", "-folder", folder)
	if code != 0 {
		t.Fatalf("up: exit %d, %s", code, out)
	}
	s := state(t, folder)
	for _, statement := range regexp.MustCompile(`(?s)  insert into .*?;`).FindAllString(string(out), -1) {
		insertInto(t, s.Database, statement)
	}
	for _, want := range []string{
		`webhook   order\.placed .*\{"total": "99\.90"\}\}  \(signature valid, answered 200\)`,
		`sqs       shipments  order\.shipped .*\{"parcel": "A-1"\}`,
		`sqs       stock\.fifo  stock\.reserved .*\{"sku": "A-1"\}`,
		`mail      to ann@example\.com  subject "Welcome"  Hello Ann`,
		`dispatch  claimed [1-4]: processed [1-4], retried 0, snoozed 0, discarded 0, released 0`,
	} {
		await(t, folder, want)
	}

	again, code := stack(t, nil, "up", "-folder", folder)
	if code != 0 || !bytes.HasPrefix(again, []byte("the stack is up already")) || state(t, folder).Process != s.Process {
		t.Errorf("second up: exit %d, %.100q, want 0, that it is up already, and the same process", code, again)
	}
	answer(t, s, "410")
	insertInto(t, s.Database, `insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		values ('order', gen_random_uuid(), 'order.placed', 'refused', '{}')`)
	await(t, folder, `answered 410\)`)
	await(t, folder, `discarded 1`)

	if out, code := stack(t, nil, "down", "-folder", folder); code != 0 || !bytes.Contains(out, []byte("has ended")) {
		t.Errorf("down: exit %d, %q, want 0 and that it has ended", code, out)
	}
	nothingLeft(t, folder, s)
	if out, code := stack(t, nil, "down", "-folder", folder); code != 0 || string(out) != "nothing was running\n" {
		t.Errorf("second down: exit %d, %q, want 0 and that nothing was running", code, out)
	}
}

func TestUpAndDownCleanUpAfterAKill(t *testing.T) {
	t.Parallel()
	folder := folderOf(t)
	kill := func() live.State {
		t.Helper()
		for {
			out, code := stack(t, nil, "up", "-folder", folder)
			if code != 0 {
				t.Fatalf("up: exit %d, %s", code, out)
			}
			s := state(t, folder)
			if err := syscall.Kill(s.Process, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(out, []byte("the stack is up already")) { // else the one before had not died yet
				return s
			}
		}
	}
	first := kill()
	second := kill() // up starts where a stack died
	if second.Process == first.Process {
		t.Errorf("process %d twice, want another", first.Process)
	}
	for listening(t, second.Hook) {
		<-time.After(10 * time.Millisecond)
	}
	if out, code := stack(t, nil, "down", "-folder", folder); code != 0 || !bytes.Contains(out, []byte("are gone")) {
		t.Errorf("down: exit %d, %q, want 0 and that all files are gone", code, out)
	}
	nothingLeft(t, folder, first)
	nothingLeft(t, folder, second)
}

func TestDownEndsAnUpThatIsUnderWay(t *testing.T) {
	t.Parallel()
	folder := folderOf(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	up := exec.CommandContext(t.Context(), path, "up", "-folder", folder)
	up.Dir = root
	var output bytes.Buffer
	up.Stdout, up.Stderr = &output, &output
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	for range 1000 { // until it has the lock
		if _, err := os.Stat(filepath.Join(folder, "up.lock")); err == nil {
			break
		}
		<-time.After(time.Millisecond)
	}
	ended := make(chan error, 1)
	go func() { ended <- up.Wait() }()
	for done := false; !done; {
		if out, code := stack(t, nil, "down", "-folder", folder); code != 0 {
			t.Fatalf("down: exit %d, %s", code, out)
		}
		select {
		case err := <-ended:
			if done = true; err == nil {
				t.Errorf("up ended well, want that it was stopped: %s", &output)
			}
		case <-time.After(100 * time.Millisecond): // it had not got the lock yet, or was just handing it over
		}
	}
	if out, code := stack(t, nil, "down", "-folder", folder); code != 0 {
		t.Fatalf("down: exit %d, %s", code, out)
	}
	if _, err := os.Stat(filepath.Join(folder, "up")); err == nil {
		t.Error("the stack's files are still there")
	}
}

func TestUpTellsWhyTheStackDidNotStart(t *testing.T) {
	t.Parallel()
	folder := folderOf(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	up := exec.CommandContext(t.Context(), path, "up", "-folder", folder)
	up.Dir = root
	up.Env = append(up.Environ(), "OUTBOX_DB_MAX_CONNS=none")
	out, err := up.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("the migrate function failed")) || !bytes.Contains(out, []byte("OUTBOX_DB_MAX_CONNS")) {
		t.Errorf("error %v, %s, want one, and that OUTBOX_DB_MAX_CONNS is wrong", err, out)
	}
	if _, err := os.Stat(filepath.Join(folder, "up")); err == nil {
		t.Error("the stack's files are still there")
	}
}

// folderOf is a folder for one test's stack, which is down at its end whatever happened.
func folderOf(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(folder, "up", "log"))
			t.Logf("the stack's log:\n%s", log)
		}
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, "down", "-folder", folder)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("down at the end: %v: %s", err, out)
		}
	})
	return folder
}

func state(t *testing.T, folder string) live.State {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "up", "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s live.State
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func insertInto(t *testing.T, database, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// answer tells the webhook receiver what to answer.
func answer(t *testing.T, s live.State, status string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Hook+"/answer", strings.NewReader(status+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s, want 200", resp.Status)
	}
}

// await waits until a line of what arrives matches.
func await(t *testing.T, folder, pattern string) {
	t.Helper()
	var text []byte
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		text, _ = os.ReadFile(filepath.Join(folder, "up", "received"))
		if regexp.MustCompile(pattern).Match(text) {
			return
		}
	}
	t.Errorf("nothing arrived like %s, only:\n%s", pattern, text)
}

// nothingLeft fails if a process or a file of a stack that has ended is still there.
func nothingLeft(t *testing.T, folder string, s live.State) {
	t.Helper()
	for _, address := range []string{s.Database, s.Cloud, s.Hook} {
		if listening(t, address) {
			t.Errorf("something still listens at %s", address)
		}
	}
	for _, path := range []string{s.Folder, filepath.Join(folder, "up")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	// Whatever the stack starts has its folder in the environment, and is killed, which takes a moment.
	var left []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if left = running(s.Folder); len(left) == 0 {
			return
		}
	}
	t.Errorf("of the stack still run %q", left)
}

// running returns the command lines of the processes that keep temporary files in folder; only Linux lets us look.
func running(folder string) []string {
	var found []string
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environments {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("TMPDIR="+folder)) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			found = append(found, string(line))
		}
	}
	return found
}

func listening(t *testing.T, address string) bool {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", parsed.Host)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
