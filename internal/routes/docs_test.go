package routes_test

import (
	"os"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/internal/routes"
)

func TestDocumentedFileIsAccepted(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, file, _ := strings.Cut(string(content), "```yaml\n")
	file, _, found := strings.Cut(file, "```")
	if !found {
		t.Fatal("docs/routes.md holds no example")
	}
	if _, err := routes.Parse([]byte(file), "docs/routes.md", environment); err != nil {
		t.Error(err)
	}
	if err := validate(compileSchema(t), file); err != nil {
		t.Error(err)
	}
}
