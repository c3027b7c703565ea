package handlers

import (
	"slices"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	// unreadable is said of an answer that came and could not be read, or lacked its message id.
	unreadable = "the answer could not be read; the request may have been accepted"

	codeTooLong       = "BatchRequestTooLong*"
	reasonDenied      = "access_denied"
	adviceUnreachable = "no connection to AWS: check region and DNS, and in a VPC the NAT or the service's endpoint"
)

// Delays of snoozes, between the least and the most that the database takes.
const (
	throttleDelay  = time.Minute
	quotaDelay     = 10 * time.Minute // what SES advises
	suspendedDelay = time.Hour
)

// awsFaults is the table; the first row that fits decides, and the last fits all.
func awsFaults() []awsFault {
	return slices.Concat(callFaults(), snsFaults(), sesFaults(), mailFaults(), refusalFaults(), commonFaults(), statusOnlyFaults())
}

// callFaults are about calls that got no answer of the service. They come first: credentials are fetched by calls with
// answers of their own.
func callFaults() []awsFault {
	return []awsFault{
		{
			match: startsWith("get identity: ", "sign request: "), when: "the request could not be signed",
			outcome: outbox.Snoozed, reason: "credentials_missing",
			advice: "no credentials, or they could not be refreshed: check the function's role",
		},
		{
			match: startsWith("failed to resolve service endpoint", "failed to bind endpoint params", "resolve auth scheme: ",
				"unsupported protocol scheme", "http: no Host in request URL"),
			when: "the client has no address to send to", outcome: outbox.Snoozed, reason: "endpoint_invalid",
			advice: "no region, or an endpoint that is no URL: check AWS_REGION and AWS_ENDPOINT_URL",
		},
		{
			match: isUnsendable, when: "refused by the SDK", outcome: outbox.Discarded, reason: "request_invalid",
			advice: "the SDK refused the request before it was sent",
		},
		{
			match: isUnreachable, when: "a failure of name lookup, dialling or TLS; or no connection within `timeout`", outcome: outbox.Snoozed, reason: "unreachable",
			advice: adviceUnreachable,
		},
		{
			match: isUnsent, when: "any other failure to send it", outcome: outbox.Retry, reason: "connection_lost",
			advice: "the connection broke before an answer; the request may have been accepted",
		},
	}
}

func snsFaults() []awsFault {
	return []awsFault{
		{
			provider: providerSNS, codes: []string{"InvalidParameter*"},
			match: inText("topicarn", "targetarn"), when: "its message names TopicArn or TargetArn", outcome: outbox.Snoozed, reason: "topic_invalid",
			advice: "SNS does not take the topic's ARN: correct topic_arn",
		},
		{
			provider: providerSNS,
			codes:    []string{"InvalidParameter*", "ParameterValueInvalid*", "ValidationException", "ValidationError"},
			outcome:  outbox.Discarded, reason: "message_invalid", advice: "SNS will never take this message",
		},
		{
			provider: providerSNS, codes: []string{codeTooLong},
			outcome: outbox.Discarded, reason: "message_too_large", advice: "SNS will never take this message",
		},
		{
			provider: providerSNS, codes: []string{"NotFound", "NotFoundException"},
			outcome: outbox.Snoozed, reason: "topic_missing",
			advice: "the topic does not exist: create it, or correct topic_arn",
		},
		{
			provider: providerSNS, codes: []string{
				"KMSAccessDenied*", "KMSDisabled*", "KMSInvalidState*", "KMSNotFound*", "KMSOptInRequired*",
			},
			outcome: outbox.Snoozed, reason: "key_unusable",
			advice: "the topic's KMS key cannot be used: check its state, its policy and the function's role",
		},
		{
			provider: providerSNS, codes: []string{"EndpointDisabled*"},
			outcome: outbox.Discarded, reason: "endpoint_disabled", advice: "the device is gone",
		},
		{
			provider: providerSNS, codes: []string{"PlatformApplicationDisabled*"},
			outcome: outbox.Snoozed, reason: "platform_disabled", advice: "the platform application is disabled: enable it",
		},
	}
}

// deniedCodes are IAM's refusals.
func deniedCodes() []string {
	return []string{"AuthorizationError*", "AccessDenied*", "OptInRequired", "NotAuthorized"}
}

// commonFaults are codes that every service of AWS may answer.
func commonFaults() []awsFault {
	return []awsFault{
		{
			codes:   deniedCodes(),
			outcome: outbox.Snoozed, reason: reasonDenied,
			advice: "not allowed: check the function's role and the policy of what it sends to",
		},
		{
			codes: []string{
				"InvalidSecurity*", "InvalidClientTokenId*", "UnrecognizedClient*", "SignatureDoesNotMatch*",
				"InvalidSignature*", "IncompleteSignature*", "MissingAuthenticationToken*", "ExpiredToken*",
				"RequestExpired", "RequestTimeTooSkewed",
			},
			outcome: outbox.Snoozed, reason: "credentials_refused",
			advice: "AWS refused the credentials: check them, the function's role and the clock",
		},
		{
			codes: []string{
				"Throttled*", "Throttling*", "KMSThrottling*", "TooManyRequests*", "RequestLimitExceeded", "RequestThrottled*",
				"SlowDown", "ACCOUNT_THROTTLED",
			},
			outcome: outbox.Snoozed, delay: throttleDelay, reason: "throttled", advice: "too many requests",
		},
		{
			codes: []string{
				"InternalError*", "InternalFailure*", "InternalService*", "InternalServer*", "ServiceUnavailable*",
				"TRANSIENT_FAILURE", "FAILED",
			},
			outcome: outbox.Retry, reason: "service_failed",
			advice: "AWS failed; the request may have been accepted",
		},
	}
}

// statusOnlyFaults are about answers whose code is absent or unknown.
func statusOnlyFaults() []awsFault {
	return []awsFault{
		{
			match: statusBetween(429, 429), when: "any other answer with status 429", outcome: outbox.Snoozed, delay: throttleDelay, reason: "throttled",
			advice: "too many requests",
		},
		{
			match: statusBetween(500, 599), when: "any other answer with a 5xx status, readable or not", outcome: outbox.Retry, reason: "service_failed",
			advice: "AWS failed; the request may have been accepted",
		},
		{match: statusBetween(200, 299), when: "a 2xx status whose body cannot be read or holds no message id", outcome: outbox.Retry, reason: "answer_unreadable", advice: unreadable},
		{
			provider: providerSNS, match: isSenders, when: "any other code of an entry in a batch that SNS calls the sender's fault",
			outcome: outbox.Discarded, reason: "message_refused", advice: "SNS does not take this message, and says that it never will",
		},
		{when: "all else", outcome: outbox.Retry, reason: "unknown", advice: "not in the table of faults"},
	}
}
