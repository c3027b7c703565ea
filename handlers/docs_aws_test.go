package handlers

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/outbox"
)

var update = flag.Bool("update", false, "write the generated tables into docs/faults.md")

// providerTable is a provider's half of the table as the documentation prints it.
func providerTable(provider string) string {
	var b strings.Builder
	b.WriteString("| reason | outcome | when SNS or SES answers | what happened, and what to do |\n| --- | --- | --- | --- |\n")
	for _, fault := range awsFaults() {
		if fault.provider != "" && fault.provider != provider {
			continue
		}
		when := fault.when
		if len(fault.codes) > 0 {
			when = "`" + strings.Join(fault.codes, "`, `") + "`"
			if fault.when != "" {
				when += " and " + fault.when
			}
		}
		outcome := string(fault.outcome)
		if fault.delay > 0 {
			outcome += fmt.Sprintf(", %d min", int(fault.delay.Minutes()))
		}
		fmt.Fprintf(&b, "| `%s_%s` | %s | %s | %s |\n", provider, fault.reason, outcome, when, fault.advice)
	}
	return strings.Replace(b.String(), "SNS or SES", strings.ToUpper(provider), 1)
}

func TestProviderTablesAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	const path = "../docs/faults.md"
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content := string(raw)
	for _, provider := range []string{providerSNS, providerSES} {
		before, after, opened := strings.Cut(content, "<!-- "+provider+": ")
		comment, after, _ := strings.Cut(after, "-->\n")
		got, rest, closed := strings.Cut(after, "<!-- /"+provider+" -->")
		want := "\n" + providerTable(provider) + "\n"
		if !opened || !closed {
			t.Fatalf("docs/faults.md has no place for the table of %s", provider)
		}
		if got != want && !*update {
			t.Errorf("docs/faults.md holds\n%s\nwant\n%s", got, want)
		}
		content = before + "<!-- " + provider + ": " + comment + "-->\n" + want + "<!-- /" + provider + " -->" + rest
	}
	if *update {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A code behind a wider row would never decide, and the documentation would lie.
func TestProviderTableRowsAreNotHidden(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{providerSNS, providerSES} {
		call := awsCall{provider: provider, path: new(path)}
		for _, row := range awsFaults() {
			if row.match != nil || row.provider != "" && row.provider != provider {
				continue
			}
			for _, code := range row.codes {
				answer := awsAnswer{code: strings.TrimSuffix(code, "*")}
				for _, first := range awsFaults() {
					if first.fits(call, answer) {
						if first.reason != row.reason || first.outcome != row.outcome {
							t.Errorf("%s %s is decided by %s, want %s", provider, code, first.reason, row.reason)
						}
						break
					}
				}
			}
		}
	}
}

func TestTheTableEndsWithARetryThatFitsAll(t *testing.T) {
	t.Parallel()
	faults := awsFaults()
	last := faults[len(faults)-1]
	if last.outcome != outbox.Retry || last.match != nil || last.codes != nil || last.provider != "" {
		t.Errorf("the last row is %s, want a retry of whatever is left", last.reason)
	}
}

// section is a part of docs/routes.md, from its heading to the next.
func section(t *testing.T, heading string) string {
	t.Helper()
	content, err := os.ReadFile("../docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(content), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/routes.md has no section %q", heading)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

func TestDocumentationNamesEveryAttributeAndType(t *testing.T) {
	t.Parallel()
	text := section(t, "The message on a topic")
	attributes := snsAttributes(outbox.Event{
		ID: "1", AggregateType: "order", AggregateID: "2", Type: "order.placed", IdempotencyKey: "3",
	}, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	for name, value := range attributes {
		documented := false
		for line := range strings.Lines(text) {
			names, after, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
			documented = documented || strings.Contains(names, "`"+name+"`") && strings.HasPrefix(after, *value.DataType+" |")
		}
		if !documented {
			t.Errorf("docs/routes.md lacks %s of type %s", name, *value.DataType)
		}
	}
	if len(attributes) != 9 {
		t.Errorf("%d attributes, want 9", len(attributes))
	}
}

func TestDocumentationNamesEveryFieldOfAMailAndItsExamplesAreTaken(t *testing.T) {
	t.Parallel()
	text := section(t, "The payload of a mail")
	for field := range strings.SplitSeq(mailFields, ", ") {
		documented := false
		for line := range strings.Lines(text) {
			names, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
			documented = documented || strings.HasPrefix(line, "| `") && strings.Contains(names, "`"+field+"`")
		}
		if !documented {
			t.Errorf("docs/routes.md lacks the field %s", field)
		}
	}
	examples := strings.Split(text, "```json\n")[1:]
	for _, example := range examples {
		payload, _, _ := strings.Cut(example, "```")
		if _, err := parseMail([]byte(payload), []string{"@example.com"}); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
	if len(examples) != 3 {
		t.Errorf("%d examples, want 3", len(examples))
	}
}
