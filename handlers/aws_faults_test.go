package handlers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openlup/outbox-dispatch/handlers"
	"github.com/openlup/outbox-dispatch/outbox"
)

// faultCase is one answer of a service and what must become of the event.
type faultCase struct {
	status  int
	code    string
	message string
	outcome outbox.Outcome
	reason  string
	delay   time.Duration // of a snooze; zero means the pass's
}

const (
	retryIt   = outbox.Retry
	snoozeIt  = outbox.Snoozed
	discardIt = outbox.Discarded
)

// snsCases are the rows of the reference table for SNS, code by code.
func snsCases() []faultCase {
	topic := "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 1 " + topicARN
	return []faultCase{
		{400, "InvalidParameter", "Invalid parameter: Message too long", discardIt, "sns_message_invalid", 0},
		{400, "InvalidParameter", "Invalid parameter: Empty message", discardIt, "sns_message_invalid", 0},
		{400, "InvalidParameter", "Invalid parameter: Subject", discardIt, "sns_message_invalid", 0},
		{400, "InvalidParameter", "Invalid parameter: The MessageGroupId parameter is required for FIFO topics", discardIt, "sns_message_invalid", 0},
		{400, "InvalidParameter", "Invalid parameter: Message Structure - JSON message body failed to parse", discardIt, "sns_message_invalid", 0},
		{400, "InvalidParameterException", "Invalid parameter: hunter2", discardIt, "sns_message_invalid", 0},
		{400, "InvalidParameter", topic, snoozeIt, "sns_topic_invalid", 0},
		{400, "InvalidParameterException", "Invalid parameter: TargetArn Reason: no such region", snoozeIt, "sns_topic_invalid", 0},
		{400, "ParameterValueInvalid", "The message attribute 'x' must not be empty", discardIt, "sns_message_invalid", 0},
		{400, "InvalidParameterValue", "hunter2", discardIt, "sns_message_invalid", 0},
		{400, "InvalidParameterValueException", "hunter2", discardIt, "sns_message_invalid", 0},
		{400, "ValidationException", "hunter2", discardIt, "sns_message_invalid", 0},
		{400, "ValidationError", "hunter2", discardIt, "sns_message_invalid", 0},
		{404, "NotFound", "Topic does not exist: " + topicARN, snoozeIt, "sns_topic_missing", 0},
		{404, "NotFoundException", "Topic does not exist", snoozeIt, "sns_topic_missing", 0},
		{400, "KMSAccessDenied", "hunter2", snoozeIt, "sns_key_unusable", 0},
		{400, "KMSDisabled", "hunter2", snoozeIt, "sns_key_unusable", 0},
		{400, "KMSInvalidState", "hunter2", snoozeIt, "sns_key_unusable", 0},
		{400, "KMSNotFound", "hunter2", snoozeIt, "sns_key_unusable", 0},
		{403, "KMSOptInRequired", "hunter2", snoozeIt, "sns_key_unusable", 0},
		{400, "KMSAccessDeniedException", "hunter2", snoozeIt, "sns_key_unusable", 0},
		{400, "KMSThrottling", "hunter2", snoozeIt, "sns_throttled", time.Minute},
		{400, "KMSThrottlingException", "hunter2", snoozeIt, "sns_throttled", time.Minute},
		{429, "Throttled", "hunter2", snoozeIt, "sns_throttled", time.Minute},
		{500, "InternalError", "hunter2", retryIt, "sns_service_failed", 0},
		{400, "EndpointDisabled", "hunter2", discardIt, "sns_endpoint_disabled", 0},
		{400, "PlatformApplicationDisabled", "hunter2", snoozeIt, "sns_platform_disabled", 0},
		{400, "BatchRequestTooLong", "hunter2", discardIt, "sns_message_too_large", 0},
		// Nothing is sent in batches, so these would be new to the rail.
		{400, "TooManyEntriesInBatchRequest", "hunter2", retryIt, "sns_unknown", 0},
		{400, "EmptyBatchRequest", "hunter2", retryIt, "sns_unknown", 0},
		{400, "BatchEntryIdsNotDistinct", "hunter2", retryIt, "sns_unknown", 0},
		{400, "InvalidBatchEntryId", "hunter2", retryIt, "sns_unknown", 0},
		// Codes of SES mean nothing here.
		{400, "MessageRejected", "Email address is not verified", retryIt, "sns_unknown", 0},
	}
}

// sesCases are the rows of the reference table for SES, code by code.
func sesCases() []faultCase {
	failed := "Email address is not verified. The following identities failed the check in region US-EAST-1: "
	const (
		daily     = "Daily message quota exceeded."
		recipient = "ann@customer.example.org"
	)
	return []faultCase{
		{429, "TooManyRequestsException", "hunter2", snoozeIt, "ses_throttled", time.Minute},
		{400, "ThrottlingException", "Maximum sending rate exceeded.", snoozeIt, "ses_throttled", time.Minute},
		{400, "Throttling", "Maximum sending rate exceeded.", snoozeIt, "ses_throttled", time.Minute},
		{400, "ACCOUNT_THROTTLED", "hunter2", snoozeIt, "ses_throttled", time.Minute},
		{400, "ThrottlingException", daily, snoozeIt, "ses_daily_quota", 10 * time.Minute},
		{400, "Throttling", daily, snoozeIt, "ses_daily_quota", 10 * time.Minute},
		{400, "LimitExceededException", daily, snoozeIt, "ses_daily_quota", 10 * time.Minute},
		{400, "ACCOUNT_DAILY_QUOTA_EXCEEDED", "hunter2", snoozeIt, "ses_daily_quota", 10 * time.Minute},
		{400, "SendingPausedException", "hunter2", snoozeIt, "ses_sending_paused", 0},
		{400, "ACCOUNT_SENDING_PAUSED", "hunter2", snoozeIt, "ses_sending_paused", 0},
		{400, "CONFIGURATION_SET_SENDING_PAUSED", "hunter2", snoozeIt, "ses_sending_paused", 0},
		{400, "AccountSuspendedException", "hunter2", snoozeIt, "ses_account_suspended", time.Hour},
		{400, "ACCOUNT_SUSPENDED", "hunter2", snoozeIt, "ses_account_suspended", time.Hour},
		{400, "MailFromDomainNotVerifiedException", "hunter2", snoozeIt, "ses_sender_unverified", 0},
		{400, "MAIL_FROM_DOMAIN_NOT_VERIFIED", "hunter2", snoozeIt, "ses_sender_unverified", 0},
		{400, "MessageRejected", failed + "orders@shop.example.com", snoozeIt, "ses_sender_unverified", 0},
		{400, "MessageRejected", failed + "Orders <ORDERS@SHOP.EXAMPLE.COM>, " + recipient + ".", snoozeIt, "ses_sender_unverified", 0},
		{400, "MessageRejected", failed + recipient, discardIt, "ses_recipient_unverified", 0},
		{400, "MessageRejected", failed + "Ann <" + recipient + ">.", discardIt, "ses_recipient_unverified", 0},
		{400, "MessageRejected", failed + "rush-orders@shop.example.com.au, " + recipient, discardIt, "ses_recipient_unverified", 0},
		// Whose address it is cannot be told, so nothing is given up.
		{400, "MessageRejected", "Email address is not verified.", snoozeIt, "ses_sender_unverified", 0},
		{400, "MessageRejected", failed + "joann@customer.example.org", snoozeIt, "ses_sender_unverified", 0},
		{400, "MessageRejected", "Message contains a virus: hunter2", discardIt, "ses_message_rejected", 0},
		{400, "MESSAGE_REJECTED", "hunter2", discardIt, "ses_message_rejected", 0},
		{404, "NotFoundException", "Configuration set <mine-hunter2> does not exist.", snoozeIt, "ses_configuration_missing", 0},
		{404, "NotFoundException", "hunter2", snoozeIt, "ses_configuration_missing", 0},
		{404, "CONFIGURATION_SET_NOT_FOUND", "hunter2", snoozeIt, "ses_configuration_missing", 0},
		{404, "CONFIGURATION_SET_DOES_NOT_EXIST", "hunter2", snoozeIt, "ses_configuration_missing", 0},
		{404, "INVALID_SENDING_POOL_NAME", "hunter2", snoozeIt, "ses_configuration_missing", 0},
		{400, "BadRequestException", "Illegal address hunter2@customer.example.org", discardIt, "ses_message_invalid", 0},
		{400, "INVALID_PARAMETER", "hunter2", discardIt, "ses_message_invalid", 0},
		{400, "INVALID_PARAMETER_VALUE", "hunter2", discardIt, "ses_message_invalid", 0},
		{500, "InternalServiceErrorException", "hunter2", retryIt, "ses_service_failed", 0},
		{400, "TRANSIENT_FAILURE", "hunter2", retryIt, "ses_service_failed", 0},
		{400, "FAILED", "hunter2", retryIt, "ses_service_failed", 0},
		// Codes of SNS mean nothing here.
		{404, "NotFound", "hunter2", retryIt, "ses_unknown", 0},
	}
}

// commonCases are answers that both services may give; a case's reason lacks the service.
func commonCases() []faultCase {
	cases := []faultCase{
		{503, "ServiceUnavailable", "hunter2", retryIt, "service_failed", 0},
		{500, "NeverHeardOf", "hunter2", retryIt, "service_failed", 0},
		{400, "NeverHeardOf", "hunter2", retryIt, "unknown", 0},
		{400, "hunter2 is no code", "hunter2", retryIt, "unknown", 0},
		{429, "NeverHeardOf", "hunter2", snoozeIt, "throttled", time.Minute},
	}
	for _, code := range []string{"AuthorizationError", "AccessDenied", "AccessDeniedException", "OptInRequired"} {
		cases = append(cases, faultCase{403, code, topicARN + " hunter2", snoozeIt, "access_denied", 0})
	}
	for _, code := range []string{
		"InvalidSecurity", "InvalidSecurityException", "InvalidClientTokenId", "UnrecognizedClientException",
		"SignatureDoesNotMatch", "InvalidSignatureException", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
	} {
		cases = append(cases, faultCase{403, code, "AKIDEXAMPLE hunter2", snoozeIt, "credentials_refused", 0})
	}
	for _, code := range []string{"Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded", "SlowDown"} {
		cases = append(cases, faultCase{400, code, "hunter2", snoozeIt, "throttled", time.Minute})
	}
	return cases
}

// codelessCases are answers that aren't the service's, such as a proxy's.
func codelessCases() []faultCase {
	const page = "<html><body>hunter2 orders@shop.example.com"
	return []faultCase{
		{503, "", page, retryIt, "service_failed", 0},
		{502, "", "", retryIt, "service_failed", 0},
		{500, "", `{"hunter2": `, retryIt, "service_failed", 0},
		{429, "", page, snoozeIt, "throttled", time.Minute},
		{429, "", "", snoozeIt, "throttled", time.Minute},
		{403, "", page, retryIt, "unknown", 0},
		{200, "", page, retryIt, "answer_unreadable", 0},
		{200, "", "", retryIt, "answer_unreadable", 0},
	}
}

func (c faultCase) name() string { return fmt.Sprintf("%d %s %.30s", c.status, c.code, c.message) }

// expect compares what became of the event.
func (c faultCase) expect(t *testing.T, got outbox.Settlement, requests int64) {
	t.Helper()
	delay := c.delay
	if c.outcome == snoozeIt && delay == 0 {
		delay = outbox.DefaultSnooze
	}
	if got.Outcome != c.outcome || !strings.HasPrefix(got.Reason, c.reason+": ") || got.Delay != delay {
		t.Errorf("got %s after %v: %q, want %s after %v: %q", got.Outcome, got.Delay, got.Reason, c.outcome, delay, c.reason)
	}
	if requests < 1 || requests > 2 {
		t.Errorf("%d requests, want 1 or 2", requests)
	}
	expectPrivate(t, got.Reason)
}

func snsError(t *testing.T, code, message string) string {
	t.Helper()
	return "<ErrorResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><Error><Type>Sender</Type><Code>" + code +
		"</Code><Message>" + strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(message) +
		"</Message></Error><RequestId>f187a3c1</RequestId></ErrorResponse>"
}

func TestSNSClassifiesAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range append(snsCases(), withService("sns", commonCases())...) {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			server := serve(t, c.status, snsError(t, c.code, c.message), "Content-Type: text/xml")
			got := settlementOf(t, newSNS(t, handlers.SNSConfig{}, server.URL), sampleEvent(), 0)
			c.expect(t, got, server.requests.Load())
		})
	}
	for _, c := range withService("sns", codelessCases()) {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			server := serve(t, c.status, c.message)
			got := settlementOf(t, newSNS(t, handlers.SNSConfig{}, server.URL), sampleEvent(), 0)
			c.expect(t, got, server.requests.Load())
		})
	}
}

func TestSESClassifiesAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range append(sesCases(), withService("ses", commonCases())...) {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			got, requests := sesFault(t, c, "")
			c.expect(t, got, requests)
		})
	}
	for _, c := range withService("ses", codelessCases()) {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			server := serve(t, c.status, c.message)
			got := settlementOf(t, newSES(t, handlers.SESConfig{}, server.URL), mailEvent(""), 0)
			c.expect(t, got, server.requests.Load())
		})
	}
}

// A template is named by the row and a configuration set by the operator, but SES answers the same code for both.
func TestSESDiscardsAMissingTemplateButNoMissingConfigurationSet(t *testing.T) {
	t.Parallel()
	for _, c := range []faultCase{
		{404, "NotFoundException", "Template hunter2 does not exist.", discardIt, "ses_template_missing", 0},
		{404, "TEMPLATE_NOT_FOUND", "Template hunter2 does not exist.", discardIt, "ses_template_missing", 0},
		{404, "TEMPLATE_DOES_NOT_EXIST", "Template hunter2 does not exist.", discardIt, "ses_template_missing", 0},
		{404, "NotFoundException", "Configuration set <template> does not exist.", snoozeIt, "ses_configuration_missing", 0},
		{404, "NotFoundException", "hunter2", snoozeIt, "ses_configuration_missing", 0},
	} {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			got, requests := sesFault(t, c, `{"to": ["ann@customer.example.org"], "template": "hunter2"}`)
			c.expect(t, got, requests)
		})
	}
}

// IAM speaks before SES does: what a row names and nobody granted is refused, whether it exists or not. One row's
// mistake must not hold back the destination; anything else that is refused is ours, and does.
func TestSESRetriesWhatIAMRefusesOverTheRow(t *testing.T) {
	t.Parallel()
	const (
		mine    = "User `arn:aws:sts::123456789012:assumed-role/hunter2' is not authorized to perform `ses:SendEmail' on resource `arn:aws:ses:eu-west-1:123456789012:"
		newer   = "User: arn:aws:sts::123456789012:assumed-role/hunter2 is not authorized to perform: ses:SendEmail on resource: arn:aws:ses:eu-west-1:123456789012:"
		because = " because no identity-based policy allows the ses:SendEmail action"
		letter  = `{"to": ["ann@customer.example.org"], "template": "hunter2"}`
	)
	for _, c := range []struct {
		message string
		payload string // empty is a mail without a template
		outcome outbox.Outcome
		reason  string
	}{
		{mine + "template/hunter2'", letter, retryIt, "ses_template_denied"},
		{newer + "template/hunter2" + because, letter, retryIt, "ses_template_denied"},
		{mine + "template/hunter2'", "", snoozeIt, "ses_access_denied"},
		{mine + "configuration-set/template'", letter, snoozeIt, "ses_access_denied"},
		{mine + "identity/shop.example.com'", letter, snoozeIt, "ses_access_denied"},
		{mine + "identity/orders@shop.example.com'", letter, snoozeIt, "ses_access_denied"},
		{newer + "identity/example.com" + because, "", snoozeIt, "ses_access_denied"},
		{newer + "identity/other.test" + because, "", snoozeIt, "ses_access_denied"},
		{newer + "identity/" + because, "", snoozeIt, "ses_access_denied"},
		{mine + "identity/ann@customer.example.org'", "", retryIt, "ses_recipient_denied"},
		{newer + "identity/ANN@customer.example.org" + because, "", retryIt, "ses_recipient_denied"},
		{newer + "identity/customer.example.org.", "", retryIt, "ses_recipient_denied"},
		{newer + "identity/example.org" + because, letter, retryIt, "ses_recipient_denied"},
		{"hunter2", letter, snoozeIt, "ses_access_denied"},
	} {
		for _, code := range []string{"AccessDeniedException", "AccessDenied"} {
			t.Run(code+" "+c.message, func(t *testing.T) {
				t.Parallel()
				fault := faultCase{http.StatusForbidden, code, c.message, c.outcome, c.reason, 0}
				got, requests := sesFault(t, fault, c.payload)
				fault.expect(t, got, requests)
			})
		}
	}
}

// A sender that a row names is the row's, though the route allows it: whatever is wrong with it holds back no other row.
func TestSESRetriesWhatIsRefusedOverTheRowsSender(t *testing.T) {
	t.Parallel()
	const (
		denied     = "User: arn:aws:sts::123456789012:assumed-role/hunter2 is not authorized to perform: ses:SendEmail on resource: arn:aws:ses:eu-west-1:123456789012:identity/"
		unverified = "Email address is not verified. The following identities failed the check in region US-EAST-1: "
		payload    = `{"from": "hunter2@news.example.com", "to": ["ann@customer.example.org"], "subject": "s", "text": "t"}`
	)
	for _, c := range []faultCase{
		{403, "AccessDeniedException", denied + "news.example.com", retryIt, "ses_sender_denied", 0},
		{403, "AccessDenied", denied + "hunter2@news.example.com because no policy allows it", retryIt, "ses_sender_denied", 0},
		{403, "AccessDeniedException", denied + "shop.example.com", snoozeIt, "ses_access_denied", 0},
		{403, "AccessDeniedException", "hunter2", snoozeIt, "ses_access_denied", 0},
		{400, "MailFromDomainNotVerifiedException", "hunter2", retryIt, "ses_sender_unverified", 0},
		{400, "MAIL_FROM_DOMAIN_NOT_VERIFIED", "hunter2", retryIt, "ses_sender_unverified", 0},
		{400, "MessageRejected", unverified + "hunter2@news.example.com", retryIt, "ses_sender_unverified", 0},
		{400, "MessageRejected", unverified + "ann@customer.example.org", discardIt, "ses_recipient_unverified", 0},
	} {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			body, err := json.Marshal(map[string]string{"message": c.message})
			if err != nil {
				t.Fatal(err)
			}
			server := serve(t, c.status, string(body), "Content-Type: application/json", "X-Amzn-ErrorType: "+c.code)
			handler := newSES(t, handlers.SESConfig{FromAllowed: []string{"@news.example.com"}}, server.URL)
			c.expect(t, settlementOf(t, handler, mailEvent(payload), 0), server.requests.Load())
		})
	}
}

func sesFault(t *testing.T, c faultCase, payload string) (outbox.Settlement, int64) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"message": c.message})
	if err != nil {
		t.Fatal(err)
	}
	server := serve(t, c.status, string(body), "Content-Type: application/json", "X-Amzn-ErrorType: "+c.code)
	got := settlementOf(t, newSES(t, handlers.SESConfig{}, server.URL), mailEvent(payload), 0)
	return got, server.requests.Load()
}

func withService(service string, cases []faultCase) []faultCase {
	for i := range cases {
		cases[i].reason = service + "_" + cases[i].reason
	}
	return cases
}

// A row of the table that no case reaches would be a claim without proof.
func TestEveryDocumentedReasonIsTested(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{
		"ses_template_missing": true, // TestSESDiscardsAMissingTemplateButNoMissingConfigurationSet
		"ses_template_denied":  true, // TestSESRetriesWhatIAMRefusesOverTheRow
		"ses_recipient_denied": true,
		"sns_message_refused":  true, // TestSNSJudgesEachEntryOfABatchByItsCode
		"ses_sender_denied":    true, // TestSESRetriesWhatIsRefusedOverTheRowsSender
		"sns_request_invalid":  true, // TestWhatTheSDKRefusesIsDiscardedUnsent
		"ses_request_invalid":  true,
	}
	for _, service := range []string{"sns", "ses"} {
		for _, c := range callFaults() {
			tested[service+"_"+c.reason] = true
		}
		for _, c := range withService(service, append(commonCases(), codelessCases()...)) {
			tested[c.reason] = true
		}
	}
	for _, c := range append(snsCases(), sesCases()...) {
		tested[c.reason] = true
	}
	rows := 0
	for line := range strings.Lines(string(content)) {
		reason, _, found := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		if !found || !strings.HasPrefix(line, "| `") {
			continue
		}
		rows++
		if !tested[reason] {
			t.Errorf("no case has the reason %s", reason)
		}
	}
	if rows < 30 {
		t.Errorf("docs/faults.md has %d rows, want the whole table", rows)
	}
}

// Both attempts of one call end as the same fault: the handler's error isn't the SDK's, whose text quotes what was
// sent.
func TestFaultsDropTheSDKsError(t *testing.T) {
	t.Parallel()
	server := serve(t, http.StatusBadRequest, snsError(t, "InvalidParameter", "hunter2"), "Content-Type: text/xml")
	_, err := newSNS(t, handlers.SNSConfig{}, server.URL).Handle(t.Context(), sampleEvent())
	for ; err != nil; err = errors.Unwrap(err) {
		expectPrivate(t, err.Error())
	}
}
