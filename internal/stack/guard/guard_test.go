package guard_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/guard"
)

// starter, when set, makes this test binary the process that starts a guarded one in that folder and is then killed.
const starter = "GUARD_TEST_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(starter); folder != "" {
		_, err := guard.Start(guard.Command{Args: sleeper(), Folder: folder, Output: os.Stdout})
		if err != nil {
			os.Exit(1)
		}
		select {}
	}
	os.Exit(m.Run())
}

// sleeper is a command that prints its process id and then waits.
func sleeper() []string { return []string{"/bin/sh", "-c", "echo $$; exec sleep 600"} }

func TestStopEndsTheProcessAndRemovesItsFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir() + "/inner"
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := guard.Start(guard.Command{Args: sleeper(), Folder: folder, Output: write})
	if err != nil {
		t.Fatal(err)
	}
	pid := readPID(t, read)
	p.Stop()
	p.Stop()
	wantGone(t, pid, folder)
}

func TestKillLeavesNothing(t *testing.T) {
	t.Parallel()
	folder := t.TempDir() + "/inner"
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := guard.Start(guard.Command{Args: []string{"/bin/sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"}, Folder: folder, Output: write})
	if err != nil {
		t.Fatal(err)
	}
	pid := readPID(t, read)
	p.Kill()
	p.Kill()
	p.Stop()
	p.Kill()
	wantGone(t, pid, folder)
}

func TestTheProcessEndsWithAStarterThatWasKilled(t *testing.T) {
	t.Parallel()
	folder := t.TempDir() + "/inner"
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), starter+"="+folder)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := readPID(t, out)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	wantGone(t, pid, folder)
}

func TestAProcessThatEndsByItselfTellsHow(t *testing.T) {
	t.Parallel()
	p, err := guard.Start(guard.Command{Args: []string{"/bin/sh", "-c", "exit 7"}})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if got, want := p.Err().Error(), "exit status 7"; got != want {
		t.Errorf("Err() = %q, want %q", got, want)
	}
}

func TestAMissingProgramIsReported(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	p, err := guard.Start(guard.Command{Args: []string{"/no/such/program"}, Output: &log})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if !strings.Contains(log.String(), "/no/such/program") {
		t.Errorf("output = %q, want the program's name in it", log.String())
	}
}

func TestTailKeepsWholeLinesFromTheEnd(t *testing.T) {
	t.Parallel()
	var tail guard.Tail
	if got := tail.String(); got != "" {
		t.Errorf("empty Tail = %q, want nothing", got)
	}
	for range 1000 {
		if _, err := io.WriteString(&tail, "twelve bytes\n"); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := tail.String(), strings.TrimSpace(strings.Repeat("twelve bytes\n", 153)); got != want {
		t.Errorf("Tail = %d bytes %.30q..., want %d", len(got), got, len(want))
	}
}

func readPID(t *testing.T, from io.Reader) int {
	t.Helper()
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// wantGone waits for the end of a process that is not ours to wait for.
func wantGone(t *testing.T, pid int, folder string) {
	t.Helper()
	for syscall.Kill(pid, 0) == nil {
		select {
		case <-t.Context().Done():
			t.Fatalf("process %d still runs", pid)
		case <-time.After(10 * time.Millisecond):
		}
	}
	for {
		if _, err := os.Stat(folder); os.IsNotExist(err) {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s is still there", folder)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
