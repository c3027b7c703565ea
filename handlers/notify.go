package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/smithy-go"

	"github.com/openlup/outbox-dispatch/outbox"
)

const (
	// maxNotices is how many notices go in one call, of SQS and of EventBridge.
	maxNotices = 10
	// maxNoticeBytes is how large a call is at most: 256 KiB, less what surrounds the notices.
	maxNoticeBytes = 240 << 10
	// maxNoticeText is the longest text of a notice, in characters: ten of the largest notices may need several calls, one never
	// exceeds the limit.
	maxNoticeText = 2000
)

// noticeText is a notice as it is sent.
type noticeText struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Aggregate noticeAggregate `json:"aggregate"`
	Key       string          `json:"idempotencyKey"`
	Position  int64           `json:"position"`
	Attempts  int             `json:"attempts"`
	Reason    string          `json:"reason"`
	// DiscardReason is absent where nobody said.
	DiscardReason string `json:"discardReason,omitempty"`
	CreatedAt     string `json:"createdAt"`
	DiscardedAt   string `json:"discardedAt"`
}

type noticeAggregate struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// encodeNotice writes a notice as a JSON object of characters that queues take.
func encodeNotice(n outbox.Notice) string {
	text := noticeText{
		ID: n.EventID, Type: cutText(n.Type), Aggregate: noticeAggregate{cutText(n.AggregateType), n.AggregateID},
		Key: cutText(n.IdempotencyKey), Position: n.Position, Attempts: n.Attempts, Reason: cutText(n.Reason),
		DiscardReason: cutText(n.DiscardReason),
		CreatedAt:     n.CreatedAt.UTC().Format(time.RFC3339Nano), DiscardedAt: n.DiscardedAt.UTC().Format(time.RFC3339Nano),
	}
	encoded, _ := json.Marshal(text) // texts and numbers only
	return strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`).Replace(string(encoded))
}

// cutText keeps the beginning of a text.
func cutText(text string) string {
	n := 0
	for i := range text {
		if n++; n > maxNoticeText {
			return text[:i]
		}
	}
	return text
}

// noticeKey is the same for every sending of one notice, and differs between the discards of an event.
func noticeKey(n outbox.Notice) string {
	sum := sha256.Sum256([]byte(n.EventID + "\n" + n.Mark))
	return hex.EncodeToString(sum[:])
}

// noticeCall sends some notices in one call and answers each; an error answers all of them.
type noticeCall func(ctx context.Context, notices []outbox.Notice, texts []string) ([]error, error)

// sendNotices packs notices into calls. When a call fails as a whole, those behind it are not tried.
func sendNotices(ctx context.Context, notices []outbox.Notice, send noticeCall) []error {
	texts := make([]string, len(notices))
	for i, notice := range notices {
		texts[i] = encodeNotice(notice)
	}
	answers := make([]error, 0, len(notices))
	for len(answers) < len(notices) {
		from, size, to := len(answers), 0, len(answers)
		for to < len(notices) && to-from < maxNotices && (to == from || size+len(texts[to]) <= maxNoticeBytes) {
			size += len(texts[to])
			to++
		}
		each, err := send(ctx, notices[from:to], texts[from:to])
		if err != nil {
			for len(answers) < len(notices) {
				answers = append(answers, err)
			}
			break
		}
		answers = append(answers, each...)
	}
	return answers
}

// noticeFault names what a provider answered by its code alone: messages may quote what was sent.
func noticeFault(provider string, err error) error {
	var api smithy.APIError
	switch {
	case errors.As(err, &api):
		return fmt.Errorf("%s: %s", provider, api.ErrorCode())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: no answer in time; without a way out of a VPC there never is one: %w", provider, err)
	}
	return fmt.Errorf("%s: not reached (%T)", provider, err)
}
