package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/openlup/outbox-dispatch/internal/stack/postgres"
)

// starterVariable makes this test binary a process that starts a server, says where, and waits to be killed.
const starterVariable = "POSTGRES_TEST_STARTER"

func TestMain(m *testing.M) {
	postgres.Helper()
	if os.Getenv(starterVariable) != "" {
		server, err := postgres.Start(context.Background(), postgres.Config{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(server.URL)
		select {}
	}
	os.Exit(m.Run())
}

func TestServerAnswersAndLeavesNothing(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	server, err := postgres.Start(t.Context(), postgres.Config{Log: &log})
	if err != nil {
		t.Fatalf("start: %v\n%s", err, log.String())
	}
	folder := dataFolder(t, server.URL)
	if err := server.Stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("data folder %s is still there (%v), want it removed", folder, err)
	}
	if _, err := pgx.Connect(t.Context(), server.URL); err == nil {
		t.Error("the server still answers after Stop")
	}
	if err := server.Stop(); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestServerEndsWithAStarterThatWasKilled(t *testing.T) {
	t.Parallel()
	starter := exec.CommandContext(t.Context(), os.Args[0])
	starter.Env = append(os.Environ(), starterVariable+"=1")
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("read the server's address: %v", err)
	}
	folder := dataFolder(t, strings.TrimSpace(url))
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait()
	for {
		if _, err := os.Stat(folder); os.IsNotExist(err) {
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("data folder %s is still there", folder)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if _, err := pgx.Connect(t.Context(), strings.TrimSpace(url)); err == nil {
		t.Error("the server still answers after its starter was killed")
	}
}

// Any other test shows the same for whoever runs the tests; when that is root, this one shows it for nobody.
func TestServerStartsForAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, path := range []string{filepath.Dir(folder), folder} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "tests"), binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "tests"), "-test.run=^TestServerAnswersAndLeavesNothing$", "-test.v")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "HOME="+folder, "TMPDIR="+folder)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestServerAnswersAndLeavesNothing") {
		t.Errorf("the test run by an ordinary user: %v\n%s", err, out)
	}
}

func TestARepositoryWithoutTheServerIsReported(t *testing.T) {
	repository := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(repository.Close)
	t.Setenv(postgres.FetchVariable, "1")
	t.Setenv(postgres.RepositoryVariable, repository.URL)
	t.Setenv("TMPDIR", t.TempDir()) // no server was fetched here before
	if err := os.Chmod(os.Getenv("TMPDIR"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(os.Getenv("TMPDIR")), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(os.Getenv("TMPDIR"), "cache"))
	server, err := postgres.Start(t.Context(), postgres.Config{})
	if err == nil {
		_ = server.Stop()
		t.Fatal("started, want an error: the repository is empty")
	}
	if got, want := err.Error(), "fetch postgresql: no version found"; !strings.Contains(got, want) {
		t.Errorf("error %q, want %q in it", got, want)
	}
}

func dataFolder(t *testing.T, url string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var folder string
	if err := conn.QueryRow(t.Context(), "show data_directory").Scan(&folder); err != nil {
		t.Fatalf("query: %v", err)
	}
	return folder
}
