package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// world is everything around a worker: a store that answers from a script, handlers, statistics, observer and
// logger. All of them write what happened into one journal, in order.
type world struct {
	mu      sync.Mutex
	journal []string

	// batches are the answers of the claims, one after the other; then come empty ones.
	batches [][]outbox.Event
	// replies say what the handler of an event does, by its id; others deliver without a receipt.
	replies map[string]outbox.HandlerFunc
	// answers replace what a sound store answers, by event id and outcome: "a1 processed".
	answers map[string]outbox.Answer
	// claimErr and settleErr fail the nth call, counted from 1.
	claimErr, settleErr func(n int) error
	// settling runs in every settle before it answers.
	settling func(ctx context.Context, batch []outbox.Settlement)
	stats    func(ctx context.Context) (json.RawMessage, error)
	config   outbox.Config
	pass     outbox.Pass

	requests []outbox.ClaimRequest
	settles  [][]outbox.Settlement
	backoffs []outbox.Backoff
}

var _ outbox.Store = (*world)(nil)

// newWorld is a world of one destination, one type "t" with a timeout of 10 s and one handler at a time.
func newWorld(batches ...[]outbox.Event) *world {
	w := &world{
		batches: batches, replies: map[string]outbox.HandlerFunc{}, answers: map[string]outbox.Answer{},
		pass: outbox.Pass{SoftBudget: time.Minute},
	}
	w.config = outbox.Config{
		Store: w, Registry: outbox.Registry{"t": w.route(10*time.Second, "crm")}, Concurrency: 1,
		Observer: func(name string, n int) { w.note("observe %s %d", name, n) },
		Logger:   slog.New(&journalLog{w}),
	}
	return w
}

func (w *world) route(timeout time.Duration, destination string) outbox.Route {
	return outbox.Route{Handler: outbox.HandlerFunc(w.handle), Timeout: timeout, Destination: destination}
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = append(w.journal, fmt.Sprintf(format, args...))
}

func (w *world) handle(ctx context.Context, event outbox.Event) (outbox.Receipt, error) {
	w.note("handle %s", event.ID)
	if reply := w.replies[event.ID]; reply != nil {
		return reply(ctx, event)
	}
	return outbox.Receipt{}, nil
}

// Claim answers with the next batch; those of recovered events are reported, and come when they are asked for.
func (w *world) Claim(_ context.Context, req outbox.ClaimRequest) (outbox.Claim, error) {
	w.note("claim")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, req)
	if w.claimErr != nil {
		if err := w.claimErr(len(w.requests)); err != nil {
			return outbox.Claim{}, err
		}
	}
	isNext := func(batch []outbox.Event) bool { return len(batch) == 0 || batch[0].Recovered == req.Recover }
	claim := outbox.Claim{Cursor: strconv.Itoa(len(w.requests))}
	if next := slices.IndexFunc(w.batches, isNext); next >= 0 {
		claim.Events = w.batches[next]
		w.batches = slices.Delete(slices.Clone(w.batches), next, next+1)
	}
	claim.End = !slices.ContainsFunc(w.batches, isNext)
	for _, batch := range w.batches {
		if len(batch) > 0 && batch[0].Recovered {
			claim.Lost = append(claim.Lost, batch[0].Aggregate())
		}
	}
	return claim, nil
}

func (w *world) Settle(ctx context.Context, batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error) {
	var line strings.Builder
	line.WriteString("settle")
	for _, s := range batch {
		fmt.Fprintf(&line, " %s=%s", s.EventID, describe(s))
	}
	w.note("%s", line.String())
	if w.settling != nil {
		w.settling(ctx, batch)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settles, w.backoffs = append(w.settles, batch), append(w.backoffs, backoff)
	if w.settleErr != nil {
		if err := w.settleErr(len(w.settles)); err != nil {
			return nil, err
		}
	}
	answers := make([]outbox.Answer, len(batch))
	for i, s := range batch {
		answers[i] = w.answer(s)
	}
	return answers, nil
}

func (w *world) answer(s outbox.Settlement) outbox.Answer {
	if answer, ok := w.answers[s.EventID+" "+string(s.Outcome)]; ok {
		return answer
	}
	if s.ClaimToken != tokenOf(s.EventID) {
		return outbox.Missed
	}
	switch s.Outcome {
	case outbox.Processed:
		return outbox.AnswerProcessed
	case outbox.Retry:
		return outbox.AnswerFailed
	case outbox.Snoozed:
		return outbox.AnswerSnoozed
	case outbox.Discarded:
		return outbox.AnswerDiscarded
	default:
		return outbox.AnswerReleased
	}
}

func (w *world) QueueStats(ctx context.Context) (json.RawMessage, error) {
	w.note("stats")
	return w.stats(ctx)
}

// withStats gives the world statistics.
func (w *world) withStats(stats func(ctx context.Context) (json.RawMessage, error)) {
	w.stats, w.config.Stats = stats, w
}

// describe writes a settlement: its outcome, then reason, detail and delay as far as there are any.
func describe(s outbox.Settlement) string {
	text := string(s.Outcome)
	if s.Reason != "" {
		text += fmt.Sprintf("(%s)", s.Reason)
	}
	text += string(s.Detail)
	if s.Outcome == outbox.Released || s.Outcome == outbox.Snoozed {
		text += "+" + s.Delay.String()
	}
	return text
}

// run runs one pass that must not fail.
func (w *world) run(ctx context.Context, t *testing.T) outbox.Result {
	t.Helper()
	result, err := w.worker(t).Run(ctx, w.pass)
	if err != nil {
		t.Fatalf("Run: %v, want no error\n%s", err, w.text())
	}
	if !result.OK {
		t.Errorf("ok is false, want true beside no error")
	}
	return result
}

func (w *world) worker(t *testing.T) *outbox.Worker {
	t.Helper()
	worker, err := outbox.NewWorker(w.config)
	if err != nil {
		t.Fatalf("NewWorker: %v", err)
	}
	return worker
}

func (w *world) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.journal, "\n")
}

// lines returns the journal's lines that begin so.
func (w *world) lines(prefix string) []string {
	var found []string
	for line := range strings.Lines(w.text() + "\n") {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, prefix) {
			found = append(found, line)
		}
	}
	return found
}

// wantJournal compares the whole journal, one line a step.
func (w *world) wantJournal(t *testing.T, want string) {
	t.Helper()
	if got := w.text(); got != unindent(want) {
		t.Errorf("journal is\n%s\nwant\n%s", got, unindent(want))
	}
}

// wantLines compares the journal's lines that begin so.
func (w *world) wantLines(t *testing.T, prefix, want string) {
	t.Helper()
	if got := strings.Join(w.lines(prefix), "\n"); got != unindent(want) {
		t.Errorf("lines %q are\n%s\nwant\n%s", prefix, got, unindent(want))
	}
}

func unindent(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// settledAs returns the settlements of an event, described, in order.
func (w *world) settledAs(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, batch := range w.settles {
		for _, s := range batch {
			if s.EventID == id {
				all = append(all, describe(s))
			}
		}
	}
	return strings.Join(all, " ")
}

// wantSettled compares what became of events: pairs of id and description.
func (w *world) wantSettled(t *testing.T, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := w.settledAs(pairs[i]); got != pairs[i+1] {
			t.Errorf("%s is settled as %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

// journalLog writes log records into the journal: level, name and value.
type journalLog struct{ w *world }

func (l *journalLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *journalLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *journalLog) WithGroup(string) slog.Handler            { return l }

func (l *journalLog) Handle(_ context.Context, r slog.Record) error {
	name, ok := strings.CutPrefix(r.Message, "[outbox-dispatch] ")
	if !ok {
		name = "WITHOUT PREFIX " + r.Message
	}
	var values []string
	r.Attrs(func(a slog.Attr) bool {
		values = append(values, a.Value.Resolve().String())
		return true
	})
	if len(values) != 1 {
		values = append(values, "WANT ONE VALUE")
	}
	l.w.note("log %s %s %s", r.Level, name, strings.Join(values, "; "))
	return nil
}

// batch makes the answer of a claim; positions rise through it.
func batch(events ...outbox.Event) []outbox.Event { return events }

// change alters an event of a script.
type change func(*outbox.Event)

var position struct {
	sync.Mutex
	last int64
}

// ev is a claimed event of type "t" with a token. The id's first letter names its aggregate: a1 and a2 share one.
// Events are in order of their making.
func ev(id string, changes ...change) outbox.Event {
	position.Lock()
	defer position.Unlock()
	position.last++
	event := outbox.Event{
		ID: id, Position: position.last, AggregateType: "order", AggregateID: string([]rune(id)[:1]), Type: "t", Attempts: 1,
		Payload: json.RawMessage(`{}`), Metadata: json.RawMessage(`{"claimToken":"` + tokenOf(id) + `"}`),
	}
	for _, change := range changes {
		change(&event)
	}
	return event
}

func tokenOf(id string) string { return "token-" + id }

func typed(name string) change    { return func(e *outbox.Event) { e.Type = name } }
func metadata(raw string) change  { return func(e *outbox.Event) { e.Metadata = json.RawMessage(raw) } }
func attempts(n int) change       { return func(e *outbox.Event) { e.Attempts = n } }
func recovered(e *outbox.Event)   { e.Recovered = true }
func snoozes(count string) change { return withMetadata("snoozeCount", count) }

func withMetadata(key, raw string) change {
	return func(e *outbox.Event) {
		e.Metadata = fmt.Appendf(nil, `{"claimToken":%q,%q:%s}`, tokenOf(e.ID), key, raw)
	}
}

// answering makes a handler that answers at once.
func answering(err error) outbox.HandlerFunc {
	return func(context.Context, outbox.Event) (outbox.Receipt, error) { return nil, err }
}

// retrying, discarding and snoozing answer with these words.
func retrying(reason string) outbox.HandlerFunc { return answering(errors.New(reason)) }

func discarding(reason string) outbox.HandlerFunc {
	return answering(outbox.Discard(errors.New(reason)))
}

func snoozing(reason string) outbox.HandlerFunc {
	return answering(outbox.Snooze(errors.New(reason), 0))
}

// taking makes a handler that needs so long, and answers with err; its context cuts it short.
func taking(d time.Duration, err error) outbox.HandlerFunc {
	return func(ctx context.Context, _ outbox.Event) (outbox.Receipt, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// inBubble runs a parallel subtest in a bubble of fake time.
func inBubble(t *testing.T, name string, body func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, body)
	})
}

// reply is the wanted result; json writes it as the contract orders it, apart from package outbox's own struct.
type reply struct {
	reason                                          string
	skipped                                         bool
	claimed, processed, retried, snoozed, discarded int
	released, duplicate, leaseLost, batches, ms     int
	types, ids, queue                               string
}

func (r reply) json() string {
	var text strings.Builder
	fmt.Fprintf(&text, `{"ok":true,"checked":%d,"updated":%d,"failures":%d,"skipped":%t,`,
		r.claimed, r.processed, r.retried+r.discarded, r.skipped)
	if r.reason != "" {
		fmt.Fprintf(&text, `"reason":%q,`, r.reason)
	}
	fmt.Fprintf(&text, `"claimed":%d,"processed":%d,"retried":%d,"snoozed":%d,"discarded":%d,"released":%d,`,
		r.claimed, r.processed, r.retried, r.snoozed, r.discarded, r.released)
	fmt.Fprintf(&text, `"duplicateInRun":%d,"leaseLost":%d,"batches":%d,"runMs":%d,"byEventType":{%s},"discardedEventIds":[%s]`,
		r.duplicate, r.leaseLost, r.batches, r.ms, r.types, r.ids)
	if r.queue != "" {
		text.WriteString(`,"queue":` + r.queue)
	}
	return text.String() + "}"
}

func wantReply(t *testing.T, result outbox.Result, want reply) {
	t.Helper()
	got, err := json.Marshal(result)
	if err != nil {
		t.Fatalf("encode the result: %v", err)
	}
	if string(got) != want.json() {
		t.Errorf("reply is\n%s\nwant\n%s", got, want.json())
	}
}
