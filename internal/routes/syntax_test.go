package routes_test

import (
	"strings"
	"testing"

	"github.com/openlup/outbox-dispatch/internal/routes"
)

func TestSyntaxFaultsHelpWithWhatHappensOften(t *testing.T) {
	t.Parallel()
	const (
		quote = `; inside braces and brackets a value with ${NAME} stands in quotes, "${NAME}"`
		brace = "is no YAML: did not find expected ',' or '}'"
		list  = "is no YAML: did not find expected ',' or ']'"
		token = "is no YAML: found character that cannot start any token"
		tab   = "; a tab indents nothing, use spaces"
		head  = "version: 1\ndestinations:\n"
	)
	for file, want := range map[string]string{
		head + "  crm: {http: {url: ${CRM_URL}}}\n":                                         "3: " + brace + quote,
		head + "  crm: {http: {url: https://a.test/${hunter2}, timeout: 5s}}\n":             "3: " + brace + quote,
		head + "  crm: {http: {url: \"a\", secrets: [${hunter2}]}}\n":                       "3: " + list + quote,
		head + "  crm:\n    http:\n      url: ${CRM_URL}\n      secrets: [ ${hunter2} ]\n":  "6: " + list + quote,
		head + "  crm:\n    http: {url: \"${CRM_URL}\",\n      secrets: [${hunter2}]}\n":    "5: " + list + quote,
		"# {${hunter2}\nversion: 1 # it's {\nroutes: {a: {to: ${X}}}\n":                     "3: " + brace + quote,
		"known: ['it''s', \"\\\"\", 'a # b', a#b]\nroutes: {a: {to: x$${X}}}\n":             "2: " + brace + quote,
		"{version: 1, destinations: {crm: {http: {url: ${CRM_URL}}}}}":                      "1: " + brace + quote,
		head + "  crm: {http: {url: \"${hunter2}\", secrets: ['${hunter2}']}\nroutes: {}\n": "3: " + brace,
		head + "  crm: {http: {url: \"a\" # ${hunter2}\nroutes: {}\n":                       "3: " + brace,
		head + "\tcrm: {http: {url: hunter2}}\n":                                            "3: " + token + tab,
		head + "  crm:\n  \thttp: {url: ${hunter2}}\n":                                      "4: " + token + tab,
		head + "  crm: @hunter2\n":                                                          "3: " + token,
		head + "  crm: {http: {url: hunter2}}\n - x\n":                                      "4: is no YAML: did not find expected key",
	} {
		_, err := routes.Parse([]byte(file), "f", environment)
		if err == nil || err.Error() != "f:"+want {
			t.Errorf("%q:\ngot  %v\nwant f:%s", file, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v shows a value", file, err)
		}
	}
}

// The hint's search runs over whatever somebody put into the file.
func FuzzParseEndsWhateverTheText(f *testing.F) {
	for _, text := range []string{"", "{[", "${", "'", "\"\\", "{${", "#", "{a: '${", "\t{", "{'''", "]}${X}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := routes.Parse([]byte("version: 2\n"+text), "f", environment); err == nil {
			t.Error("took a file of version 2")
		}
	})
}
