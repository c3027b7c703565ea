package outbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

func TestConfigFaultsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	handler := outbox.HandlerFunc(nil)
	_, err := outbox.NewWorker(outbox.Config{
		Registry: outbox.Registry{
			" ": {Handler: handler}, "nobody": {}, "backwards": {Handler: handler, Timeout: -time.Second},
		},
		BatchSize: -1, MaxAttempts: -2, MaxSnoozes: -3, Concurrency: -4,
		Visibility: -time.Second, BackoffBase: -2 * time.Second, BackoffCap: -3 * time.Second, Snooze: -4 * time.Second,
	})
	if err == nil {
		t.Fatal("NewWorker took it, want an error")
	}
	for _, want := range []string{
		"configure worker: ", "store: nil", "an event type is blank", `"nobody" has no handler`, `"backwards" has timeout -1s`,
		"batch size: -1", "max attempts: -2", "max snoozes: -3", "concurrency: -4",
		"visibility: -1s", "backoff base: -2s", "backoff cap: -3s", "snooze: -4s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestConfigZeroIsGood(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]outbox.Config{
		"no registry":    {Store: newWorld()},
		"empty registry": {Store: newWorld(), Registry: outbox.Registry{}},
		"a route":        {Store: newWorld(), Registry: outbox.Registry{"t": {Handler: outbox.HandlerFunc(nil)}}},
	} {
		if _, err := outbox.NewWorker(config); err != nil {
			t.Errorf("%s: %v, want no error", name, err)
		}
	}
}
