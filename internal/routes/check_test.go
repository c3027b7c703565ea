package routes_test

import (
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/openlup/outbox-dispatch/internal/routes"
)

func nothing(string) (string, bool) { return "", false }

func everything(string) bool { return true }

// What is not at hand is no fault, and hides no other one.
func TestCheckLeavesOutWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/crm-AbCdEf"
	file := `
version: 1
known: ["${A}"]
source: "${B}"
destinations:
  crm:
    http: {url: "http://${C}:8080/", secrets: ["${` + arn + `#signing}", "whsec_${D}"], allow_http: "${E}", allow_private: ["${F}"], timeout: "${G}"}
    rate: "${H}"
    concurrency: "${I}"
    discard_on: ["${J}", 404]
    max_age: "${K}"
    envelope: "${L}"
    circuit: "${M}"
  mail: {ses: {from: "${N}", reply_to: ["${O}"]}}
  topic: {sns: {topic_arn: "${P}", max_message_bytes: "${Q}"}}
routes:
  a: {to: "${R}"}
  b: {to: crm, snooze_on: ["${S}"]}
`
	_, unknown, err := routes.Check([]byte(file), "f", nothing, everything)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range unknown {
		names = append(names, u.Label())
		if u.Line < 3 || u.Field == "" {
			t.Errorf("%s stands on line %d in %q", u.Label(), u.Line, u.Field)
		}
	}
	if got := strings.Join(names, " "); len(unknown) != 20 || !strings.Contains(got, "secret shop/crm-AbCdEf") {
		t.Errorf("%d unknown: %s, want all 20", len(unknown), got)
	}
	if _, unknown, err := routes.Check([]byte(file), "f", nothing, routes.IsSecret); len(unknown) != 1 ||
		err == nil || strings.Count(err.Error(), "is not set") != 19 {
		t.Errorf("%d unknown, faults\n%v\nwant the secret alone unknown", len(unknown), err)
	}
	broken := strings.Replace(file, "404]", "404, none]", 1)
	if _, _, err := routes.Check([]byte(broken), "f", nothing, everything); err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "f:10: destinations.crm.discard_on[2]: is no reason") {
		t.Errorf("faults %v, want the one that does not depend on anything unknown", err)
	}
	// Where all is known a check is what the function does.
	for _, test := range fileCases() {
		_, parseErr := routes.Parse([]byte(test.file), "f", environment)
		_, unknown, err := routes.Check([]byte(test.file), "f", environment, everything)
		if len(unknown) == 0 && !reflect.DeepEqual(parseErr, err) {
			t.Errorf("%s: check says %v, want %v", test.name, err, parseErr)
		}
	}
}

// Whatever value of a sound file is not known, nothing else becomes a fault for want of it.
func TestCheckBlamesNothingForAnUnknownValue(t *testing.T) {
	t.Parallel()
	replaced := 0
	for _, test := range fileCases() {
		var document yaml.Node
		if test.fault != "" || yaml.Unmarshal([]byte(test.file), &document) != nil {
			continue
		}
		for _, value := range scalars(&document) {
			was := *value
			*value = yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: "${NOBODY_SET_THIS}"}
			file, err := yaml.Marshal(&document)
			if err != nil {
				t.Fatal(err)
			}
			*value = was
			_, unknown, err := routes.Check(file, "f", environment, everything)
			if err != nil || len(unknown) == 0 {
				t.Errorf("%s: %d unknown, %v in\n%s", test.name, len(unknown), err, file)
			}
			replaced++
		}
	}
	if replaced < 100 {
		t.Errorf("%d values replaced, want the test to find them", replaced)
	}
}

// scalars are the values below the top level; the keys and the version are not among them.
func scalars(node *yaml.Node) (values []*yaml.Node) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 1; i < len(node.Content); i += 2 {
			if node.Content[i-1].Value != "version" {
				values = append(values, scalars(node.Content[i])...)
			}
		}
	case yaml.ScalarNode:
		values = []*yaml.Node{node}
	default:
		for _, child := range node.Content {
			values = append(values, scalars(child)...)
		}
	}
	return values
}

func TestReferencesToSecretsAreRecognised(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:"
	for name, want := range map[string]bool{
		arn + "crm-AbCdEf": true, arn + "shop/crm_1+=.@-AbCdEf#key": true, arn + "crm#a key, any": true,
		"arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:a": true,
		arn: false, arn + "#key": false, arn + "crm#": false, arn + "crm:key": false, arn + "c m": false,
		"arn:aws:secretsmanager:eu-west-1:12345:secret:crm": false, "arn:aws:secretsmanager::123456789012:secret:crm": false,
		"arn:aws:sns:eu-west-1:123456789012:secret:crm": false, "CRM_SECRET": false, "": false,
	} {
		if got := routes.IsSecret(name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}

func TestEveryKindTellsItsName(t *testing.T) {
	t.Parallel()
	samples := map[string]string{
		"http": "url: 'https://a.test'", "endpoints": "by: metadata.tenant", "ses": "from: a@a.test",
		"sns": "topic_arn: 'arn:aws:sns:eu-west-1:123456789012:orders'",
	}
	for kind, fields := range samples {
		file, err := routes.Parse([]byte(withKind(kind+": {"+fields+"}\n    discard_on: []")), "f", environment)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		} else if got := file.Destinations["crm"].Kind(); got != kind {
			t.Errorf("%s: calls itself %q", kind, got)
		}
		if _, err := routes.Parse([]byte(withKind(kind+": {"+fields+"}\n    discard_on: [none]")), "f", environment); err == nil {
			t.Errorf("%s: takes a reason that does not exist", kind)
		}
	}
	_, err := routes.Parse([]byte("version: 1\ndestinations: {crm: {}}\nroutes: {x: {to: crm}}\n"), "f", environment)
	if err == nil {
		t.Fatal("a destination without a kind is accepted")
	}
	if _, list, _ := strings.Cut(err.Error(), "takes one of "); strings.Count(list, ",")+1 != len(samples) {
		t.Errorf("kinds are %s, the test knows %d", list, len(samples))
	}
}
