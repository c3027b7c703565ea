package handlers_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/openlup/outbox-dispatch/handlers"
)

// fakeSNS speaks the wire format of SNS and enforces its limits, from the service's reference and not from the handler.
// The functions are optional, and called by several goroutines.
type fakeSNS struct {
	maximum  map[string]int                               // of topics, by ARN; 262,144 without
	refuse   func(action string, _ url.Values) *fakeFault // of a whole request
	fail     func(m fakeMessage) *fakeFault               // of one message, alone or in a batch
	hide     func(m fakeMessage) bool                     // takes it, and says nothing of it
	backward bool                                         // answers a batch last entry first

	mu       sync.Mutex
	calls    map[string]int // by action
	messages []fakeMessage  // taken
	batches  []int          // bytes of each batch taken
	faults   []string       // what no sound client does
}

// fakeMessage is a message as the wire carried it.
type fakeMessage struct {
	Topic, ID, Body, Group, Deduplication string
	Attributes                            map[string]string
	Size                                  int
}

// fakeFault is an answer that says no. A status of 0 leaves an entry's own.
type fakeFault struct {
	status        int
	code, message string
	sender        bool
	garbage       bool // not what SNS answers
}

// start serves the fake.
func (f *fakeSNS) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		server.Close()
		for _, fault := range f.faults {
			t.Error(fault)
		}
	})
	return server.URL
}

func (f *fakeSNS) handler(t *testing.T, config handlers.SNSConfig) *handlers.SNS {
	t.Helper()
	return newSNS(t, config, f.start(t))
}

func (f *fakeSNS) count(action string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[action]
}

// taken returns the attribute of every message that was taken, in order.
func (f *fakeSNS) taken(attribute string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]string, len(f.messages))
	for i, m := range f.messages {
		all[i] = m.Attributes[attribute]
	}
	return all
}

func (f *fakeSNS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		panic(err)
	}
	action := r.Form.Get("Action")
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[action]++
	f.mu.Unlock()
	if f.refuse != nil {
		if fault := f.refuse(action, r.Form); fault != nil {
			fault.answer(w)
			return
		}
	}
	switch action {
	case "Publish":
		f.publish(w, r.Form)
	case "PublishBatch":
		f.publishBatch(w, r.Form)
	case "GetTopicAttributes":
		fmt.Fprintf(w, "<GetTopicAttributesResponse><GetTopicAttributesResult><Attributes>"+
			"<entry><key>MaximumMessageSize</key><value>%d</value></entry></Attributes></GetTopicAttributesResult></GetTopicAttributesResponse>",
			f.limit(r.Form.Get("TopicArn")))
	default:
		(&fakeFault{status: 400, code: "InvalidAction"}).answer(w)
	}
}

func (f *fakeSNS) limit(topic string) int {
	if n := f.maximum[topic]; n > 0 {
		return n
	}
	return 262_144
}

func (f *fakeSNS) publish(w http.ResponseWriter, form url.Values) {
	m, fault := f.read(form.Get("TopicArn"), "", form)
	if fault == nil && m.Size > f.limit(m.Topic) {
		fault = &fakeFault{status: 400, code: "InvalidParameter", message: "Invalid parameter: Message too long"}
	}
	if fault == nil && f.fail != nil {
		fault = f.fail(m)
	}
	if fault != nil {
		fault.answer(w)
		return
	}
	f.keep(m)
	fmt.Fprintf(w, "<PublishResponse><PublishResult><MessageId>m-%s</MessageId></PublishResult></PublishResponse>", m.Attributes["event_id"])
}

func (f *fakeSNS) publishBatch(w http.ResponseWriter, form url.Values) {
	batch, total, fault := f.readBatch(form)
	if fault != nil {
		fault.answer(w)
		return
	}
	f.mu.Lock()
	f.batches = append(f.batches, total)
	f.mu.Unlock()
	if f.backward {
		slices.Reverse(batch)
	}
	var successful, failed strings.Builder
	for _, m := range batch {
		if f.fail != nil {
			if fault := f.fail(m); fault != nil {
				fmt.Fprintf(&failed, "<member><Id>%s</Id><Code>%s</Code><Message>%s</Message><SenderFault>%v</SenderFault></member>",
					m.ID, fault.code, html.EscapeString(fault.message), fault.sender)
				continue
			}
		}
		f.keep(m)
		if f.hide == nil || !f.hide(m) {
			fmt.Fprintf(&successful, "<member><Id>%s</Id><MessageId>m-%s</MessageId></member>", m.ID, m.Attributes["event_id"])
		}
	}
	fmt.Fprintf(w, "<PublishBatchResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><PublishBatchResult><Failed>%s</Failed>"+
		"<Successful>%s</Successful></PublishBatchResult></PublishBatchResponse>", failed.String(), successful.String())
}

// readBatch refuses as a whole what SNS does.
func (f *fakeSNS) readBatch(form url.Values) (batch []fakeMessage, total int, _ *fakeFault) {
	topic, ids := form.Get("TopicArn"), map[string]bool{}
	entryID := regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	for i := 1; ; i++ {
		prefix := "PublishBatchRequestEntries.member." + strconv.Itoa(i) + "."
		if !form.Has(prefix + "Id") {
			break
		}
		m, fault := f.read(topic, prefix, form)
		switch {
		case !entryID.MatchString(m.ID):
			return nil, 0, f.unsound("InvalidBatchEntryId")
		case ids[m.ID]:
			return nil, 0, f.unsound("BatchEntryIdsNotDistinct")
		case fault != nil:
			return nil, 0, fault
		}
		ids[m.ID] = true
		total += m.Size
		batch = append(batch, m)
	}
	switch {
	case len(batch) == 0:
		return nil, 0, f.unsound("EmptyBatchRequest")
	case len(batch) > 10:
		return nil, 0, f.unsound("TooManyEntriesInBatchRequest")
	case total > f.limit(topic):
		return nil, 0, &fakeFault{status: 400, code: "BatchRequestTooLong"}
	}
	return batch, total, nil
}

// read takes a message from a form, or from an entry of one.
func (f *fakeSNS) read(topic, prefix string, form url.Values) (fakeMessage, *fakeFault) {
	m := fakeMessage{
		Topic: topic, ID: form.Get(prefix + "Id"), Body: form.Get(prefix + "Message"), Group: form.Get(prefix + "MessageGroupId"),
		Deduplication: form.Get(prefix + "MessageDeduplicationId"), Attributes: map[string]string{},
	}
	m.Size = len(m.Body)
	invalid := func(what string) *fakeFault {
		return &fakeFault{status: 400, code: "InvalidParameter", message: "Invalid parameter: " + what}
	}
	for i := 1; ; i++ {
		entry := prefix + "MessageAttributes.entry." + strconv.Itoa(i) + "."
		if !form.Has(entry + "Name") {
			break
		}
		name, kind, value := form.Get(entry+"Name"), form.Get(entry+"Value.DataType"), form.Get(entry+"Value.StringValue")
		if value == "" {
			return m, f.unsound("ParameterValueInvalid")
		}
		m.Attributes[name] = value
		m.Size += len(name) + len(kind) + len(value)
	}
	fifo := strings.HasSuffix(topic, ".fifo")
	switch {
	case m.Body == "":
		return m, invalid("Empty message")
	case len(m.Attributes) > 10:
		return m, f.unsound("more than ten attributes")
	case fifo != (m.Group != "") || fifo != (m.Deduplication != ""):
		return m, f.unsound("group and deduplication id of a FIFO topic only")
	}
	return m, nil
}

// unsound is a refusal that must never be needed.
func (f *fakeSNS) unsound(code string) *fakeFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, "SNS was sent what it answers with "+code)
	return &fakeFault{status: 400, code: code}
}

func (f *fakeSNS) keep(m fakeMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = append(f.messages, m)
}

func (f *fakeFault) answer(w http.ResponseWriter) {
	status := f.status
	if status == 0 {
		status = http.StatusBadRequest
	}
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	if f.garbage {
		fmt.Fprint(w, f.message)
		return
	}
	fmt.Fprintf(w, "<ErrorResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message>"+
		"</Error><RequestId>r</RequestId></ErrorResponse>", f.code, html.EscapeString(f.message))
}
