package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/openlup/outbox-dispatch/outbox"
)

// snsID is what SNS takes as a group or deduplication id, as its reference writes it.
func snsID() *regexp.Regexp {
	return regexp.MustCompile("^[a-zA-Z0-9!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]{1,128}$")
}

func FuzzGroupIDsAreValidAndDistinct(f *testing.F) {
	valid := snsID()
	f.Add("order", "0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b10", "order", "0b6e2f2a-7c1d-4d2b-8a61-5e9d8f3c4b11")
	f.Add("a:b", "c", "a", "b:c")
	f.Add("", "", "", ":")
	f.Add("a", "bc", "ab", "c")
	f.Add("order line", "é", "order", "line é")
	f.Add(strings.Repeat("x", 91), strings.Repeat("y", 36), strings.Repeat("x", 92), strings.Repeat("y", 36))
	f.Add("sha256-", "x", hashPrefix, "")
	f.Fuzz(func(t *testing.T, kind, id, otherKind, otherID string) {
		group, other := groupID(kind, id), groupID(otherKind, otherID)
		if !valid.MatchString(group) {
			t.Errorf("group %q of %q %q is not valid", group, kind, id)
		}
		if again := groupID(kind, id); again != group {
			t.Errorf("group %q, then %q", group, again)
		}
		if (group == other) != (kind == otherKind && id == otherID) {
			t.Errorf("%q %q and %q %q have the groups %q and %q", kind, id, otherKind, otherID, group, other)
		}
	})
}

func FuzzDeduplicationIDsAreValidAndDistinct(f *testing.F) {
	valid := snsID()
	f.Add("5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e47", "5f0c1d7e-2b7a-4c8e-9a51-0d3f6b1c2e48")
	f.Add("", " ")
	f.Add("é", hashed("é"))
	f.Add(strings.Repeat("x", 128), strings.Repeat("x", 129))
	f.Fuzz(func(t *testing.T, id, otherID string) {
		first, other := stableID(id), stableID(otherID)
		if !valid.MatchString(first) {
			t.Errorf("id %q of %q is not valid", first, id)
		}
		if (first == other) != (id == otherID) {
			t.Errorf("%q and %q have the ids %q and %q", id, otherID, first, other)
		}
	})
}

func FuzzAttributesAreValid(f *testing.F) {
	f.Add("1", "order.placed", "order", "2", "key", `{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`)
	f.Add("", "\x00", "100%", "\xff", "\ufffe", `{"traceparent": 5}`)
	f.Fuzz(func(t *testing.T, id, kind, aggregateType, aggregateID, key, metadata string) {
		attributes := snsAttributes(outbox.Event{
			ID: id, Type: kind, AggregateType: aggregateType, AggregateID: aggregateID, IdempotencyKey: key,
		}, readProducerContext(json.RawMessage(metadata)).traceparent)
		if len(attributes) > 10 {
			t.Errorf("%d attributes, want at most 10", len(attributes))
		}
		sent := map[string]string{
			"event_id": id, "event_type": kind, "aggregate_type": aggregateType, "aggregate_id": aggregateID, "idempotency_key": key,
		}
		for name, attribute := range attributes {
			value := *attribute.StringValue
			if value == "" || !utf8.ValidString(value) || strings.ContainsFunc(value, func(c rune) bool {
				return c < ' ' || c == 0x7f || c == 0xfffe || c == 0xffff
			}) {
				t.Errorf("%s holds %q", name, value)
			}
			if want, found := sent[name]; found {
				if decoded, err := url.PathUnescape(value); err != nil || decoded != want {
					t.Errorf("%s is %q, which decodes to %q, want %q", name, value, decoded, want)
				}
				delete(sent, name)
			}
		}
		for name, value := range sent {
			if value != "" {
				t.Errorf("%s %q was not sent", name, value)
			}
		}
	})
}

// What SQS allows, as its reference writes it.
func sqsText() *regexp.Regexp {
	return regexp.MustCompile(`^[\x{9}\x{A}\x{D}\x{20}-\x{D7FF}\x{E000}-\x{FFFD}\x{10000}-\x{10FFFF}]*$`)
}

func FuzzMessagesAreWhatQueuesTake(f *testing.F) {
	allowed := sqsText()
	for _, payload := range []string{`{}`, "\"\ufffe\uffff\"", "\"\x00\x1f\t\"", "\"\xff\xed\xa0\x80\"", "\"\U0001ffff\"", `"\ud800"`} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		got := messageBody([]byte(payload))
		if !utf8.ValidString(got) || !allowed.MatchString(got) {
			t.Errorf("%q becomes %q, which a queue refuses", payload, got)
		}
		if utf8.ValidString(payload) && allowed.MatchString(payload) && got != payload {
			t.Errorf("%q becomes %q, want it as it is", payload, got)
		}
		var before, after any
		if json.Unmarshal([]byte(payload), &before) == nil && (json.Unmarshal([]byte(got), &after) != nil || !reflect.DeepEqual(before, after)) {
			t.Errorf("%q becomes %q, which is another value", payload, got)
		}
	})
}

func TestTraceparentIsSentOnlyWhenValid(t *testing.T) {
	t.Parallel()
	const (
		trace = "0af7651916cd43dd8448eb211c80319c"
		span  = "b7ad6b7169203331"
	)
	for text, valid := range map[string]bool{
		"00-" + trace + "-" + span + "-01":                   true,
		"00-" + trace + "-" + span + "-00":                   true,
		"cc-" + trace + "-" + span + "-01-what.comes-later":  true,
		"00-" + trace + "-" + span + "-01-more":              false,
		"cc-" + trace + "-" + span + "-01.more":              false,
		"ff-" + trace + "-" + span + "-01":                   false,
		"00-" + strings.ToUpper(trace) + "-" + span + "-01":  false,
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01": false,
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-1": false,
		"00-" + trace + "-0000000000000000-01":               false,
		"00-" + trace + "-" + span + "-0g":                   false,
		"00-" + trace + span + "--01-":                       false,
		"00_" + trace + "-" + span + "-01":                   false,
		"":                                                   false,
	} {
		metadata, err := json.Marshal(map[string]string{"traceparent": text, "Traceparent": "x"})
		if err != nil {
			t.Fatal(err)
		}
		if got := readProducerContext(metadata).traceparent; (got != "") != valid || got != "" && got != text {
			t.Errorf("%q: sent %q, want valid %v", text, got, valid)
		}
	}
	for _, metadata := range []string{"", "null", "[]", `{"traceparent": 5}`, `{"Traceparent": "00-` + trace + `-` + span + `-01"}`} {
		if got := readProducerContext(json.RawMessage(metadata)).traceparent; got != "" {
			t.Errorf("%s: sent %q, want nothing", metadata, got)
		}
	}
}

func TestMentionsFindsWholeAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"a@b.test": true, "x: A@B.TEST.": true, "<a@b.test>": true, "z@b.test, a@b.test": true, "ba@b.test, a@b.test!": false,
		"ba@b.test, a@b.test, c": true, "": false, "a@b.tes": false, "xa@b.test": false, "a@b.test.au": false, "x.a@b.test": false,
		"a@b.test-x": false, `"x"a@b.test`: false,
	} {
		if got := mentions(text, "a@b.test"); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if mentions("anything", "") {
		t.Error("an empty address is found")
	}
}

// The SDK checks some of a request itself. The handlers send no such request, so the table's row is tested by one of
// its own.
func TestWhatTheSDKRefusesIsDiscardedUnsent(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	t.Cleanup(server.Close)
	keys := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "hunter2"}, nil
	})
	topic := sns.New(sns.Options{Region: "eu-west-1", BaseEndpoint: &server.URL, Credentials: keys})
	mails := sesv2.New(sesv2.Options{Region: "eu-west-1", BaseEndpoint: &server.URL, Credentials: keys})
	_, snsErr := topic.Publish(t.Context(), &sns.PublishInput{})
	_, sesErr := mails.SendEmail(t.Context(), &sesv2.SendEmailInput{})
	for provider, refused := range map[string]error{providerSNS: snsErr, providerSES: sesErr} {
		err := awsCall{provider: provider, path: new(path)}.fault(t.Context(), refused)
		discard := outbox.Discard(nil)
		if reflect.TypeOf(err) != reflect.TypeOf(discard) || !strings.HasPrefix(err.Error(), provider+"_request_invalid: ") {
			t.Errorf("%v is judged as %T %v, want a discard as %s_request_invalid", refused, err, err, provider)
		}
	}
}
