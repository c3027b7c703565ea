package handlers

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"
	"unicode"
)

// MaxResponseSnippet is the largest [HTTPConfig].ResponseSnippet, in bytes.
const MaxResponseSnippet = 1000

const (
	maxBodyBytes = 64 << 10
	// drainTime is how long an answer's body is waited for, for the sake of the connection.
	drainTime = 500 * time.Millisecond
)

// drain reads a small body to its end so that the connection can be used again, gives up on a large or slow one, and
// returns the text of its first bytes. The outcome is known by then, so what goes wrong here doesn't matter.
func drain(body io.Reader, snippet int, cancel context.CancelFunc) string {
	timer := time.AfterFunc(drainTime, cancel)
	defer timer.Stop()
	var head bytes.Buffer
	_, _ = io.CopyN(&head, body, int64(snippet))
	_, _ = io.CopyN(io.Discard, body, maxBodyBytes+1-int64(snippet))
	return printable(head.String())
}

// printable makes one line of text: bytes that are no UTF-8 are left out, and each run of what cannot be seen (control
// characters, breaks, marks of direction) becomes a space.
func printable(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), func(c rune) bool {
		return c == ' ' || !unicode.IsPrint(c)
	}), " ")
}
