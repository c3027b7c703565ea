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

// Call is one delivery that reached the front: an SNS Publish or a SES SendEmail, with what kumo doesn't hand on.
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
	call, ok := parse(r.URL.Path, body)
	if !ok {
		c.proxy.ServeHTTP(w, r)
		return
	}
	c.mu.Lock()
	c.calls = append(c.calls, call)
	c.mu.Unlock()
	var fault *Fault
	if c.fault != nil {
		fault = c.fault(call)
	}
	if fault == nil {
		c.proxy.ServeHTTP(w, r)
		return
	}
	if fault.Late {
		c.proxy.ServeHTTP(httptest.NewRecorder(), r)
	}
	fault.answer(w, call.Action)
}

// parse reads a delivery; ok is false for any other request.
func parse(path string, body []byte) (call Call, ok bool) {
	if path == "/v2/email/outbound-emails" {
		return parseSendEmail(body)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || form.Get("Action") != "Publish" {
		return Call{}, false
	}
	call = Call{
		Action: "Publish", Topic: form.Get("TopicArn"), Message: form.Get("Message"),
		Group: form.Get("MessageGroupId"), Deduplication: form.Get("MessageDeduplicationId"), Attributes: map[string]string{},
	}
	for name := range form {
		entry, found := strings.CutSuffix(name, ".Name")
		if found && strings.HasPrefix(entry, "MessageAttributes.entry.") {
			call.Attributes[form.Get(name)] = form.Get(entry + ".Value.StringValue")
		}
	}
	return call, true
}

func parseSendEmail(body []byte) (call Call, ok bool) {
	var mail struct {
		Destination struct{ ToAddresses []string }
		EmailTags   []struct{ Name, Value string }
	}
	if err := json.Unmarshal(body, &mail); err != nil {
		return Call{}, false
	}
	call = Call{Action: "SendEmail", To: mail.Destination.ToAddresses, Tags: map[string]string{}}
	for _, tag := range mail.EmailTags {
		call.Tags[tag.Name] = tag.Value
	}
	return call, true
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
