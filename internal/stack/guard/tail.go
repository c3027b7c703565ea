package guard

import (
	"bytes"
	"strings"
	"sync"
)

// tailSize is how much of an output is worth repeating in an error.
const tailSize = 2000

// Tail is an output that keeps only its end, for the error text of a process that failed. The zero value is ready.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps the end of what was written so far.
func (t *Tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	if extra := len(t.text) - tailSize; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(text), nil
}

// String returns the last lines written, whole ones.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.text
	if at := bytes.IndexByte(text, '\n'); at >= 0 && len(text) == tailSize {
		text = text[at+1:] // the first line is cut
	}
	return strings.TrimSpace(string(text))
}
