package handlers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	// maxShared is how many mails may share a call.
	maxShared = 50
	// maxSharedSize is how much data of templates goes into one call.
	maxSharedSize = 1 << 20
	// maxCalls is how many calls a batch makes at once.
	maxCalls = 8
)

// BatchLimit is 50 while mails come that can share a call, else 1: mails from a template, without attachments.
func (h *SES) BatchLimit() int {
	if h.shares.Load() && h.mayTry() {
		return maxShared
	}
	return 1
}

// HandleBatch sends each event's mail like [SES.Handle]. Those from one template, with one sender and one address for
// answers, share a call of SendBulkEmail; the others have a call each, some at once. SES answers for each mail of a shared
// call. Where it refuses the call as a whole over what may be one mail's fault, each has a call of its own.
func (h *SES) HandleBatch(ctx context.Context, events []outbox.Event) []outbox.Delivery {
	ctx, cancel := bound(ctx)
	defer cancel()
	answers := make([]outbox.Delivery, len(events))
	var letters []addressed
	for i, event := range events {
		mail, err := parseMail(event.Payload, h.senders)
		if err != nil {
			answers[i].Err = outbox.Discard(err)
			continue
		}
		letters = append(letters, addressed{letter{event, mail}, &answers[i]})
	}
	h.rate.learn(ctx)
	calls := h.share(letters)
	h.shares.Store(slices.ContainsFunc(calls, func(call []addressed) bool { return len(call) > 1 }))
	slots := make(chan struct{}, maxCalls)
	var all sync.WaitGroup
	for _, call := range calls {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			h.sendTogether(ctx, call)
		})
	}
	all.Wait()
	return answers
}

// addressed is a mail and the place of its answer.
type addressed struct {
	letter
	answer *outbox.Delivery
}

// mayShare tells whether a mail can share a call.
func (m mailContent) mayShare() bool { return m.template != "" && len(m.attachments) == 0 }

// mayTry is false for a while after sharing a call was denied, which costs a call each time.
func (h *SES) mayTry() bool { return time.Now().UnixNano() >= h.denied.Load() }

// share groups mails by the call that sends them.
func (h *SES) share(letters []addressed) [][]addressed {
	type common struct{ template, from, answers string }
	var calls [][]addressed
	open := map[common]int{} // the call that one more may go into
	size := map[int]int{}    // of each call's data
	for _, l := range letters {
		if !l.mail.mayShare() || !h.mayTry() {
			calls = append(calls, []addressed{l})
			continue
		}
		key := common{l.mail.template, h.sender(l.mail).text, strings.Join(h.answers(l.mail), ",")}
		i, found := open[key]
		if !found || len(calls[i]) == maxShared || size[i]+len(l.mail.data) > maxSharedSize {
			i = len(calls)
			open[key] = i
			calls = append(calls, nil)
		}
		calls[i] = append(calls[i], l)
		size[i] += len(l.mail.data)
	}
	return calls
}

// sendTogether sends what shares a call, and a single mail by one of its own. A panic is a retry of what has no answer.
func (h *SES) sendTogether(ctx context.Context, letters []addressed) {
	defer func() {
		if recover() == nil {
			return
		}
		for _, l := range letters {
			if l.answer.Receipt == nil && l.answer.Err == nil {
				l.answer.Err = errors.New(outbox.ReasonHandlerPanic)
			}
		}
	}()
	if len(letters) > 1 && h.sendBulk(ctx, letters) {
		return
	}
	for _, l := range letters {
		l.answer.Receipt, l.answer.Err = h.send(ctx, l.letter)
	}
}
