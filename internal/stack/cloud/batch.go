package cloud

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
)

// publishResult is one message's answer, in a form that serves for both ways to send it.
type publishResult struct {
	MessageID string `xml:"PublishResult>MessageId"`
	Code      string `xml:"Error>Code"`
	Message   string `xml:"Error>Message"`
}

// batchEntry is one entry of a batch's answer.
type batchEntry struct {
	ID          string `xml:"Id"`
	MessageID   string `xml:"MessageId,omitempty"`
	Code        string `xml:"Code,omitempty"`
	Message     string `xml:"Message,omitempty"`
	SenderFault bool   `xml:"SenderFault"`
}

// PlayBatches lets the front play PublishBatch from now on, which kumo lacks: each entry reaches kumo, and the front's
// faults, as a Publish of its own.
func (c *Cloud) PlayBatches() { c.batches.Store(true) }

// Requests is how many requests of SNS's producers came so far: Publish and PublishBatch.
func (c *Cloud) Requests() int { return int(c.requests.Load()) }

// publishBatch answers a PublishBatch. It checks no limits: handlers are tested for those elsewhere.
func (c *Cloud) publishBatch(w http.ResponseWriter, r *http.Request, form url.Values) {
	var answer struct {
		XMLName    xml.Name     `xml:"PublishBatchResponse"`
		Successful []batchEntry `xml:"PublishBatchResult>Successful>member"`
		Failed     []batchEntry `xml:"PublishBatchResult>Failed>member"`
	}
	for i := 1; ; i++ {
		prefix := "PublishBatchRequestEntries.member." + strconv.Itoa(i) + "."
		id := form.Get(prefix + "Id")
		if id == "" {
			break
		}
		single := url.Values{"Action": {"Publish"}, "Version": form["Version"], "TopicArn": form["TopicArn"]}
		for name, values := range form {
			if field, found := strings.CutPrefix(name, prefix); found && field != "Id" {
				single[field] = values
			}
		}
		result, status := c.publishOne(r, single.Encode())
		if status == http.StatusOK {
			answer.Successful = append(answer.Successful, batchEntry{ID: id, MessageID: result.MessageID})
			continue
		}
		answer.Failed = append(answer.Failed, batchEntry{
			ID: id, Code: result.Code, Message: result.Message, SenderFault: status < http.StatusInternalServerError,
		})
	}
	w.Header().Set("Content-Type", "text/xml")
	_ = xml.NewEncoder(w).Encode(answer)
}

func (c *Cloud) publishOne(r *http.Request, body string) (result publishResult, status int) {
	recorder := httptest.NewRecorder()
	request := r.Clone(r.Context())
	request.Body, request.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	c.deliver(recorder, request, []byte(body))
	if err := xml.Unmarshal(recorder.Body.Bytes(), &result); err != nil {
		return publishResult{Code: "InternalError"}, http.StatusInternalServerError
	}
	return result, recorder.Code
}
