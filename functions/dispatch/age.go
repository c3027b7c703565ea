package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// age is one variable that says how long finished events are kept.
type age struct {
	name      string
	otherwise time.Duration
	meaning   string
}

const (
	keepProcessed = "OUTBOX_RETENTION_PROCESSED"
	keepDiscarded = "OUTBOX_RETENTION_DISCARDED"

	// never keeps events for ever.
	never = "never"
	// longestAge is a hundred years: more is never, or a mistake.
	longestAge = 36500 * day
	day        = 24 * time.Hour

	ageTakes = "a whole number and its unit like 30d, 12h, 15m or 10s, up to 36500d; 0; never"
)

// ages is the table of them.
func ages() []age {
	return []age{
		{keepProcessed, outbox.DefaultKeepProcessed, "How long delivered events are kept, with their idempotency keys: the same key can be inserted again afterwards, and is delivered again. 0 deletes them at the end of a pass."},
		{keepDiscarded, outbox.DefaultKeepDiscarded, "The same for discarded events, which can be delivered again as long as they are kept."},
	}
}

func (a age) read(getenv func(string) string) (time.Duration, error) {
	switch text := getenv(a.name); text {
	case "":
		return a.otherwise, nil
	case never:
		return outbox.KeepForever, nil
	case "0":
		return outbox.PruneAtOnce, nil
	default:
		units := map[byte]time.Duration{'d': day, 'h': time.Hour, 'm': time.Minute, 's': time.Second}
		last := len(text) - 1
		unit := units[text[last]]
		n, err := strconv.ParseUint(text[:last], 10, 32)
		if err != nil || unit == 0 || time.Duration(n) > longestAge/unit {
			return a.otherwise, fmt.Errorf("%s: got %q, takes %s", a.name, text, ageTakes)
		}
		return max(time.Duration(n)*unit, outbox.PruneAtOnce), nil
	}
}
