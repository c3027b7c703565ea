package handlers

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// faultTable is the table as the documentation prints it.
func faultTable() string {
	var b strings.Builder
	b.WriteString("| reason | outcome | what happened |\n| --- | --- | --- |\n")
	for _, fault := range append(statusFaults(), transportFaults()...) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", fault.reason, fault.outcome, fault.meaning)
	}
	return b.String()
}

func TestFaultTableIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(content), "<!-- faults: ")
	_, after, _ = strings.Cut(after, "-->\n")
	got, _, found := strings.Cut(after, "<!-- /faults -->")
	if want := "\n" + faultTable() + "\n"; !found || got != want {
		t.Errorf("docs/routes.md holds\n%s\nwant\n%s", got, want)
	}
}

func TestDocumentationNamesEveryHeaderSent(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	handler, err := NewHTTP(HTTPConfig{URL: "https://a.test", Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}})
	if err != nil {
		t.Fatal(err)
	}
	request := handler.newRequest(t.Context(), outbox.Event{
		ID: "1", AggregateType: "order", AggregateID: "2", Type: "order.placed", IdempotencyKey: "3",
	}, time.Now())
	documented := 0
	for name, values := range request.Header {
		switch row := "`" + strings.ToLower(name) + "`"; {
		case len(values) == 0: // says that the request may be repeated, and is not sent
		case !strings.Contains(string(content), row):
			t.Errorf("docs/routes.md lacks %s", row)
		default:
			documented++
		}
	}
	if documented != 12 {
		t.Errorf("%d headers, want 12", documented)
	}
}

// A row behind a wider one would never decide, and the documentation would lie.
func TestFaultTableRowsAreNotHidden(t *testing.T) {
	t.Parallel()
	for _, row := range statusFaults() {
		code := row.high // of a range the last, which no narrower row takes
		for _, first := range statusFaults() {
			if code >= first.low && code <= first.high {
				if first.reason != row.reason {
					t.Errorf("%d is decided by %s, want %s", code, first.reason, row.reason)
				}
				break
			}
		}
	}
}
