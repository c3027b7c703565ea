package cloud

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
)

// Call is one delivery that reached the front: an SNS Publish, a SES SendEmail or one mail of a SendBulkEmail, with what
// kumo doesn't hand on.
type Call struct {
	Action string // Publish or SendEmail

	// Of a Publish.
	Topic, Message, Group, Deduplication string
	Attributes                           map[string]string

	// Of a SendEmail.
	To   []string
	Tags map[string]string
}

// Fault is an answer instead of kumo's.
type Fault struct {
	Status        int
	Code, Message string
	// Late means that kumo does what was asked, and only its answer is lost.
	Late bool
}

// Calls returns the deliveries that came so far, in the order of their arrival.
func (c *Cloud) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Call(nil), c.calls...)
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, err := url.ParseQuery(string(body))
	action := form.Get("Action")
	if err == nil && (action == "Publish" || action == "PublishBatch") {
		c.requests.Add(1)
	}
	if err == nil && action == "PublishBatch" && c.batches.Load() {
		c.publishBatch(w, r, form)
		return
	}
	c.deliver(w, r, body)
}

// deliver does what a request asks for, or answers the fault that is due.
func (c *Cloud) deliver(w http.ResponseWriter, r *http.Request, body []byte) {
	calls := parse(r.URL.Path, body)
	c.mu.Lock()
	c.calls = append(c.calls, calls...)
	c.mu.Unlock()
	var fault *Fault // the first mail's refuses all that share a call
	for _, call := range calls {
		if c.fault == nil {
			break
		}
		if one := c.fault(call); fault == nil {
			fault = one
		}
	}
	if fault == nil {
		c.proxy.ServeHTTP(w, r)
		return
	}
	if fault.Late {
		c.proxy.ServeHTTP(httptest.NewRecorder(), r)
	}
	fault.answer(w, calls[0].Action)
}

// parse reads the deliveries of a request; none for any other one.
func parse(path string, body []byte) []Call {
	switch path {
	case "/v2/email/outbound-emails":
		return parseSendEmail(body)
	case "/v2/email/outbound-bulk-emails":
		return parseSendBulkEmail(body)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || form.Get("Action") != "Publish" {
		return nil
	}
	call := Call{
		Action: "Publish", Topic: form.Get("TopicArn"), Message: form.Get("Message"),
		Group: form.Get("MessageGroupId"), Deduplication: form.Get("MessageDeduplicationId"), Attributes: map[string]string{},
	}
	for name := range form {
		entry, found := strings.CutSuffix(name, ".Name")
		if found && strings.HasPrefix(entry, "MessageAttributes.entry.") {
			call.Attributes[form.Get(name)] = form.Get(entry + ".Value.StringValue")
		}
	}
	return []Call{call}
}

// tag is one of a mail.
type tag struct{ Name, Value string }

func parseSendEmail(body []byte) []Call {
	var mail struct {
		Destination struct{ ToAddresses []string }
		EmailTags   []tag
	}
	if err := json.Unmarshal(body, &mail); err != nil {
		return nil
	}
	return []Call{mailCall(mail.Destination.ToAddresses, mail.EmailTags)}
}

func parseSendBulkEmail(body []byte) (calls []Call) {
	var mails struct {
		BulkEmailEntries []struct {
			Destination     struct{ ToAddresses []string }
			ReplacementTags []tag
		}
	}
	if err := json.Unmarshal(body, &mails); err != nil {
		return nil
	}
	for _, entry := range mails.BulkEmailEntries {
		calls = append(calls, mailCall(entry.Destination.ToAddresses, entry.ReplacementTags))
	}
	return calls
}

func mailCall(to []string, tags []tag) Call {
	call := Call{Action: "SendEmail", To: to, Tags: map[string]string{}}
	for _, tag := range tags {
		call.Tags[tag.Name] = tag.Value
	}
	return call
}

// answer writes the fault as the service of the action does.
func (f *Fault) answer(w http.ResponseWriter, action string) {
	if action == "SendEmail" {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Amzn-ErrorType", f.Code)
		w.WriteHeader(f.Status)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": f.Message})
		return
	}
	type snsError struct {
		XMLName   xml.Name `xml:"ErrorResponse"`
		Type      string   `xml:"Error>Type"`
		Code      string   `xml:"Error>Code"`
		Message   string   `xml:"Error>Message"`
		RequestID string   `xml:"RequestId"`
	}
	whose := "Sender"
	if f.Status >= http.StatusInternalServerError {
		whose = "Receiver"
	}
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(f.Status)
	_ = xml.NewEncoder(w).Encode(snsError{Type: whose, Code: f.Code, Message: f.Message, RequestID: "local"})
}
