package lambda_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	awslambda "github.com/aws/aws-lambda-go/lambda"

	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

// Variables that make this test binary something else: the function under test, or a process that starts one and
// waits to be killed. The second holds the emulator's path.
const (
	functionVariable = "LAMBDA_TEST_FUNCTION"
	starterVariable  = "LAMBDA_TEST_STARTER"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(functionVariable) != "":
		awslambda.Start(handle)
	case os.Getenv(starterVariable) != "":
		startAndWait(os.Getenv(starterVariable))
	default:
		os.Exit(m.Run())
	}
}

type event struct {
	Do   string `json:"do"` // reply, fail, exit, or hang after writing the process id to Pipe
	Pipe string `json:"pipe,omitempty"`
	Note string `json:"note,omitempty"`
}

type answer struct {
	OK   bool   `json:"ok"`
	PID  int    `json:"pid"`
	Note string `json:"note"`
}

func handle(ctx context.Context, e event) (answer, error) {
	fmt.Println("a line on the function's standard output")
	switch e.Do {
	case "fail":
		return answer{}, errors.New("this function fails")
	case "exit":
		os.Exit(3)
	case "hang":
		if err := os.WriteFile(e.Pipe, fmt.Appendln(nil, os.Getpid()), 0); err != nil {
			return answer{}, err
		}
		<-ctx.Done()
		select {} // past the deadline too
	}
	return answer{OK: true, PID: os.Getpid(), Note: e.Note}, nil
}

func startAndWait(emulator string) {
	f, err := lambda.Start(context.Background(), config(emulator))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	reply, err := f.Invoke(context.Background(), []byte(`{}`))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(string(reply))
	select {}
}

func config(emulator string) lambda.Config {
	return lambda.Config{Emulator: emulator, Binary: os.Args[0], Env: []string{functionVariable + "=1"}}
}

func TestTheReplyIsExactlyTheFunctionsJSON(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := config(emulator(t))
	c.Log = &log
	f := start(t, c)
	reply := invoke(t, f, event{Note: `<&> "é"`})
	want := fmt.Sprintf(`{"ok":true,"pid":%d,"note":"<&> \"é\""}`, decode(t, reply).PID)
	if got := string(reply); got != want {
		t.Errorf("reply = %s, want %s", got, want)
	}
	f.Stop()
	if got, want := log.String(), "a line on the function's standard output"; !strings.Contains(got, want) {
		t.Errorf("log = %q, want %q in it", got, want)
	}
}

func TestOneSandboxTakesItsInvocationsInTurnAndStaysWarm(t *testing.T) {
	t.Parallel()
	f := start(t, config(emulator(t)))
	first := decode(t, invoke(t, f, event{Note: "first"})).PID
	var all sync.WaitGroup
	replies := make([][]byte, 4)
	for i := range replies {
		all.Go(func() { replies[i], _ = f.Invoke(t.Context(), marshal(t, event{Note: fmt.Sprint(i)})) })
	}
	all.Wait()
	for i, reply := range replies {
		if got, want := decode(t, reply), (answer{OK: true, PID: first, Note: fmt.Sprint(i)}); got != want {
			t.Errorf("invocation %d: %+v, want %+v", i, got, want)
		}
	}
}

func TestTwoSandboxesRunSideBySide(t *testing.T) {
	t.Parallel()
	busy, idle := start(t, config(emulator(t))), start(t, config(emulator(t)))
	pid, _ := hang(t, busy)
	if got := decode(t, invoke(t, idle, event{})).PID; got == pid {
		t.Errorf("both run in process %d, want two", got)
	}
}

func TestAFunctionThatDoesNotSucceedSaysSo(t *testing.T) {
	t.Parallel()
	for do, want := range map[string]string{"fail": `"errorMessage":"this function fails"`, "exit": "Runtime.ExitError"} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			reply := invoke(t, start(t, config(emulator(t))), event{Do: do})
			if !strings.Contains(string(reply), want) {
				t.Errorf("reply = %s, want %s in it", reply, want)
			}
			if lambda.Succeeded(reply) {
				t.Errorf("Succeeded(%s) = true, want false", reply)
			}
		})
	}
}

func TestAFunctionIsKilledAtItsTimeoutAndTheNextStartsCold(t *testing.T) {
	t.Parallel()
	c := config(emulator(t))
	c.Timeout = time.Second
	f := start(t, c)
	pid, reply := hang(t, f)
	text := <-reply
	if got, want := string(text), "Task timed out after 1.00 seconds"; !strings.Contains(got, want) {
		t.Errorf("reply = %q, want %q in it", got, want)
	}
	if lambda.Succeeded(text) {
		t.Errorf("Succeeded(%s) = true, want false", text)
	}
	wantGone(t, pid)
	if got := decode(t, invoke(t, f, event{})).PID; got == pid {
		t.Errorf("process %d answers, want another", got)
	}
}

func TestKillEndsAFunctionInMidInvocation(t *testing.T) {
	t.Parallel()
	f := start(t, config(emulator(t)))
	pid, reply := hang(t, f)
	f.Kill()
	f.Kill()
	if text := <-reply; text != nil {
		t.Errorf("reply = %s, want none", text)
	}
	wantGone(t, pid)
}

func TestASandboxEndsWithAStarterThatWasKilled(t *testing.T) {
	t.Parallel()
	starter := exec.CommandContext(t.Context(), os.Args[0])
	starter.Env = append(os.Environ(), starterVariable+"="+emulator(t))
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait()
	wantGone(t, decode(t, line).PID)
}

func TestStartRefusesWhatTheEmulatorCannotDo(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		change func(*lambda.Config)
		want   string
	}{
		"fractions of a second": {func(c *lambda.Config) { c.Timeout = 1500 * time.Millisecond }, "takes whole seconds"},
		"negative timeout":      {func(c *lambda.Config) { c.Timeout = -time.Second }, "takes whole seconds"},
		"no such emulator":      {func(c *lambda.Config) { c.Emulator = "/no/such/emulator" }, "ended before it was ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(emulator(t))
			fault.change(&c)
			f, err := lambda.Start(t.Context(), c)
			if err == nil {
				f.Stop()
				t.Fatalf("started, want an error with %q", fault.want)
			}
			if !strings.Contains(err.Error(), fault.want) {
				t.Errorf("error %q, want %q in it", err, fault.want)
			}
		})
	}
}

func TestSucceededTakesOnlyAnObjectThatSaysSo(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]bool{
		`{"ok":true}`: true, `{"ok":false}`: false, `{}`: false, `{"ok":"true"}`: false, `true`: false, ``: false,
		`{"Status":"SUCCESS","RequestId":"1"}`: true, `{"Status":"FAILED","Reason":"SUCCESS"}`: false, `{"Status":""}`: false, `{"Status":true}`: false,
		`{"errorType":"ConfigError"}`: false, `{"ok":true} tail`: false, `Task timed out after 3.00 seconds`: false,
	} {
		if got := lambda.Succeeded([]byte(reply)); got != want {
			t.Errorf("Succeeded(%q) = %v, want %v", reply, got, want)
		}
	}
}

// emulator returns the path of the pinned emulator, installed by whoever comes first.
func emulator(t *testing.T) string {
	t.Helper()
	path, err := lambda.Builder{Root: "../../..", Log: io.Discard}.Emulator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, c lambda.Config) *lambda.Function {
	t.Helper()
	f, err := lambda.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	return f
}

func invoke(t *testing.T, f *lambda.Function, e event) []byte {
	t.Helper()
	reply, err := f.Invoke(t.Context(), marshal(t, e))
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// hang invokes a function that doesn't come back. It returns once the function runs, with its process id and where
// its reply will be: nil when there is none.
func hang(t *testing.T, f *lambda.Function) (int, <-chan []byte) {
	t.Helper()
	pipe := t.TempDir() + "/pipe"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	replies := make(chan []byte, 1)
	go func() {
		reply, _ := f.Invoke(context.WithoutCancel(t.Context()), marshal(t, event{Do: "hang", Pipe: pipe}))
		replies <- reply
	}()
	text, err := os.ReadFile(pipe)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatalf("process id %q: %v", text, err)
	}
	return pid, replies
}

func marshal(t *testing.T, e event) []byte {
	t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func decode(t *testing.T, reply []byte) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal(reply, &a); err != nil || !a.OK || a.PID == 0 {
		t.Fatalf("reply %s (%v), want ok and a process id", reply, err)
	}
	return a
}

// wantGone waits for the end of a process that is not ours to wait for.
func wantGone(t *testing.T, pid int) {
	t.Helper()
	for syscall.Kill(pid, 0) == nil {
		select {
		case <-t.Context().Done():
			t.Fatalf("process %d still runs", pid)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
