package live

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
)

func TestTheGuideHasAnAddressForEverything(t *testing.T) {
	t.Parallel()
	s := State{
		Process: 4711, Since: time.Now(), Database: "postgres://db", Cloud: "http://cloud", Hook: "http://hook",
		Queues: map[string]string{standard: "http://queue"},
	}
	got := guide(s, place{path: "folder"}, "it is up")
	if left := regexp.MustCompile(`\{[a-z]+\}`).FindString(got); left != "" {
		t.Errorf("%s is not filled in", left)
	}
	for _, want := range []string{
		"it is up\n", "psql 'postgres://db'", "tail -f folder/up/received", "tail -f folder/up/log", "process 4711",
		"http://hook/answer", "AWS_ENDPOINT_URL=http://cloud", "--queue-url http://queue", "make down",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the guide lacks %q", want)
		}
	}
}

func TestTheFeedIsOneLineForEachArrivalWhateverItHolds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	f := &feed{out: &out}
	mail := cloud.Mail{Subject: "a\nb", Text: "one\r\ntwo \x1b[31m"}
	mail.Destination.To = []string{"ann@example.com"}
	f.mails([]cloud.Mail{mail})
	f.mails([]cloud.Mail{mail, {Subject: "second"}}) // the mailbox, with one more
	f.pass([]byte(`{"ok": true, "claimed": 0}`))     // nothing to do, nothing to say
	f.pass([]byte(`{"ok": true, "claimed": 3, "processed": 1, "snoozed": 2}`))
	f.pass([]byte(`{"errorMessage": "no"}`))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i, want := range []string{
		`to ann@example.com  subject "a\nb"  one\r\ntwo \e[31m`, `subject "second"`,
		"claimed 3: processed 1, retried 0, snoozed 2, discarded 0, released 0", `failed: {"errorMessage": "no"}`,
	} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("lines %q, want %q in line %d", lines, want, i+1)
		}
	}
	if len(lines) != 4 {
		t.Errorf("%d lines, want 4: %q", len(lines), lines)
	}
}

func TestTheHookRefusesWhatItCannotVerify(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := newHook(&feed{out: &out})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/hook", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	h.Close()
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(out.String(), "signature NOT valid, answered 401") {
		t.Errorf("status %d, feed %q, want 401 and that it says so", resp.StatusCode, &out)
	}
}

func TestCleanRemovesTheFilesOfADeadStackOnce(t *testing.T) {
	t.Parallel()
	p := place{path: t.TempDir()}
	folder, err := temporary(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if found, err := p.clean(); err != nil || found != want {
			t.Errorf("found %t (%v), want %t", found, err, want)
		}
		if _, err := os.Stat(folder); err == nil {
			t.Errorf("%s is still there", folder)
		}
	}
}
