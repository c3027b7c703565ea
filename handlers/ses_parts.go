package handlers

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxHeaderName  = 126
	maxHeaderValue = 995
	maxHeaderLine  = 996 // name and value together

	maxFilename    = 255
	maxPartHeader  = 900 // its line in a mail that is built here; mail has lines of up to 998
	maxContentType = 78
	maxContentID   = 78

	// maxMailTags leaves room for the handler's own two among the 50 that one thing has in AWS.
	maxMailTags = 48

	attachmentFields = "filename, content_type, content, content_id"
)

// attachment is a file, or with a content id a part that the mail's HTML shows.
type attachment struct {
	filename    string // empty only together with a content id
	contentType string
	contentID   string
	content     []byte
}

// needsRaw is true of what SES does not build.
func (a attachment) needsRaw() bool {
	return a.filename == "" || !isPrintable(a.filename) || len(a.contentType) > maxContentType
}

// isPrintable tells whether text is printable ASCII, blanks included.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// attachments reads the list of files. A faulty one is left out.
func (p *mailParser) attachments() (files []attachment) {
	if !p.has("attachments") {
		return nil
	}
	var items []map[string]json.RawMessage
	if json.Unmarshal(p.fields["attachments"], &items) != nil {
		p.fault("attachments", "not a list of objects")
		return nil
	}
	ids := map[string]bool{}
	for i, fields := range items {
		before := len(*p.faults)
		q := &mailParser{fields: fields, known: attachmentFields, path: fmt.Sprintf("attachments[%d].", i), faults: p.faults}
		file := q.attachment()
		if file.contentID != "" && ids[file.contentID] {
			q.fault("content_id", "a second time")
		}
		ids[file.contentID] = true
		if q.checkUnknown(); len(*p.faults) == before {
			files = append(files, file)
		}
	}
	return files
}

func (p *mailParser) attachment() attachment {
	file := attachment{
		filename: p.text("filename"), contentType: p.text("content_type"), contentID: p.text("content_id"),
		content: p.content(),
	}
	switch {
	case !p.has("filename") && !p.has("content_id") && !p.misspelt("filename", "content_id"):
		p.fault("filename", "missing; takes the file's name")
	case utf8.RuneCountInString(file.filename) > maxFilename || len(file.disposition()) > maxPartHeader:
		p.fault("filename", "longer than %d characters", maxFilename)
	case strings.ContainsFunc(file.filename, isControl):
		p.fault("filename", "has a line break or another control character")
	}
	if len(file.contentID) > maxContentID || !isName(file.contentID, "._-+@") {
		p.fault("content_id", "takes up to %d letters, digits, dots, _, -, + and @", maxContentID)
	}
	if file.contentType == "" {
		file.contentType = "application/octet-stream"
	} else if problem := checkMediaType(file.contentType); problem != "" {
		p.fault("content_type", "%s", problem)
	}
	return file
}

// content decodes the file.
func (p *mailParser) content() []byte {
	text := p.text("content")
	content, err := base64.StdEncoding.DecodeString(text)
	switch {
	case !p.has("content") && !p.misspelt("content"):
		p.fault("content", "missing; takes the file in base64")
	case err != nil:
		p.fault("content", "not base64, in the standard alphabet and with its padding")
	}
	return content
}

// checkMediaType returns what is wrong with a content type; nothing is the empty text.
func checkMediaType(text string) string {
	kind, _, err := mime.ParseMediaType(text)
	main, sub, found := strings.Cut(kind, "/")
	switch {
	case err != nil || !found || main == "" || sub == "" || len(text) > maxPartHeader || !isPrintable(text):
		return "not a media type like application/pdf"
	case main == "multipart" || main == "message":
		return "not one for an attachment: takes no multipart and no message"
	}
	return ""
}

// pairs reads an object of texts, in order of its names. What is null or empty is left out.
func (p *mailParser) pairs(field string) (pairs []mailHeader) {
	if !p.has(field) {
		return nil
	}
	var values map[string]*string
	if json.Unmarshal(p.fields[field], &values) != nil {
		p.fault(field, "not an object of texts")
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if value := values[name]; value != nil && *value != "" {
			pairs = append(pairs, mailHeader{name, *value})
		}
	}
	return pairs
}

// headers reads the mail's own headers. Names and values are personal data as much as any, so each kind of fault is
// reported once and without them.
func (p *mailParser) headers() []mailHeader {
	pairs := p.pairs("headers")
	seen := map[string]bool{}
	var reserved, names, values, long, twice bool
	for i, header := range pairs {
		lower := strings.ToLower(header.name)
		reserved = reserved || isReservedHeader(lower) || strings.HasPrefix(lower, "list-unsubscribe") && p.has("list_unsubscribe")
		names = names || !isHeaderName(header.name)
		pairs[i].value = strings.Trim(header.value, " ")
		values = values || !isPrintable(header.value) || pairs[i].value == ""
		long = long || len(header.name) > maxHeaderName || len(header.value) > maxHeaderValue || len(header.name)+len(header.value) > maxHeaderLine
		twice = twice || seen[lower]
		seen[lower] = true
	}
	for _, fault := range []struct {
		found   bool
		problem string
	}{
		{reserved, "has one that is set otherwise: " + reservedHeaders},
		{names, "has a name that is none, takes visible ASCII characters without a colon"},
		{values, "has a value that is none, takes printable ASCII characters; encode others as RFC 2047 says"},
		{long, fmt.Sprintf("has a longer one than %d characters of name, %d of value and %d of both", maxHeaderName, maxHeaderValue, maxHeaderLine)},
		{twice, "has one twice, but for the case of its letters"},
	} {
		if fault.found {
			p.fault("headers", "%s", fault.problem)
		}
	}
	return pairs
}

const reservedHeaders = "from, sender, to, cc, bcc, reply-to, return-path, subject, date, message-id, mime-version, received, " +
	"dkim-signature, content-*, resent-*, x-ses-*, x-outbox-*, and with list_unsubscribe list-unsubscribe*"

// isReservedHeader is true of what SES or the handler writes, and of what SES reads commands from. The name is in lower
// case.
func isReservedHeader(name string) bool {
	for reserved := range strings.SplitSeq(reservedHeaders, ", ") {
		if prefix, family := strings.CutSuffix(reserved, "*"); name == reserved || family && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func isHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == ':' })
}

// tags reads the mail's own tags.
func (p *mailParser) tags() []mailHeader {
	pairs := p.pairs("tags")
	var reserved, malformed bool
	for _, tag := range pairs {
		reserved = reserved || tag.name == tagEventID || tag.name == tagEventType
		for _, text := range []string{tag.name, tag.value} {
			malformed = malformed || text == "" || len(text) > maxTagLength || !isName(text, "-_")
		}
	}
	if reserved {
		p.fault("tags", "has one that is set otherwise: %s, %s", tagEventID, tagEventType)
	}
	if malformed {
		p.fault("tags", "has a name or value that is none, takes up to %d letters, digits, - and _", maxTagLength)
	}
	if len(pairs) > maxMailTags {
		p.fault("tags", "%d of them, takes up to %d", len(pairs), maxMailTags)
	}
	return pairs
}

// format tells whether the payload asks for a mail that is built here.
func (p *mailParser) format() bool {
	text := p.text("format")
	if text != "" && text != formatRaw {
		p.fault("format", "takes %s, or leave it out", formatRaw)
	}
	return text == formatRaw
}
