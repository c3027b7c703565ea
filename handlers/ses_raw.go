package handlers

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	base64Line = 76
	foldAt     = 76 // where lines of a header are best folded
)

// mimePart is an entity of a mail: one with a content, or one made of parts.
type mimePart struct {
	kind    string // media type with its parameters; of parts without a boundary
	headers []mailHeader
	text    string // in quoted-printable
	file    []byte // in base64; nil means text
	parts   []mimePart
}

// rawMail builds the mail as MIME. Hidden recipients stand in no header of it.
func (h *SES) rawMail(event outbox.Event, content mailContent) ([]byte, error) {
	root := content.mime()
	root.headers = slices.Concat([]mailHeader{
		{"From", h.sender(content).text},
		{"To", strings.Join(texts(content.to), ", ")},
		{"Cc", strings.Join(texts(content.cc), ", ")},
		{"Reply-To", strings.Join(h.answers(content), ", ")},
		{"Subject", mime.QEncoding.Encode("utf-8", content.subject)},
		{"Date", time.Now().UTC().Format(time.RFC1123Z)},
		{eventIDHeader, stableID(event.ID)},
	}, content.headers, []mailHeader{{"MIME-Version", "1.0"}}, root.headers)
	var mail bytes.Buffer
	err := root.writeTo(&mail, func(header textproto.MIMEHeader) (io.Writer, error) {
		for _, field := range root.headers {
			writeField(&mail, field.name, field.value)
		}
		for _, name := range []string{"Content-Type", "Content-Transfer-Encoding"} {
			writeField(&mail, name, header.Get(name))
		}
		mail.WriteString("\r\n")
		return &mail, nil
	})
	return mail.Bytes(), err
}

// mime arranges the mail's parts: alternatives, the HTML with what it shows, and files behind them.
func (m mailContent) mime() mimePart {
	var bodies, shown, attached []mimePart
	for _, file := range m.attachments {
		if part := file.mime(); file.contentID != "" {
			shown = append(shown, part)
		} else {
			attached = append(attached, part)
		}
	}
	if m.text != "" {
		bodies = append(bodies, mimePart{kind: "text/plain; charset=utf-8", text: m.text})
	}
	if m.html != "" {
		html := mimePart{kind: "text/html; charset=utf-8", text: m.html}
		bodies = append(bodies, together("multipart/related", append([]mimePart{html}, shown...)))
	}
	body := together("multipart/alternative", bodies)
	return together("multipart/mixed", append([]mimePart{body}, attached...))
}

// together makes one entity of several; a single one stays as it is.
func together(kind string, parts []mimePart) mimePart {
	if len(parts) == 1 {
		return parts[0]
	}
	return mimePart{kind: kind, parts: parts}
}

func (a attachment) mime() mimePart {
	part := mimePart{kind: a.contentType, file: a.content}
	if part.file == nil {
		part.file = []byte{}
	}
	if a.contentID != "" {
		part.headers = append(part.headers, mailHeader{"Content-Id", "<" + a.contentID + ">"})
	}
	part.headers = append(part.headers, mailHeader{"Content-Disposition", a.disposition()})
	return part
}

// disposition says how a file is shown and called. A name beyond ASCII is written as RFC 2231 says.
func (a attachment) disposition() string {
	kind, parameters := "attachment", map[string]string{}
	if a.contentID != "" {
		kind = "inline"
	}
	if a.filename != "" {
		parameters["filename"] = a.filename
	}
	return mime.FormatMediaType(kind, parameters)
}

// writeTo writes the entity; create writes its headers and returns where its content goes.
func (p mimePart) writeTo(w *bytes.Buffer, create func(textproto.MIMEHeader) (io.Writer, error)) error {
	header := textproto.MIMEHeader{}
	for _, field := range p.headers {
		header.Set(field.name, field.value)
	}
	if p.parts == nil {
		return p.writeContent(header, create)
	}
	parts := multipart.NewWriter(w)
	header.Set("Content-Type", p.kind+"; boundary="+parts.Boundary())
	if _, err := create(header); err != nil {
		return err
	}
	for _, part := range p.parts {
		if err := part.writeTo(w, parts.CreatePart); err != nil {
			return err
		}
	}
	return parts.Close()
}

func (p mimePart) writeContent(header textproto.MIMEHeader, create func(textproto.MIMEHeader) (io.Writer, error)) error {
	header.Set("Content-Type", p.kind)
	encoding := "quoted-printable"
	if p.file != nil {
		encoding = "base64"
	}
	header.Set("Content-Transfer-Encoding", encoding)
	w, err := create(header)
	if err != nil {
		return err
	}
	var encoder io.WriteCloser = quotedprintable.NewWriter(w)
	content := []byte(p.text)
	if p.file != nil {
		encoder, content = base64.NewEncoder(base64.StdEncoding, &lineWriter{w: w}), p.file
	}
	if _, err := encoder.Write(content); err != nil {
		return err
	}
	return encoder.Close()
}

// lineWriter breaks what it is given into lines of base64.
type lineWriter struct {
	w      io.Writer
	filled int // of the line
}

func (l *lineWriter) Write(data []byte) (int, error) {
	written := 0
	for len(data) > 0 {
		if l.filled == base64Line {
			if _, err := io.WriteString(l.w, "\r\n"); err != nil {
				return written, err
			}
			l.filled = 0
		}
		n, err := l.w.Write(data[:min(len(data), base64Line-l.filled)])
		written, l.filled, data = written+n, l.filled+n, data[n:]
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// writeField writes a header field, folded before some of its blanks, all of which are kept but for those around it; an empty
// one is left out. Values are printable ASCII: addresses are written anew, the subject is encoded, and the payload's own headers
// are checked. A line break would be a blank nevertheless.
func writeField(w *bytes.Buffer, name, value string) {
	value = strings.TrimSpace(strings.NewReplacer("\r", " ", "\n", " ", "\t", " ").Replace(value))
	if value == "" {
		return
	}
	w.WriteString(name + ":")
	line := len(name) + 1
	for rest := " " + value; rest != ""; {
		blanks := len(rest) - len(strings.TrimLeft(rest, " "))
		end := blanks + strings.IndexByte(rest[blanks:]+" ", ' ') // of the next word
		if line+end > foldAt && len(rest) <= len(value) {
			w.WriteString("\r\n")
			line = 0
		}
		w.WriteString(rest[:end])
		line, rest = line+end, rest[end:]
	}
	w.WriteString("\r\n")
}
