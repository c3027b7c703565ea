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
