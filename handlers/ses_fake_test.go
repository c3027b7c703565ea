package handlers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"github.com/openlup/outbox-dispatch/handlers"
)

// fakeSES speaks SES's wire format without a socket, so that time may be a bubble's. It counts recipients in a sliding
// window of one second, and answers what is above the rate like SES does.
type fakeSES struct {
	rate      float64       // recipients per second; 0 means any number
	quota     float64       // what GetAccount answers; 0 means rate
	denied    string        // the operation that IAM refuses
	lost      bool          // GetAccount has no answer
	noAccount bool          // GetAccount is not known, as to some emulators
	latency   time.Duration // of requests: every other one takes it, the rest no time
	bulk      func(entries []types.BulkEmailEntry) (status int, body string)

	mu        sync.Mutex
	window    []sentAt
	calls     map[string]int // by operation
	answers   int
	throttled int
	sizes     []int               // of calls of SendBulkEmail
	mails     map[string][]string // recipients, by event id
}

type sentAt struct {
	at         time.Time
	recipients int
}

func (f *fakeSES) Do(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	f.answers++
	late := f.answers%2 == 0
	f.mu.Unlock()
	if late && f.latency > 0 {
		select {
		case <-time.After(f.latency):
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	operation := map[string]string{
		"/v2/email/account": "GetAccount", "/v2/email/outbound-emails": "SendEmail", "/v2/email/outbound-bulk-emails": "SendBulkEmail",
	}[request.URL.Path]
	if f.calls == nil {
		f.calls, f.mails = map[string]int{}, map[string][]string{}
	}
	f.calls[operation]++
	if operation == f.denied {
		return refused(http.StatusForbidden, "AccessDeniedException", "User hunter2 is not authorized to perform ses:"+operation), nil
	}
	switch operation {
	case "GetAccount":
		if f.lost {
			return nil, io.ErrUnexpectedEOF
		}
		if f.noAccount {
			return answered(http.StatusNotFound, "404 page not found"), nil
		}
		quota := f.quota
		if quota == 0 {
			quota = f.rate
		}
		return answered(http.StatusOK, fmt.Sprintf(`{"SendQuota": {"MaxSendRate": %v, "Max24HourSend": 50000}}`, quota)), nil
	case "SendEmail":
		var mail sesv2.SendEmailInput
		if err := json.Unmarshal(body, &mail); err != nil {
			return nil, err
		}
		if !f.takes(mail.Destination) {
			return refused(http.StatusTooManyRequests, "TooManyRequestsException", "Maximum sending rate exceeded."), nil
		}
		f.keep(mail.Destination, mail.EmailTags)
		return answered(http.StatusOK, `{"MessageId": "m"}`), nil
	case "SendBulkEmail":
		return f.sendBulk(body)
	}
	return answered(http.StatusNotFound, "{}"), nil
}

func (f *fakeSES) sendBulk(body []byte) (*http.Response, error) {
	var mails sesv2.SendBulkEmailInput
	if err := json.Unmarshal(body, &mails); err != nil {
		return nil, err
	}
	f.sizes = append(f.sizes, len(mails.BulkEmailEntries))
	if f.bulk != nil {
		status, body := f.bulk(mails.BulkEmailEntries)
		return answered(status, body), nil
	}
	var results []string
	for _, entry := range mails.BulkEmailEntries {
		if !f.takes(entry.Destination) {
			results = append(results, `{"Status": "ACCOUNT_THROTTLED"}`)
			continue
		}
		f.keep(entry.Destination, entry.ReplacementTags)
		results = append(results, `{"Status": "SUCCESS", "MessageId": "m"}`)
	}
	return answered(http.StatusOK, `{"BulkEmailEntryResults": [`+strings.Join(results, ",")+`]}`), nil
}

// takes counts a mail, and refuses one above the rate. What is refused doesn't count.
func (f *fakeSES) takes(to *types.Destination) bool {
	now, n, sum := time.Now(), len(recipientsOf(to)), 0
	for len(f.window) > 0 && now.Sub(f.window[0].at) >= time.Second {
		f.window = f.window[1:]
	}
	for _, one := range f.window {
		sum += one.recipients
	}
	if f.rate > 0 && sum > 0 && float64(sum+n) > f.rate {
		f.throttled++
		return false
	}
	f.window = append(f.window, sentAt{now, n})
	return true
}

func (f *fakeSES) keep(to *types.Destination, tags []types.MessageTag) {
	id := ""
	for _, tag := range tags {
		if *tag.Name == "outbox_event_id" {
			id = *tag.Value
		}
	}
	f.mails[id] = append(f.mails[id], recipientsOf(to)...)
}

func recipientsOf(to *types.Destination) []string {
	return append(append(append([]string{}, to.ToAddresses...), to.CcAddresses...), to.BccAddresses...)
}

func answered(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader([]byte(body))),
	}
}

func refused(status int, code, message string) *http.Response {
	response := answered(status, fmt.Sprintf(`{"message": %q}`, message))
	response.Header.Set("X-Amzn-Errortype", code)
	return response
}

// client is the SDK's own, over the fake. It waits between attempts as it does by itself.
func (f *fakeSES) client() *sesv2.Client {
	return sesv2.New(sesv2.Options{Region: "us-east-1", Credentials: credentials(), HTTPClient: f})
}

func (f *fakeSES) handler(t *testing.T, config handlers.SESConfig) *handlers.SES {
	t.Helper()
	config.From, config.Client = sender, f.client()
	handler, err := handlers.NewSES(config)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}
