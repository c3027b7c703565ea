package handlers_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
)

// The request in docs/routes.md is the one that is sent for sampleEvent.
func TestDocumentedRequestIsTheOneSent(t *testing.T) {
	t.Parallel()
	server, received := recorder(t)
	handler := newHTTP(t, handlers.HTTPConfig{
		URL: server.URL + "/hooks", Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		Clock: func() time.Time { return time.Date(2026, 11, 30, 6, 0, 7, 0, time.UTC) },
	})
	if _, err := handler.Handle(t.Context(), sampleEvent()); err != nil {
		t.Fatal(err)
	}
	got := <-received
	var headers []string
	for name, values := range got.header {
		headers = append(headers, fmt.Sprintf("%s: %s\n", strings.ToLower(name), strings.Join(values, ", ")))
	}
	slices.Sort(headers)
	sent := fmt.Sprintf("%s %s HTTP/1.1\n%s\n%s\n", got.method, got.uri, strings.Join(headers, ""), got.body)
	content, err := os.ReadFile("../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), "```http\n"+sent+"```\n") {
		t.Errorf("docs/routes.md lacks\n%s", sent)
	}
}
