package routes_test

import (
	"encoding/base64"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/internal/routes"
)

func secretOf(letter string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

// environment is what tests find; every value holds hunter2 where its form lets it, and no fault may show that.
func environment(name string) (string, bool) {
	value, found := map[string]string{
		"CRM_URL":    "https://crm.example.com/hook?token=hunter2",
		"CRM_SECRET": secretOf("s"),
		"OLD_SECRET": secretOf("o"),
		"HOST":       "crm.example.com",
		"EMPTY":      "",
		"BAD_URL":    "ftp://hunter2:hunter2@/hunter2#hunter2",
		"BAD_SECRET": "whsec_hunter2",
		"PORT":       "8080",
		"SNIPPET":    "200",

		"CERTIFICATE": client().certificate, "KEY": client().key, "OTHER_KEY": client().otherKey,
		"BAD":     "hunter2",
		"YAML":    "hunter2\", allow_http: true, x: \"\n  - hunter2",
		"NESTED":  "${CRM_URL}",
		"TRUE":    "true",
		"TIMEOUT": "3s",
		"NETWORK": "10.1.0.0/16",
		"LOOSE":   "10.1.2.3/16",
		"TYPE":    "order.archived",
		"BLANK":   "  ",
		"NAME":    "crm",
		"TOPIC":   "arn:aws:sns:eu-west-1:123456789012:hunter2.fifo",
		"MAIL":    "hunter2@a.test",
		"BYTES":   "1048576",
		"COUNT":   "12",
		"STATUS":  "404",

		"arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/crm-AbCdEf#url": "https://crm.example.com/hunter2",
	}[name]
	return value, found
}

func TestParseReadsTheWholeGrammar(t *testing.T) {
	t.Parallel()
	got, err := routes.Parse([]byte(`
# comment
version: 1
known: [order.archived, "${TYPE}.v2", "1"]
destinations:
  crm:
    http:
      url: ${CRM_URL}
      secrets: ["${CRM_SECRET}", "${OLD_SECRET}"]
      timeout: 1m30s
      allow_http: false
      headers: {Authorization: "Bearer ${NAME}", X-Team: orders}
      client_certificate: ${CERTIFICATE}
      client_key: ${KEY}
      ca: ${CERTIFICATE}
      response_snippet: ${SNIPPET}
      allow_ports: [8443, 9000-9010, "${PORT}"]
      allow_private: [10.0.0.0/8, "fd00::/8", "${NETWORK}"]
  billing-2.eu:
    http: {url: "http://${HOST}:80/$5/$${x}", allow_http: "${TRUE}"}
  topic:
    sns: {topic_arn: "${TOPIC}", max_message_bytes: 2048, timeout: 3s}
  mail:
    ses:
      from: Orders <${MAIL}>
      configuration_set: orders
      reply_to: [help@a.test, "${MAIL}"]
routes:
  order.shipped: {to: topic}
  invoice.due: {to: mail}
  order.placed: {to: crm}
  "order paid": {to: "${NAME}"}
  invoice.sent:
    to: billing-2.eu
`), "routes.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	want := routes.File{
		Known: []string{"order.archived", "order.archived.v2", "1"},
		Destinations: map[string]routes.Destination{
			"crm": {Timeout: 90 * time.Second, HTTP: &handlers.HTTPConfig{
				URL:               "https://crm.example.com/hook?token=hunter2",
				Secrets:           []string{secretOf("s"), secretOf("o")},
				Headers:           map[string]string{"Authorization": "Bearer crm", "X-Team": "orders"},
				ClientCertificate: client().certificate, ClientKey: client().key, CA: client().certificate, ResponseSnippet: 200,
				AllowPorts: []handlers.Ports{{First: 8443, Last: 8443}, {First: 9000, Last: 9010}, {First: 8080, Last: 8080}},
				AllowPrivate: []netip.Prefix{
					netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("10.1.0.0/16"),
				},
			}},
			"billing-2.eu": {Timeout: 10 * time.Second, HTTP: &handlers.HTTPConfig{
				URL: "http://crm.example.com:80/$5/${x}", AllowHTTP: true,
			}},
			"topic": {Timeout: 3 * time.Second, SNS: &handlers.SNSConfig{
				TopicARN: "arn:aws:sns:eu-west-1:123456789012:hunter2.fifo", MaxMessageBytes: 2048,
			}},
			"mail": {Timeout: 10 * time.Second, SES: &handlers.SESConfig{
				From: "Orders <hunter2@a.test>", ConfigurationSet: "orders", ReplyTo: []string{"help@a.test", "hunter2@a.test"},
			}},
		},
		Routes: map[string]routes.Route{
			"order.placed": {To: "crm"}, "order paid": {To: "crm"}, "invoice.sent": {To: "billing-2.eu"},
			"order.shipped": {To: "topic"}, "invoice.due": {To: "mail"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseReportsEveryFaultWithItsLine(t *testing.T) {
	t.Parallel()
	_, err := routes.Parse([]byte(`version: 2
knwon: [a]
known: [x, "", x]
destinations:
  crm:
    http:
      url: ${BAD_URL}
      secrets: ["${BAD_SECRET}", "${MISSING}", plain]
      timeout: 1h
      alow_http: true
      allow_private: [10.0.0.1/8, nonsense]
  old:
    https: {url: https://a.test}
  crm: {}
routes:
  x: {to: crm}
  y: {to: crn}
  z: {}
`), "routes.yaml", environment)
	want := `routes.yaml:1: version: takes 1
routes.yaml:2: unknown key "knwon", did you mean known?, takes version, source, known, destinations, routes
routes.yaml:3: known[1]: is blank, takes an event type
routes.yaml:3: known[2]: names a type a second time
routes.yaml:7: destinations.crm.http.url: has another scheme or none, takes https; has no host; has user information, takes none; has a fragment, takes none
routes.yaml:8: destinations.crm.http.secrets[1]: environment variable MISSING is not set
routes.yaml:8: destinations.crm.http.secrets[0]: is not standard base64 after its prefix, takes whsec_ and base64 of 24 to 64 bytes, or whsk_ and base64 of an ed25519 key
routes.yaml:8: destinations.crm.http.secrets[2]: starts with neither whsec_ nor whsk_, takes whsec_ and base64 of 24 to 64 bytes, or whsk_ and base64 of an ed25519 key
routes.yaml:9: destinations.crm.http.timeout: is out of range, takes 100ms to 900s
routes.yaml:10: destinations.crm.http: unknown key "alow_http", did you mean allow_http?, takes url, secrets, timeout, headers, client_certificate, client_key, ca, response_snippet, allow_http, allow_ports, allow_private
routes.yaml:11: destinations.crm.http.allow_private[0]: 10.0.0.1/8 has bits set after its length, takes 10.0.0.0/8
routes.yaml:11: destinations.crm.http.allow_private[1]: is no network, takes one like 10.0.0.0/8 or fd00::/8
routes.yaml:13: destinations.old: unknown key "https", did you mean http?, takes http, endpoints, sns, ses, concurrency, rate, circuit, max_age, discard_on, snooze_on, on_discard, envelope, source, dataschema
routes.yaml:14: destinations: has the key "crm" twice, first on line 5
routes.yaml:16: routes.x: is routed here and known as another worker's, takes one of both
routes.yaml:17: routes.y.to: no destination has this name, did you mean crm?
routes.yaml:18: routes.z: to is missing, takes the name of a destination`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestParseReplacesVariablesInValuesOnly(t *testing.T) {
	t.Parallel()
	got, err := routes.Parse([]byte(`
version: 1
known: ["${YAML}", "${NESTED}"]
destinations: {crm: {http: {url: "https://a.test"}}}
routes: {"${TYPE}": {to: crm}}
`), "routes.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	yaml, _ := environment("YAML")
	if want := []string{yaml, "${CRM_URL}"}; !reflect.DeepEqual(got.Known, want) {
		t.Errorf("known %q, want %q: a value is neither YAML nor expanded again", got.Known, want)
	}
	if _, literal := got.Routes["${TYPE}"]; !literal {
		t.Errorf("routes %v, want the key as it is", got.Routes)
	}
}

func TestParseRefusesAnAliasBomb(t *testing.T) {
	t.Parallel()
	var bomb strings.Builder
	bomb.WriteString("version: 1\nknown:\n  - &a0 [x]\n")
	for i := range 40 {
		n := string(rune('0' + i%10))
		bomb.WriteString("  - &a" + string(rune('a'+i%26)) + n + " [" + strings.Repeat("*a0, ", 20) + "*a0]\n")
	}
	bomb.WriteString("destinations: {c: {http: {url: 'https://a.test'}}}\nroutes: {t: {to: c}}\n")
	_, err := routes.Parse([]byte(bomb.String()), "routes.yaml", environment)
	if err == nil || !strings.Contains(err.Error(), "routes.yaml:3: anchors") || !strings.Contains(err.Error(), "routes.yaml:4: aliases") {
		t.Errorf("error %.300v, want anchors and aliases refused by line", err)
	}
}

func TestParseBoundsTheFile(t *testing.T) {
	t.Parallel()
	_, err := routes.Parse([]byte("# "+strings.Repeat("x", 1<<20)), "routes.yaml", environment)
	if err == nil || err.Error() != "routes.yaml:1: holds 1048578 bytes, takes at most 1048576" {
		t.Errorf("error %v", err)
	}
}

func TestParseRefusesAnAddressThatWouldBeBlocked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		host, allow string
		refused     bool
	}{
		{"127.0.0.1:9000", "", true},
		{"localhost", "", true},
		{"api.LocalHost.:9000", "", true},
		{"[::1]", "", true},
		{"[fe80::1%25eth0]", "", true},
		{"[::ffff:10.0.0.1]", "", true},
		{"169.254.169.254", "", true},
		{"10.0.0.1", "127.0.0.0/8", true},
		{"10.0.0.1", "127.0.0.0/8, 10.0.0.0/8", false},
		{"[::ffff:10.0.0.1]", "10.0.0.0/8", false},
		{"[fe80::1%25eth0]", "fe80::/10", false},
		{"localhost", "127.0.0.0/8", false},
		{"localhost", "'::1/128'", false},
		{"localhost", "10.0.0.0/8", true},
		{"8.8.8.8", "", false},
		{"[2606:4700::1111]", "", false},
		{"notlocalhost", "", false}, // a name server decides
		{"localhost.example.com", "", false},
	} {
		_, err := routes.Parse([]byte("version: 1\ndestinations: {crm: {http: {url: \"http://"+test.host+"/hunter2\", allow_http: true, allow_ports: [9000], allow_private: ["+
			test.allow+"]}}}\nroutes: {x: {to: crm}}\n"), "routes.yaml", environment)
		want := ""
		if test.refused {
			want = "routes.yaml:2: destinations.crm.http.url: the address is private or special, and would be refused; add its network to allow_private, like 127.0.0.0/8"
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("host %s, allowed [%s]: got %q, want %q", test.host, test.allow, got, want)
		}
	}
}

func TestParseHintsAtWhatWasMeant(t *testing.T) {
	t.Parallel()
	_, err := routes.Parse([]byte(`version: 1
destinations:
  crm: {http: {url: "http://127.0.0.1", allow_http: true, allow_private: [127.0.0.1]}}
  erp: {http: {url: "http://[::1]", allow_http: true, allow_private: ["::1"]}}
routes:
  x: crm
  y: erp
  z: hunter2
`), "routes.yaml", environment)
	want := `routes.yaml:3: destinations.crm.http.allow_private[0]: is no network, takes one like 10.0.0.0/8 or fd00::/8; did you mean 127.0.0.1/32?
routes.yaml:4: destinations.erp.http.allow_private[0]: is no network, takes one like 10.0.0.0/8 or fd00::/8; did you mean ::1/128?
routes.yaml:6: routes.x: is text, takes a mapping like {to: crm}
routes.yaml:7: routes.y: is text, takes a mapping like {to: erp}
routes.yaml:8: routes.z: is text, takes a mapping like {to: crm}`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// A secret in the wrong place is a mistake that a log must not make worse.
func TestNoFaultShowsWhatTheFileHolds(t *testing.T) {
	t.Parallel()
	const good = "version: 1\nknown: [a]\ndestinations:\n  crm: {http: {url: 'https://a.test', secrets: [], timeout: 5s, allow_private: []}}\nroutes:\n  b: {to: crm}\n"
	for _, secret := range []string{secretOf("h"), "whsk_" + secretOf("h")[6:], secretOf("h")[6:], "AKIAHUNTERHUNTERHUNT"} {
		for place, file := range map[string]string{
			"version":              strings.Replace(good, "version: 1", "version: "+secret, 1),
			"whole file":           secret,
			"top key":              good + secret + ": x\n",
			"top key twice":        good + secret + ": x\n" + secret + ": x\n",
			"known twice":          strings.Replace(good, "[a]", "["+secret+", "+secret+"]", 1),
			"known text":           strings.Replace(good, "[a]", secret, 1),
			"known tag":            strings.Replace(good, "[a]", "[!"+secret+"]", 1),
			"known anchor":         strings.Replace(good, "[a]", "[&"+secret+" a]", 1),
			"known alias":          strings.Replace(good, "[a]", "[*"+secret+"]", 1),
			"destination":          strings.Replace(good, "crm: {", secret+": 5\n  crm: {", 1),
			"destination is text":  strings.Replace(good, "crm: {", "erp: "+secret+"\n  crm: {", 1),
			"kind":                 strings.Replace(good, "http:", secret+":", 1),
			"field":                strings.Replace(good, "timeout: 5s", secret+": 5s", 1),
			"url":                  strings.Replace(good, "'https://a.test'", secret, 1),
			"secrets":              strings.Replace(good, "secrets: []", "secrets: "+secret, 1),
			"secrets is a mapping": strings.Replace(good, "secrets: []", "secrets: {"+secret+"}", 1),
			"timeout":              strings.Replace(good, "timeout: 5s", "timeout: "+secret, 1),
			"allow_http":           strings.Replace(good, "timeout: 5s", "allow_http: "+secret, 1),
			"allow_private":        strings.Replace(good, "allow_private: []", "allow_private: ["+secret+"]", 1),
			"variable":             strings.Replace(good, "'https://a.test'", "'${"+secret+"}'", 1),
			"variable's name":      strings.Replace(good, "'https://a.test'", "'${"+strings.Trim(secret, "=")+"}'", 1),
			"variable unclosed":    strings.Replace(good, "'https://a.test'", "'${"+secret+"'", 1),
			"topic":                strings.Replace(good, "http: {url: 'https://a.test'", "sns: {topic_arn: "+secret, 1),
			"message bytes":        strings.Replace(good, "http: {url: 'https://a.test'", "sns: {max_message_bytes: "+secret, 1),
			"from":                 strings.Replace(good, "http: {url: 'https://a.test'", "ses: {from: "+secret, 1),
			"configuration set":    strings.Replace(good, "http: {url: 'https://a.test'", "ses: {configuration_set: "+secret, 1),
			"reply_to":             strings.Replace(good, "http: {url: 'https://a.test'", "ses: {reply_to: ["+secret+"]", 1),
			"route":                strings.Replace(good, "b: {to: crm}", secret+": {to: x}", 1),
			"route is text":        strings.Replace(good, "b: {to: crm}", "b: "+secret, 1),
			"to":                   strings.Replace(good, "b: {to: crm}", "b: {to: "+secret+"}", 1),
			"route's field":        strings.Replace(good, "b: {to: crm}", "b: {to: crm, "+secret+": x}", 1),
			"broken":               strings.Replace(good, "b: {to: crm}", "b: {to: '"+secret, 1),
		} {
			_, err := routes.Parse([]byte(file), "f", environment)
			if err == nil {
				t.Errorf("%s: accepted, want a fault", place)
				continue
			}
			if bare := strings.Trim(secret, "="); strings.Contains(err.Error(), bare) {
				t.Errorf("%s: %v shows the secret", place, err)
			}
		}
	}
}
