package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"unicode/utf8"
)

const logPrefix = "[outbox-dispatch] "

// reporter tells the world about a pass. Nothing that logger or observer do, a panic included, reaches the pass.
type reporter struct {
	logger   *slog.Logger
	observer Observer
}

// log writes one line: the prefix and name as its message, and one value.
func (r reporter) log(ctx context.Context, level slog.Level, name string, value slog.Value) {
	defer func() { _ = recover() }()
	//nolint:sloglint // one place for all lines: the message is the prefix and a constant name
	r.logger.LogAttrs(ctx, level, logPrefix+name, slog.Attr{Key: "value", Value: value})
}

func (r reporter) observe(name string, n int) {
	if r.observer == nil {
		return
	}
	defer func() { _ = recover() }()
	r.observer(name, n)
}

// panicked describes a recovered panic without its value, which may hold payload; runtime errors are safe to show.
// It must be called from the deferred function that recovered.
func panicked(value any) string {
	text := fmt.Sprintf("%T", value)
	if err, ok := value.(runtime.Error); ok {
		text += ": " + err.Error()
	}
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs[:])])
	var stack strings.Builder
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&stack, " < %s:%d", frame.Function, frame.Line)
		if !more {
			return text + stack.String()
		}
	}
}

// cut shortens text to at most n characters.
func cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n])
}
