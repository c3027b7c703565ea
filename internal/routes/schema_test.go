package routes_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/openlup/outbox-dispatch/internal/routes"
)

// fileCase is a file, the fault that the parser must report (none: accepted), and whether the schema sees it too:
// it cannot know ranges, duplicates, the environment, or that one part of the file refers to another.
type fileCase struct {
	name, file, fault string
	schemaBlind       bool
}

// with returns a good file whose destination crm holds these lines besides its URL.
func with(fields string) string {
	return "version: 1\ndestinations:\n  crm:\n    http: {url: \"https://a.test\", " + fields + "}\nroutes: {order.placed: {to: crm}}\n"
}

func withURL(url string) string {
	return "version: 1\ndestinations: {crm: {http: {url: " + url + "}}}\nroutes: {order.placed: {to: crm}}\n"
}

// withKind returns a good file but for the kind of its destination crm.
func withKind(kind string) string {
	return "version: 1\ndestinations:\n  crm:\n    " + kind + "\nroutes: {order.placed: {to: crm}}\n"
}

func withSNS(fields string) string {
	return withKind("sns: {topic_arn: 'arn:aws:sns:eu-west-1:123456789012:orders', " + fields + "}")
}

const tenants = "arn:aws:sns:eu-west-1:123456789012:orders-"

// withTopics returns a good file but for the topics of its destination.
func withTopics(topics string) string {
	return withKind("sns: {topic_arn: '" + tenants + "{payload.tenant.id}', topics: " + topics + "}")
}

func withSES(fields string) string {
	return withKind("ses: {from: 'Orders <orders@a.test>', " + fields + "}")
}

// withOption returns a good file whose destination crm has these lines beside its kind.
func withOption(lines string) string { return withKind("http: {url: 'https://a.test'}\n    " + lines) }

// withRoute returns a good file whose route has these fields.
func withRoute(fields string) string {
	return strings.Replace(withKind("http: {url: 'https://a.test'}"), "{to: crm}", "{to: crm, "+fields+"}", 1)
}

func fileCases() []fileCase {
	const destinations = "destinations: {crm: {http: {url: 'https://a.test'}}}\n"
	const good = "version: 1\n" + destinations + "routes: {order.placed: {to: crm}}\n"
	return []fileCase{
		{name: "smallest", file: good},
		{name: "known", file: good + "known: [order.archived]\n"},
		{name: "known none", file: good + "known: []\n"},
		{name: "document marks", file: "---\n" + good + "...\n"},
		{name: "byte order mark", file: "\ufeff" + good},
		{name: "tagged text", file: good + "known: [!!str 123]\n"},

		{name: "empty", file: "", fault: "1: is empty"},
		{name: "comment only", file: "# nothing\n", fault: "1: is empty"},
		{name: "null", file: "~\n", fault: "1: is nothing, takes a mapping"},
		{name: "text", file: "routes\n", fault: "1: is text, takes a mapping"},
		{name: "list", file: "[]\n", fault: "1: is a list, takes a mapping"},
		{name: "no YAML", file: "version: 1\n\troutes: {\n", fault: "2: is no YAML"},
		{name: "no UTF-8", file: "version: \xff\n", fault: "is no YAML"},
		{name: "unclosed", file: "version: 1\nroutes: {a: {to: b}\n", fault: "is no YAML"},
		{name: "second document", file: good + "---\nversion: 1\n", fault: "4: a second document", schemaBlind: true},
		{name: "anchor", file: good + "known: &k [a]\n", fault: "4: anchors", schemaBlind: true},
		{name: "alias to nothing", file: "known: *hunter2\n", fault: "is no YAML: aliases"},
		{name: "merge", file: good + "<<: {a: b}\n", fault: "4: has a key that is no text"},

		{name: "no version", file: destinations + "routes: {a: {to: crm}}\n", fault: "1: version is missing, takes 1"},
		{name: "version text", file: strings.Replace(good, "1", "\"1\"", 1), fault: "1: version: takes 1"},
		{name: "version 2", file: strings.Replace(good, "1", "2", 1), fault: "1: version: takes 1"},
		{name: "version variable", file: strings.Replace(good, "1", "${NAME}", 1), fault: "1: version: takes 1"},
		{name: "unknown key", file: good + "route: {}\n", fault: `4: unknown key "route", did you mean routes?`},
		{name: "key without a hint", file: good + "webhooks: {}\n", fault: `4: unknown key "webhooks", takes version`},
		{name: "duplicate key", file: good + "version: 1\n", fault: `4: has the key "version" twice, first on line 1`, schemaBlind: true},
		{name: "number as a key", file: good + "1: x\n", fault: "4: has a key that is no text"},

		{name: "known text", file: good + "known: a\n", fault: "4: known: is text, takes a list"},
		{name: "known null", file: good + "known:\n", fault: "4: known: is nothing, takes a list"},
		{name: "known number", file: good + "known: [1]\n", fault: "4: known[0]: is a number, takes text: put it in quotes"},
		{name: "known boolean", file: good + "known: [true]\n", fault: "4: known[0]: is true or false, takes text: put it in quotes"},
		{name: "known null item", file: good + "known: [~]\n", fault: "4: known[0]: is nothing, takes text"},
		{name: "known tagged", file: good + "known: [!x a]\n", fault: "4: known[0]: is tagged with an exclamation mark, takes text", schemaBlind: true},
		{name: "known list", file: good + "known: [[a]]\n", fault: "4: known[0]: is a list, takes text"},
		{name: "known blank", file: good + "known: ['  ']\n", fault: "4: known[0]: is blank"},
		{name: "known tab", file: good + "known: [\"\\t\"]\n"},
		{name: "known twice", file: good + "known: [a, b, a]\n", fault: "4: known[2]: names a type a second time"},
		{name: "known twice by variable", file: good + "known: ['${TYPE}', order.archived]\n", fault: "4: known[1]: names", schemaBlind: true},
		{name: "known and routed", file: good + "known: [order.placed]\n", fault: `3: routes["order.placed"]: is routed here and known`, schemaBlind: true},
		{
			name: "known and routed by variable", file: "version: 1\n" + destinations + "routes: {order.archived: {to: crm}}\nknown: ['${TYPE}']\n",
			fault: `3: routes["order.archived"]: is routed here and known`, schemaBlind: true,
		},

		{name: "no destinations", file: "version: 1\nroutes: {a: {to: b}}\n", fault: "1: destinations are missing"},
		{name: "destinations empty", file: "version: 1\ndestinations: {}\nroutes: {a: {to: b}}\n", fault: "2: destinations: is empty"},
		{name: "destinations list", file: "version: 1\ndestinations: []\nroutes: {a: {to: b}}\n", fault: "2: destinations: is a list"},
		{
			name: "destination unused", file: strings.Replace(good, "{crm:", "{old: {http: {url: 'https://b.test'}}, crm:", 1),
			fault: "2: destinations.old: no route leads here", schemaBlind: true,
		},
		{name: "destination name", file: strings.ReplaceAll(good, "crm", "'-crm'"), fault: "2: destinations.-crm: is no name"},
		{name: "destination name long", file: strings.ReplaceAll(good, "crm", strings.Repeat("n", 65)), fault: "is no name"},
		{name: "destination name longest", file: strings.ReplaceAll(good, "crm", strings.Repeat("n", 64))},
		{name: "no kind", file: strings.Replace(good, "http: {url: 'https://a.test'}", "", 1), fault: "2: destinations.crm: has no kind, takes one of http, endpoints, sns, ses"},
		{name: "null destination", file: strings.Replace(good, "{http: {url: 'https://a.test'}}", "~", 1), fault: "2: destinations.crm: is nothing, takes a mapping"},
		{name: "unknown kind", file: strings.Replace(good, "http:", "kafka:", 1), fault: `2: destinations.crm: unknown key "kafka", takes http, endpoints, sns, ses`},
		{name: "two kinds", file: strings.Replace(good, "http:", "sns: {topic_arn: 'arn:aws:sns:eu-west-1:123456789012:orders'}, http:", 1), fault: "2: destinations.crm: has 2 kinds, takes one"},

		{name: "url missing", file: strings.Replace(good, "{url: 'https://a.test'}", "{}", 1), fault: "2: destinations.crm.http.url: missing"},
		{name: "url null", file: withURL("~"), fault: "2: destinations.crm.http.url: is nothing, takes text"},
		{name: "url empty", file: withURL("''"), fault: "url: missing"},
		{name: "url http", file: withURL("'http://a.test'"), fault: "url: has scheme http, takes https", schemaBlind: true},
		{name: "url other scheme", file: withURL("'ftp://a.test'"), fault: "url: has another scheme"},
		{name: "url upper case", file: withURL("'HTTPS://a.test'")},
		{name: "url relative", file: withURL("/hook"), fault: "url: has another scheme or none"},
		{name: "url space", file: withURL("'https://a.test /'"), fault: "url: cannot be parsed"},
		{name: "url fragment", file: withURL("'https://a.test/#f'"), fault: "url: has a fragment"},
		{name: "url user", file: withURL("'https://u:p@a.test/'"), fault: "url: has user information", schemaBlind: true},
		{name: "url variable", file: withURL("'${CRM_URL}'")},
		{name: "url variable inside", file: withURL("'https://${HOST}/x'")},
		{name: "url unset", file: withURL("'${MISSING}'"), fault: "2: destinations.crm.http.url: environment variable MISSING is not set", schemaBlind: true},
		{name: "url empty variable", file: withURL("'${EMPTY}'"), fault: "url: environment variable EMPTY is empty", schemaBlind: true},
		{name: "url bad variable", file: withURL("'${BAD_URL}'"), fault: "url: has another scheme", schemaBlind: true},
		{name: "url YAML in a variable", file: withURL("'${YAML}'"), fault: "url: cannot be parsed", schemaBlind: true},
		{name: "variable unclosed", file: withURL("'https://${HOST'"), fault: "url: a ${ is never closed", schemaBlind: true},
		{name: "variable name", file: withURL("'https://${HO-ST}'"), fault: "url: a ${} holds no variable's name", schemaBlind: true},
		{name: "variable without a name", file: withURL("'https://${}'"), fault: "url: a ${} holds no variable's name", schemaBlind: true},
		{name: "variable escaped", file: withURL("'https://a.test/$${HOST}'")},
		{name: "dollar", file: withURL("'https://a.test/$HOST$'")},
		{name: "unknown field", file: with("method: PUT"), fault: `4: destinations.crm.http: unknown key "method", takes url`},
		{name: "duplicate field", file: with("url: 'https://a.test'"), fault: `4: destinations.crm.http: has the key "url" twice`, schemaBlind: true},

		{name: "secrets", file: with("secrets: [" + secretOf("a") + ", '${CRM_SECRET}']")},
		{name: "secrets none", file: with("secrets: []")},
		{name: "secrets text", file: with("secrets: '${CRM_SECRET}'"), fault: "4: destinations.crm.http.secrets: is text, takes a list"},
		{name: "secrets null", file: with("secrets: "), fault: "secrets: is nothing, takes a list"},
		{name: "secret plain", file: with("secrets: [hunter2]"), fault: "4: destinations.crm.http.secrets[0]: starts with neither whsec_ nor whsk_"},
		{name: "secret private", file: with("secrets: [whsk_" + strings.Repeat("a2tr", 10) + "a2s=]")},
		{name: "secret private short", file: with("secrets: [whsk_aHVudGVyMmh1bnRlcjI=]"), fault: "secrets[0]: holds 14 bytes, takes 32"},
		{name: "secret no pair", file: with("secrets: [whsk_" + strings.Repeat("a2tr", 21) + "aw==]"), fault: "secrets[0]: holds a public key that is not", schemaBlind: true},
		{name: "secret short", file: with("secrets: [whsec_aHVudGVyMmh1bnRlcjI=]"), fault: "secrets[0]: holds 14 bytes, takes 24 to 64"},
		{name: "secret long", file: with("secrets: [whsec_" + strings.Repeat("hunter22", 11) + "]"), fault: "secrets[0]: holds 66 bytes"},
		{name: "secret not base64", file: with("secrets: ['whsec_hunter2!hunter2!hunter2!hunter2!hunter2']"), fault: "secrets[0]: is not standard base64"},
		{name: "secret variable bad", file: with("secrets: ['${BAD_SECRET}']"), fault: "secrets[0]: is not standard base64", schemaBlind: true},
		{name: "secret variable unset", file: with("secrets: ['${CRM_SECRET}', '${MISSING}']"), fault: "secrets[1]: environment variable MISSING is not set", schemaBlind: true},

		{name: "timeout", file: with("timeout: 500ms")},
		{name: "timeout parts", file: with("timeout: 1m1.5s")},
		{name: "timeout shortest", file: with("timeout: 100ms")},
		{name: "timeout longest", file: with("timeout: 900s")},
		{name: "timeout variable", file: with("timeout: '${TIMEOUT}'")},
		{name: "timeout without unit", file: with("timeout: 10"), fault: "timeout: is a number, takes a duration"},
		{name: "timeout text without unit", file: with("timeout: '10'"), fault: `timeout: is no duration`},
		{name: "timeout words", file: with("timeout: ten seconds"), fault: `timeout: is no duration`},
		{name: "timeout negative", file: with("timeout: '-1s'"), fault: `timeout: is no duration`},
		{name: "timeout empty", file: with("timeout: ''"), fault: `timeout: is no duration`},
		{name: "timeout unit", file: with("timeout: 500000us"), fault: `timeout: is no duration`},
		{name: "timeout too short", file: with("timeout: 99ms"), fault: `timeout: is out of range, takes 100ms to 900s`, schemaBlind: true},
		{name: "timeout too long", file: with("timeout: 901s"), fault: `timeout: is out of range`, schemaBlind: true},
		{name: "timeout overflow", file: with("timeout: 9999999999999h"), fault: "is no duration", schemaBlind: true},
		{name: "timeout bad variable", file: with("timeout: '${BAD}'"), fault: "timeout: is no duration", schemaBlind: true},

		{name: "allow_http", file: strings.Replace(with("allow_http: true"), "https:", "http:", 1)},
		{name: "allow_http variable", file: strings.Replace(with("allow_http: '${TRUE}'"), "https:", "http:", 1)},
		{name: "allow_http text", file: with("allow_http: 'true'"), fault: "allow_http: is text, takes true or false"},
		{name: "allow_http yes", file: with("allow_http: yes"), fault: "allow_http: is text, takes true or false"},
		{name: "allow_http number", file: with("allow_http: 1"), fault: "allow_http: is a number, takes true or false"},
		{name: "headers", file: with("headers: {Authorization: 'Bearer ${NAME}', X-Api-Key: hunter2, User-Agent: shop}")},
		{name: "headers none", file: with("headers: {}")},
		{name: "headers list", file: with("headers: [hunter2]"), fault: "4: destinations.crm.http.headers: is a list, takes a mapping"},
		{name: "headers number", file: with("headers: {X-Api: 17}"), fault: "headers.X-Api: is a number, takes text: put it in quotes"},
		{name: "headers null", file: with("headers: {X-Api: }"), fault: "headers.X-Api: is nothing, takes text"},
		{name: "headers empty", file: with("headers: {X-Api: ''}"), fault: "headers.X-Api: is empty"},
		{name: "headers name", file: with("headers: {'X Api': hunter2}"), fault: `4: destinations.crm.http.headers["X Api"]: is no name of a header`},
		{name: "headers name like a secret", file: with("headers: {'whsec_hunter2': ''}"), fault: `headers[(not shown, looks like a secret)]: is empty`},
		{name: "headers taken", file: with("headers: {Webhook-Id: hunter2}"), fault: "4: destinations.crm.http.headers.Webhook-Id: is set by the dispatcher itself", schemaBlind: true},
		{name: "headers host", file: with("headers: {host: hunter2}"), fault: "headers.host: is set by the dispatcher itself", schemaBlind: true},
		{name: "headers twice", file: with("headers: {X-A: hunter2, X-A: b}"), fault: `headers: has the key "X-A" twice`, schemaBlind: true},
		{name: "headers twice in other letters", file: with("headers: {X-A: hunter2, x-a: b}"), fault: "headers.x-a: is there twice", schemaBlind: true},
		{name: "headers broken", file: with("headers: {X-A: \"hunter2\\nX-B: c\"}"), fault: "headers.X-A: has a control character", schemaBlind: true},
		{name: "headers bad variable", file: with("headers: {X-A: '${YAML}'}"), fault: "headers.X-A: has a control character", schemaBlind: true},
		{name: "headers unset variable", file: with("headers: {X-A: '${MISSING}'}"), fault: "headers.X-A: environment variable MISSING", schemaBlind: true},
		{name: "client pair", file: with("client_certificate: '${CERTIFICATE}', client_key: '${KEY}', ca: '${CERTIFICATE}'")},
		{name: "client certificate alone", file: with("client_certificate: '${CERTIFICATE}'"), fault: "4: destinations.crm.http.client_key: missing"},
		{name: "client key alone", file: with("client_key: '${KEY}'"), fault: "4: destinations.crm.http.client_certificate: missing"},
		{name: "client certificate empty", file: with("client_certificate: '', client_key: '${KEY}'"), fault: "client_certificate: is empty"},
		{name: "client certificate plain", file: with("client_certificate: hunter2, client_key: '${KEY}'"), fault: "client_certificate: holds no certificate"},
		{name: "client key plain", file: with("client_certificate: '${CERTIFICATE}', client_key: hunter2"), fault: "client_key: holds no private key"},
		{name: "client key of another", file: with("client_certificate: '${CERTIFICATE}', client_key: '${OTHER_KEY}'"), fault: "client_key: cannot be parsed, or is not the key", schemaBlind: true},
		{name: "client key unset", file: with("client_certificate: '${CERTIFICATE}', client_key: '${MISSING}'"), fault: "client_key: environment variable MISSING", schemaBlind: true},
		{name: "client key null", file: with("client_certificate: '${CERTIFICATE}', client_key: "), fault: "client_key: is nothing, takes text"},
		{name: "ca plain", file: with("ca: hunter2"), fault: "4: destinations.crm.http.ca: holds no certificate"},
		{name: "ca empty", file: with("ca: ''"), fault: "ca: is empty"},
		{name: "ca key", file: with("ca: '${KEY}'"), fault: "ca: holds a block that is no certificate", schemaBlind: true},
		{name: "snippet", file: with("response_snippet: 1000")},
		{name: "snippet none", file: with("response_snippet: 0")},
		{name: "snippet none twice", file: with("response_snippet: 00")},
		{name: "snippet variable", file: with("response_snippet: '${SNIPPET}'")},
		{name: "snippet high", file: with("response_snippet: 1001"), fault: "4: destinations.crm.http.response_snippet: 1001, takes 0 to 1000"},
		{name: "snippet negative", file: with("response_snippet: -1"), fault: "response_snippet: is no whole number, zero or above"},
		{name: "snippet text", file: with("response_snippet: '100'"), fault: "response_snippet: is text, takes a whole number"},
		{name: "snippet bad variable", file: with("response_snippet: '${BAD}'"), fault: "response_snippet: is no whole number", schemaBlind: true},

		{name: "allow_ports", file: with("allow_ports: [8443, 8000-8999, '9000', '${PORT}', 1, 65535]")},
		{name: "allow_ports none", file: with("allow_ports: []")},
		{name: "allow_ports number", file: with("allow_ports: 8443"), fault: "4: destinations.crm.http.allow_ports: is a number, takes a list"},
		{name: "allow_ports null", file: with("allow_ports: "), fault: "allow_ports: is nothing, takes a list"},
		{name: "allow_ports words", file: with("allow_ports: [hunter2]"), fault: "4: destinations.crm.http.allow_ports[0]: is no port, takes one like 8443, or several like 8000-8999"},
		{name: "allow_ports zero", file: with("allow_ports: [443, 0]"), fault: "allow_ports[1]: is no port"},
		{name: "allow_ports high", file: with("allow_ports: [65536]"), fault: "allow_ports[0]: is no port"},
		{name: "allow_ports negative", file: with("allow_ports: [-1]"), fault: "allow_ports[0]: is no port"},
		{name: "allow_ports hexadecimal", file: with("allow_ports: [0x1bb]"), fault: "allow_ports[0]: is no port", schemaBlind: true},
		{name: "allow_ports fraction", file: with("allow_ports: [443.5]"), fault: "allow_ports[0]: is a number, takes text"},
		{name: "allow_ports nothing", file: with("allow_ports: [~]"), fault: "allow_ports[0]: is nothing, takes text"},
		{name: "allow_ports open", file: with("allow_ports: ['8000-']"), fault: "allow_ports[0]: is no port"},
		{name: "allow_ports backwards", file: with("allow_ports: [8999-8000]"), fault: "allow_ports[0]: is no port", schemaBlind: true},
		{name: "allow_ports bad variable", file: with("allow_ports: ['${BAD}']"), fault: "allow_ports[0]: is no port", schemaBlind: true},
		{name: "allow_ports unset variable", file: with("allow_ports: ['${MISSING}']"), fault: "allow_ports[0]: environment variable MISSING", schemaBlind: true},
		{name: "url port", file: withURL("'https://a.test:8443'"), fault: "url: has a port that is not allowed, takes 443", schemaBlind: true},
		{name: "url port allowed", file: withURL("'https://a.test:8443', allow_ports: [8443]")},
		{name: "url port refused", file: withURL("'https://a.test:8443', allow_ports: [hunter2]"), fault: "allow_ports[0]: is no port"},
		{name: "allow_http bad variable", file: with("allow_http: '${BAD}'"), fault: "allow_http: takes true or false", schemaBlind: true},
		{name: "allow_http unset variable", file: with("allow_http: '${MISSING}'"), fault: "allow_http: environment variable MISSING", schemaBlind: true},

		{name: "allow_private", file: with("allow_private: [10.0.0.0/8, 'fd00::/8', 127.0.0.1/32, '${NETWORK}']")},
		{name: "allow_private text", file: with("allow_private: 10.0.0.0/8"), fault: "allow_private: is text, takes a list"},
		{name: "allow_private address", file: with("allow_private: [10.0.0.1]"), fault: `allow_private[0]: is no network`},
		{name: "allow_private name", file: with("allow_private: [localhost]"), fault: `allow_private[0]: is no network`},
		{name: "allow_private length", file: with("allow_private: [10.0.0.0/33]"), fault: "is no network", schemaBlind: true},
		{name: "allow_private host bits", file: with("allow_private: [10.0.0.1/8]"), fault: "takes 10.0.0.0/8", schemaBlind: true},
		{name: "allow_private mapped", file: with("allow_private: ['::ffff:10.0.0.0/104']"), fault: "IPv4 form", schemaBlind: true},
		{name: "allow_private bad variable", file: with("allow_private: ['${BAD}']"), fault: "allow_private[0]: is no network", schemaBlind: true},
		{name: "allow_private loose variable", file: with("allow_private: ['${LOOSE}']"), fault: "allow_private[0]: has bits", schemaBlind: true},

		{name: "sns", file: withSNS("")},
		{name: "sns FIFO in China", file: withKind("sns: {topic_arn: 'arn:aws-cn:sns:cn-north-1:123456789012:orders.fifo'}")},
		{name: "sns all", file: withSNS("max_message_bytes: 1048576, timeout: 3s")},
		{name: "sns null", file: withKind("sns: "), fault: "4: destinations.crm.sns: is nothing, takes a mapping"},
		{name: "sns text", file: withKind("sns: hunter2"), fault: "4: destinations.crm.sns: is text, takes a mapping"},
		{name: "sns empty", file: withKind("sns: {}"), fault: "4: destinations.crm.sns.topic_arn: missing, takes one like arn:aws:sns:"},
		{name: "topic null", file: withKind("sns: {topic_arn: ~}"), fault: "topic_arn: is nothing, takes text"},
		{name: "topic empty", file: withKind("sns: {topic_arn: ''}"), fault: "topic_arn: missing"},
		{name: "topic name", file: withKind("sns: {topic_arn: hunter2}"), fault: "topic_arn: not the ARN of an SNS topic"},
		{name: "topic queue", file: withKind("sns: {topic_arn: 'arn:aws:sqs:eu-west-1:123456789012:hunter2'}"), fault: "topic_arn: not the ARN of an SNS topic"},
		{name: "topic without region", file: withKind("sns: {topic_arn: 'arn:aws:sns::123456789012:hunter2'}"), fault: "topic_arn: has no valid"},
		{name: "topic account", file: withKind("sns: {topic_arn: 'arn:aws:sns:eu-west-1:12345:hunter2'}"), fault: "topic_arn: has no account of 12 digits"},
		{name: "topic subscription", file: withKind("sns: {topic_arn: 'arn:aws:sns:eu-west-1:123456789012:orders:hunter2'}"), fault: "topic_arn: is the ARN of a subscription"},
		{name: "topic long", file: withKind("sns: {topic_arn: 'arn:aws:sns:eu-west-1:123456789012:" + strings.Repeat("a", 257) + "'}"), fault: "topic_arn: has no valid topic name"},
		{name: "topic variable", file: withKind("sns: {topic_arn: '${TOPIC}'}")},
		{name: "topic variable inside", file: withKind("sns: {topic_arn: 'arn:aws:sns:eu-west-1:123456789012:${NAME}'}")},
		{name: "topic unset", file: withKind("sns: {topic_arn: '${MISSING}'}"), fault: "topic_arn: environment variable MISSING is not set", schemaBlind: true},
		{name: "topic bad variable", file: withKind("sns: {topic_arn: '${BAD}'}"), fault: "topic_arn: not the ARN", schemaBlind: true},
		{name: "topics", file: withTopics("['" + tenants + "a', '" + tenants + "b.fifo', '" + tenants + "${NAME}']")},
		{name: "topics missing", file: withKind("sns: {topic_arn: '" + tenants + "{event_type}'}"), fault: "4: destinations.crm.sns.topics: missing, takes the ARNs", schemaBlind: true},
		{name: "topics empty", file: withTopics("[]"), fault: "4: destinations.crm.sns.topics: missing, takes the ARNs", schemaBlind: true},
		{name: "topics null", file: withTopics("~"), fault: "topics: is nothing, takes a list"},
		{name: "topics text", file: withTopics("'" + tenants + "a'"), fault: "topics: is text, takes a list"},
		{name: "topics number", file: withTopics("[5]"), fault: "topics[0]: is a number, takes text"},
		{name: "topics unset", file: withTopics("['${MISSING}']"), fault: "topics[0]: environment variable MISSING is not set", schemaBlind: true},
		{name: "topics no ARN", file: withTopics("['" + tenants + "a', hunter2]"), fault: "4: destinations.crm.sns.topics[1]: not the ARN of an SNS topic"},
		{name: "topics twice", file: withTopics("['" + tenants + "a', '" + tenants + "a']"), fault: "topics[1]: is there a second time", schemaBlind: true},
		{name: "topics elsewhere", file: withTopics("['arn:aws:sns:eu-west-1:123456789012:hunter2']"), fault: "topics[0]: is no topic that topic_arn may come to", schemaBlind: true},
		{name: "topics of one", file: withSNS("topics: ['arn:aws:sns:eu-west-1:123456789012:orders']"), fault: "topics: only together with fields in topic_arn", schemaBlind: true},
		{name: "topic unknown field", file: withKind("sns: {topic_arn: '" + tenants + "{hunter2}', topics: ['" + tenants + "a']}"), fault: "topic_arn: has an unknown field, takes {event_type}, "},
		{name: "topic field of a column", file: withKind("sns: {topic_arn: '" + tenants + "{event_type.a}', topics: ['" + tenants + "a']}"), fault: "topic_arn: has an unknown field"},
		{name: "topic open field", file: withKind("sns: {topic_arn: '" + tenants + "{event_type', topics: ['" + tenants + "a']}"), fault: "topic_arn: has a { that is never closed"},
		{name: "sns field of http", file: withSNS("url: 'https://hunter2.test'"), fault: `4: destinations.crm.sns: unknown key "url", takes topic_arn, topics, max_message_bytes, timeout`},
		{name: "sns field misspelt", file: withKind("sns: {topic: 'arn:aws:sns:eu-west-1:123456789012:orders', topic_arn: 'arn:aws:sns:eu-west-1:123456789012:orders'}"), fault: `sns: unknown key "topic", did you mean topics?, takes topic_arn`},
		{name: "sns timeout", file: withSNS("timeout: 10"), fault: "4: destinations.crm.sns.timeout: is a number, takes a duration"},
		{name: "message bytes lowest", file: withSNS("max_message_bytes: 1024")},
		{name: "message bytes low", file: withSNS("max_message_bytes: 1023"), fault: "4: destinations.crm.sns.max_message_bytes: 1023, takes 1024 to 1048576"},
		{name: "message bytes high", file: withSNS("max_message_bytes: 1048577"), fault: "max_message_bytes: 1048577, takes"},
		{name: "message bytes zero", file: withSNS("max_message_bytes: 0"), fault: "max_message_bytes: is no whole number above zero"},
		{name: "message bytes negative", file: withSNS("max_message_bytes: -1"), fault: "max_message_bytes: is no whole number above zero"},
		{name: "message bytes huge", file: withSNS("max_message_bytes: 9999999999999999999999"), fault: "max_message_bytes: is a number, takes a whole number"},
		{name: "message bytes hexadecimal", file: withSNS("max_message_bytes: 0x1000"), fault: "max_message_bytes: is no whole number above zero, written in digits", schemaBlind: true},
		{name: "message bytes fraction", file: withSNS("max_message_bytes: 2048.5"), fault: "max_message_bytes: is a number, takes a whole number"},
		{name: "message bytes of the topic", file: withSNS("max_message_bytes: topic")},
		{name: "message bytes of nothing", file: withSNS("max_message_bytes: hunter2"), fault: "max_message_bytes: is text, takes a whole number, or the word topic"},
		{name: "message bytes text", file: withSNS("max_message_bytes: '2048'"), fault: "max_message_bytes: is text, takes a whole number"},
		{name: "message bytes null", file: withSNS("max_message_bytes: "), fault: "max_message_bytes: is nothing, takes a whole number"},
		{name: "message bytes variable", file: withSNS("max_message_bytes: '${BYTES}'")},
		{name: "message bytes bad variable", file: withSNS("max_message_bytes: '${BAD}'"), fault: "max_message_bytes: is no whole number", schemaBlind: true},
		{name: "message bytes unset variable", file: withSNS("max_message_bytes: '${MISSING}'"), fault: "max_message_bytes: environment variable MISSING", schemaBlind: true},

		{name: "on_discard to a queue", file: withKind("{sns: {topic_arn: 'arn:aws:sns:eu-west-1:123456789012:orders'}, on_discard: {sqs: 'https://sqs.eu-west-1.amazonaws.com/123456789012/discards'}}")},
		{name: "on_discard to a bus", file: withRoute("on_discard: {eventbridge: default}")},
		{name: "on_discard to a bus by ARN", file: withRoute("on_discard: {eventbridge: 'arn:aws:events:eu-west-1:123456789012:event-bus/shop'}")},
		{name: "on_discard to nobody", file: withRoute("on_discard: {}"), fault: "on_discard: takes one of sqs and eventbridge"},
		{name: "on_discard to both", file: withRoute("on_discard: {eventbridge: default, sqs: 'https://sqs.eu-west-1.amazonaws.com/1/q'}"), fault: "on_discard: takes one of"},
		{name: "on_discard text", file: withRoute("on_discard: hunter2"), fault: "on_discard: is text, takes a mapping"},
		{name: "on_discard elsewhere", file: withRoute("on_discard: {sns: hunter2}"), fault: `on_discard: unknown key "sns"`},
		{name: "on_discard to a queue by ARN", file: withRoute("on_discard: {sqs: 'arn:aws:sqs:eu-west-1:123456789012:hunter2'}"), fault: "on_discard.sqs: is no queue, takes a URL"},
		{name: "on_discard to a bus with spaces", file: withRoute("on_discard: {eventbridge: 'hunter 2'}"), fault: "on_discard.eventbridge: is no event bus"},
		{name: "on_discard by variable", file: withRoute("on_discard: {eventbridge: '${NAME}'}")},
		{name: "on_discard unset variable", file: withRoute("on_discard: {sqs: '${MISSING}'}"), fault: "on_discard.sqs: environment variable MISSING", schemaBlind: true},
		{name: "endpoints", file: withKind("endpoints: {by: payload.tenant_id}")},
		{name: "endpoints all", file: withKind("endpoints: {by: metadata.a.b, timeout: 3s, headers: {X-From: us}, response_snippet: 100, allow_http: true, allow_ports: [8443], allow_private: [10.0.0.0/8]}")},
		{name: "endpoints by aggregate", file: withKind("{endpoints: {by: aggregate_id}, snooze_on: [endpoint_missing, 404]}")},
		{name: "endpoints by variable", file: withKind("endpoints: {by: '${NAME}.x'}"), fault: "4: destinations.crm.endpoints.by: takes aggregate_id, aggregate_type, or a field", schemaBlind: true},
		{name: "endpoints by nothing", file: withKind("endpoints: {}"), fault: "4: destinations.crm.endpoints.by: takes aggregate_id"},
		{name: "endpoints by null", file: withKind("endpoints: {by: ~}"), fault: "endpoints.by: is nothing, takes text"},
		{name: "endpoints by the payload", file: withKind("endpoints: {by: payload}"), fault: "endpoints.by: takes aggregate_id"},
		{name: "endpoints by another column", file: withKind("endpoints: {by: event_type}"), fault: "endpoints.by: takes aggregate_id"},
		{name: "endpoints network", file: withKind("endpoints: {by: aggregate_id, allow_private: [10.0.0.1/8]}"), fault: "endpoints.allow_private[0]: 10.0.0.1/8 has bits set", schemaBlind: true},
		{name: "endpoints field of http", file: withKind("endpoints: {by: aggregate_id, url: 'https://hunter2.test'}"), fault: `endpoints: unknown key "url", takes by, timeout, headers, client_certificate, client_key, ca, response_snippet, allow_http, allow_ports, allow_private`},
		{name: "endpoints reason of sns", file: withKind("{endpoints: {by: aggregate_id}, discard_on: [sns_throttled]}"), fault: "discard_on[0]: is no reason", schemaBlind: true},
		{name: "ses", file: withSES("")},
		{name: "ses all", file: withSES("configuration_set: orders_1-a, reply_to: ['Help <help@a.test>', '${MAIL}'], timeout: 3s")},
		{name: "ses empty", file: withKind("ses: {}"), fault: "4: destinations.crm.ses.from: missing, takes an address like Orders <orders@example.com>"},
		{name: "ses list", file: withKind("ses: [hunter2]"), fault: "4: destinations.crm.ses: is a list, takes a mapping"},
		{name: "ses field", file: withSES("to: hunter2@a.test"), fault: `4: destinations.crm.ses: unknown key "to", takes from, from_allowed, configuration_set, reply_to, timeout`},
		{name: "from_allowed", file: withSES("from_allowed: [billing@a.test, '@b.test', '${MAIL}']")},
		{name: "from_allowed none", file: withSES("from_allowed: []")},
		{name: "from_allowed text", file: withSES("from_allowed: '@hunter2.test'"), fault: "4: destinations.crm.ses.from_allowed: is text, takes a list"},
		{name: "from_allowed domain", file: withSES("from_allowed: ['@a.test', hunter2.test]"), fault: "4: destinations.crm.ses.from_allowed[1]: takes an address like"},
		{name: "from_allowed name", file: withSES("from_allowed: ['Ann <hunter2@a.test>']"), fault: "4: destinations.crm.ses.from_allowed[0]: takes an address alone", schemaBlind: true},
		{name: "from_allowed pattern", file: withSES("from_allowed: ['*@hunter2.test']"), fault: "4: destinations.crm.ses.from_allowed[0]: takes an address like", schemaBlind: true},
		{name: "from_allowed unset variable", file: withSES("from_allowed: ['${MISSING}']"), fault: "from_allowed[0]: environment variable MISSING", schemaBlind: true},
		{name: "from null", file: withKind("ses: {from: }"), fault: "from: is nothing, takes text"},
		{name: "from empty", file: withKind("ses: {from: ''}"), fault: "from: missing"},
		{name: "from name", file: withKind("ses: {from: hunter2}"), fault: "4: destinations.crm.ses.from: "},
		{name: "from several", file: withKind("ses: {from: 'hunter2@a.test, b@a.test'}"), fault: "4: destinations.crm.ses.from: ", schemaBlind: true},
		{name: "from variable", file: withKind("ses: {from: 'Shop <${MAIL}>'}")},
		{name: "from bad variable", file: withKind("ses: {from: '${BAD}'}"), fault: "4: destinations.crm.ses.from: ", schemaBlind: true},
		{name: "from unset variable", file: withKind("ses: {from: '${MISSING}'}"), fault: "from: environment variable MISSING is not set", schemaBlind: true},
		{name: "configuration set empty", file: withSES("configuration_set: ''"), fault: "4: destinations.crm.ses.configuration_set: is empty"},
		{name: "configuration set null", file: withSES("configuration_set: "), fault: "configuration_set: is nothing, takes text"},
		{name: "configuration set characters", file: withSES("configuration_set: 'hunter 2'"), fault: "4: destinations.crm.ses.configuration_set: takes up to 64 letters, digits, - and _"},
		{name: "configuration set long", file: withSES("configuration_set: " + strings.Repeat("s", 65)), fault: "configuration_set: takes up to 64"},
		{name: "configuration set variable", file: withSES("configuration_set: '${NAME}'")},
		{name: "reply_to none", file: withSES("reply_to: []")},
		{name: "reply_to text", file: withSES("reply_to: hunter2@a.test"), fault: "4: destinations.crm.ses.reply_to: is text, takes a list"},
		{name: "reply_to name", file: withSES("reply_to: [help@a.test, hunter2]"), fault: "4: destinations.crm.ses.reply_to[1]: "},
		{name: "reply_to unset variable", file: withSES("reply_to: ['${MISSING}', help@a.test]"), fault: "4: destinations.crm.ses.reply_to[0]: environment variable MISSING", schemaBlind: true},

		{name: "source", file: good + "source: https://shop.test/outbox\n"},
		{name: "source relative", file: good + "source: '/shop'\n"},
		{name: "source null", file: good + "source:\n", fault: "4: source: is nothing, takes text"},
		{name: "source empty", file: good + "source: ''\n", fault: "4: source: is empty"},
		{name: "source with a space", file: good + "source: 'hunter2 x'\n", fault: "4: source: is no URI reference"},
		{name: "source bad variable", file: good + "source: '${YAML}'\n", fault: "4: source: is no URI reference", schemaBlind: true},
		{name: "source unset", file: good + "source: '${MISSING}'\n", fault: "4: source: environment variable MISSING is not set", schemaBlind: true},

		{name: "all options", file: withOption("concurrency: 4\n    rate: 0.5\n    circuit: erp\n    max_age: 1d12h\n    discard_on: [404, http_4xx]\n    snooze_on: [http_401]\n    envelope: cloudevents-binary\n    source: /crm\n    dataschema: 'https://a.test/{type}'")},
		{name: "options without a kind", file: withKind("rate: 5"), fault: "3: destinations.crm: has no kind, takes one of http, endpoints, sns, ses"},
		{name: "concurrency highest", file: withOption("concurrency: 256")},
		{name: "concurrency variable", file: withOption("concurrency: '${COUNT}'")},
		{name: "concurrency zero", file: withOption("concurrency: 0"), fault: "5: destinations.crm.concurrency: is no whole number above zero"},
		{name: "concurrency high", file: withOption("concurrency: 257"), fault: "5: destinations.crm.concurrency: is more than 256"},
		{name: "concurrency fraction", file: withOption("concurrency: 1.5"), fault: "concurrency: is a number, takes a whole number"},
		{name: "rate", file: withOption("rate: 14")},
		{name: "rate variable", file: withOption("rate: '${COUNT}'")},
		{name: "rate zero", file: withOption("rate: 0"), fault: "5: destinations.crm.rate: is no number of events per second"},
		{name: "rate negative", file: withOption("rate: -1.5"), fault: "rate: is no number of events"},
		{name: "rate infinite", file: withOption("rate: .inf"), fault: "rate: is no number of events"},
		{name: "rate not a number", file: withOption("rate: .nan"), fault: "rate: is no number of events"},
		{name: "rate huge", file: withOption("rate: 1000001"), fault: "rate: is no number of events"},
		{name: "rate text", file: withOption("rate: 5/s"), fault: "rate: is text, takes a number"},
		{name: "rate bad variable", file: withOption("rate: '${BAD}'"), fault: "rate: is no number of events", schemaBlind: true},
		{name: "circuit variable", file: withOption("circuit: '${NAME}'")},
		{name: "circuit no name", file: withOption("circuit: 'hunter2/x'"), fault: "5: destinations.crm.circuit: is no name"},
		{name: "circuit number", file: withOption("circuit: 5"), fault: "circuit: is a number, takes text"},
		{name: "max_age seconds", file: withOption("max_age: 30s")},
		{name: "max_age variable", file: withOption("max_age: '${TIMEOUT}'")},
		{name: "max_age number", file: withOption("max_age: 30"), fault: "5: destinations.crm.max_age: is a number, takes a duration"},
		{name: "max_age without unit", file: withOption("max_age: '30'"), fault: "max_age: is no age"},
		{name: "max_age zero", file: withOption("max_age: 0d"), fault: "max_age: is no age", schemaBlind: true},
		{name: "max_age weeks", file: withOption("max_age: 1w"), fault: "max_age: is no age"},
		{name: "max_age longest", file: withOption("max_age: 36500d")},
		{name: "max_age too long", file: withOption("max_age: 36500d1s"), fault: "max_age: is no age", schemaBlind: true},
		{name: "max_age overflow", file: withOption("max_age: 99999999999999999999d"), fault: "max_age: is no age", schemaBlind: true},
		{name: "discard_on text", file: withOption("discard_on: http_404"), fault: "5: destinations.crm.discard_on: is text, takes a list"},
		{name: "discard_on none", file: withOption("discard_on: []")},
		{name: "discard_on unknown", file: withOption("discard_on: [http_404, address_block]"), fault: "5: destinations.crm.discard_on[1]: is no reason of a failure there, did you mean address_blocked?", schemaBlind: true},
		{name: "discard_on of another kind", file: withOption("discard_on: [sns_throttled]"), fault: "discard_on[0]: is no reason of a failure there", schemaBlind: true},
		{name: "discard_on success", file: withOption("discard_on: [204]"), fault: "discard_on[0]: is no reason of a failure there; docs"},
		{name: "discard_on words", file: withOption("discard_on: ['hunter2 hunter2']"), fault: "discard_on[0]: is no reason"},
		{name: "discard_on boolean", file: withOption("discard_on: [true]"), fault: "discard_on[0]: is true or false, takes text"},
		{name: "discard_on variable", file: withOption("discard_on: ['http_${STATUS}']")},
		{name: "discard_on bad variable", file: withOption("discard_on: ['${BAD}']"), fault: "discard_on[0]: is no reason", schemaBlind: true},
		{name: "in both lists", file: withOption("discard_on: [404]\n    snooze_on: [http_500, http_404]"), fault: "6: destinations.crm.snooze_on[1]: http_404 is in discard_on too, takes one of both", schemaBlind: true},
		{name: "envelope raw", file: withOption("envelope: raw")},
		{name: "envelope unknown", file: withOption("envelope: hunter2"), fault: "5: destinations.crm.envelope: is none, takes cloudevents, cloudevents-binary or raw"},
		{name: "envelope empty", file: withOption("envelope: ''"), fault: "envelope: is empty"},
		{name: "envelope binary of sns", file: withKind("sns: {topic_arn: 'arn:aws:sns:eu-west-1:123456789012:orders'}\n    envelope: cloudevents-binary"), fault: "5: destinations.crm.envelope: needs HTTP headers, takes cloudevents or raw", schemaBlind: true},
		{name: "envelope of mail", file: withKind("ses: {from: 'a@a.test'}\n    envelope: raw"), fault: "5: destinations.crm.envelope: is for webhooks and sns", schemaBlind: true},
		{name: "source of mail from the file", file: withKind("ses: {from: 'a@a.test'}") + "source: /shop\n"},
		{name: "destination's source with a space", file: withOption("source: 'hunter2 x'"), fault: "5: destinations.crm.source: is no URI reference"},
		{name: "dataschema relative", file: withOption("dataschema: '/hunter2'"), fault: "5: destinations.crm.dataschema: is no absolute URI"},
		{name: "dataschema with a fragment", file: withOption("dataschema: 'https://a.test/#hunter2'"), fault: "dataschema: is no absolute URI"},

		{name: "route options", file: withRoute("max_age: 7d, discard_on: [404], snooze_on: [403]")},
		{name: "route max_age", file: withRoute("max_age: soon"), fault: `5: routes["order.placed"].max_age: is no age`},
		{name: "route reason", file: withRoute("snooze_on: [http_4x]"), fault: `5: routes["order.placed"].snooze_on[0]: is no reason of a failure there, did you mean http_4xx?`, schemaBlind: true},
		{name: "route against its destination", file: strings.Replace(withRoute("snooze_on: [404]"), "routes:", "    discard_on: [404]\nroutes:", 1), fault: `6: routes["order.placed"].snooze_on[0]: http_404 is in discard_on too`, schemaBlind: true},
		{name: "route against its destination's snoozes", file: strings.Replace(withRoute("discard_on: [404]"), "routes:", "    snooze_on: [404]\nroutes:", 1), fault: `6: routes["order.placed"]: http_404 is in discard_on too`, schemaBlind: true},

		{name: "secret", file: withURL("'${arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/crm-AbCdEf#url}'")},
		{name: "secret unset", file: withURL("'${arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/none-AbCdEf}'"), fault: "url: secret shop/none-AbCdEf is not set", schemaBlind: true},
		{name: "secret without a key", file: withURL("'${arn:aws:secretsmanager:eu-west-1:123456789012:secret:crm-AbCdEf#}'"), fault: "url: a ${} holds no variable's name, and is no secret", schemaBlind: true},
		{name: "secret of another service", file: withURL("'${arn:aws:ssm:eu-west-1:123456789012:parameter/hunter2}'"), fault: "url: a ${} holds no variable's name, and is no secret", schemaBlind: true},

		{name: "no routes", file: "version: 1\n" + destinations, fault: "1: routes are missing"},
		{name: "routes empty", file: "version: 1\n" + destinations + "routes: {}\n", fault: "3: routes: is empty"},
		{name: "routes list", file: "version: 1\n" + destinations + "routes: [a]\n", fault: "3: routes: is a list"},
		{name: "route blank", file: "version: 1\n" + destinations + "routes: {' ': {to: crm}}\n", fault: `3: routes[" "]: is blank`},
		{name: "route number", file: "version: 1\n" + destinations + "routes: {1.5: {to: crm}}\n", fault: "3: routes: has a key that is no text"},
		{name: "route text", file: "version: 1\n" + destinations + "routes: {a: crm}\n", fault: "3: routes.a: is text, takes a mapping"},
		{name: "route without to", file: "version: 1\n" + destinations + "routes: {a: {}}\n", fault: "3: routes.a: to is missing"},
		{name: "route to number", file: "version: 1\n" + destinations + "routes: {a: {to: 1}}\n", fault: "3: routes.a.to: is a number, takes text"},
		{name: "route to several", file: "version: 1\n" + destinations + "routes: {a: {to: [crm]}}\n", fault: "3: routes.a.to: is a list, takes text"},
		{name: "route to nowhere", file: "version: 1\n" + destinations + "routes: {a: {to: crn}}\n", fault: `3: routes.a.to: no destination has this name, did you mean crm?`, schemaBlind: true},
		{name: "route to variable", file: "version: 1\n" + destinations + "routes: {a: {to: '${NAME}'}}\n"},
		{name: "route to bad variable", file: "version: 1\n" + destinations + "routes: {a: {to: '${BAD}'}}\n", fault: "3: routes.a.to: no destination has this name", schemaBlind: true},
		{name: "route twice", file: "version: 1\n" + destinations + "routes:\n  a: {to: crm}\n  a: {to: crm}\n", fault: `5: routes: has the key "a" twice, first on line 4`, schemaBlind: true},
		{name: "route field", file: "version: 1\n" + destinations + "routes: {a: {to: crm, too: b}}\n", fault: `3: routes.a: unknown key "too", did you mean to?`},
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	content, err := os.ReadFile("../../docs/routes.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("routes.schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("routes.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate reads the file as an editor would: the first document, without the environment.
func validate(schema *jsonschema.Schema, file string) error {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(file), &root); err != nil {
		return err
	}
	if root.Kind == 0 {
		return schema.Validate(nil)
	}
	instance, err := plain(root.Content[0])
	if err != nil {
		return err
	}
	return schema.Validate(instance)
}

// plain is a node as JSON values; of two equal keys the last counts, as in most JSON readers.
func plain(node *yaml.Node) (any, error) {
	switch node.Kind {
	case yaml.AliasNode:
		return plain(node.Alias)
	case yaml.MappingNode:
		object := map[string]any{}
		for i := 0; i < len(node.Content); i += 2 {
			if node.Content[i].ShortTag() != "!!str" {
				return nil, fmt.Errorf("line %d: a key is no text", node.Content[i].Line)
			}
			value, err := plain(node.Content[i+1])
			if err != nil {
				return nil, err
			}
			object[node.Content[i].Value] = value
		}
		return object, nil
	case yaml.SequenceNode:
		list := []any{}
		for _, child := range node.Content {
			value, err := plain(child)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	default:
		var value any
		err := node.Decode(&value)
		return value, err
	}
}

func TestSchemaAndParserAgree(t *testing.T) {
	t.Parallel()
	schema := compileSchema(t)
	for _, test := range fileCases() {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := routes.Parse([]byte(test.file), "f", environment)
			switch {
			case test.fault == "" && err != nil:
				t.Errorf("parser: %v, want it accepted", err)
			case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
				t.Errorf("parser: %v, want %q", err, test.fault)
			case err != nil && strings.Contains(err.Error(), "\n"):
				t.Errorf("parser: one mistake gave several faults:\n%v", err)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("parser: %v shows a secret", err)
			}
			wantSchema := test.fault == "" || test.schemaBlind
			if schemaErr := validate(schema, test.file); (schemaErr == nil) != wantSchema {
				t.Errorf("schema: %v, want accepted %t", schemaErr, wantSchema)
			}
		})
	}
}
