package live

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/openlup/outbox-dispatch/internal/stack/cloud"
	"github.com/openlup/outbox-dispatch/internal/stack/lambda"
)

// feed prints what arrives at the receiving ends, and what each pass with work did, for a person.
type feed struct {
	mu    sync.Mutex
	out   io.Writer
	count int // mails printed
}

// say prints one line, whatever the words hold. A feed that cannot be written is no reason to stop.
func (f *feed) say(where, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := strings.NewReplacer("\n", `\n`, "\r", `\r`, "\x1b", `\e`).Replace(fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintf(f.out, "%s  %-8s  %s\n", time.Now().Format(time.TimeOnly), where, line)
}

func (f *feed) message(queue string, m cloud.Message) {
	a := m.Attributes
	f.say("sqs", "%s  %s  %s/%s  attempt %s  %s", queue, a["event_type"], a["aggregate_type"], a["aggregate_id"], a["attempt"], m.Body)
}

// mails prints those of the mailbox that are new.
func (f *feed) mails(all []cloud.Mail) {
	for _, m := range all[f.count:] {
		f.say("mail", "to %s  subject %q  %s%s", strings.Join(m.Destination.To, ", "), m.Subject, m.Text, m.HTML)
	}
	f.count = len(all)
}

// pass prints the counters of a pass that had something to do, and every failure.
func (f *feed) pass(reply []byte) {
	var p struct{ Claimed, Processed, Retried, Snoozed, Discarded, Released int }
	if !lambda.Succeeded(reply) {
		if len(reply) > 0 {
			f.say("dispatch", "failed: %s", reply)
		}
		return
	}
	if err := json.Unmarshal(reply, &p); err == nil && p.Claimed > 0 {
		f.say("dispatch", "claimed %d: processed %d, retried %d, snoozed %d, discarded %d, released %d",
			p.Claimed, p.Processed, p.Retried, p.Snoozed, p.Discarded, p.Released)
	}
}
