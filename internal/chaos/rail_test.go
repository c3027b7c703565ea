package chaos_test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestKilledWorkersLoseNothingAndKeepOrder(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	c := newChaos(t, *eventsFlag, *aggregatesFlag)
	c.run(*aggregatesFlag, func() bool { return len(c.faults) > 0 })
	faults, heard := c.judge()
	if len(faults) > 0 {
		t.Errorf("%d faults:\n%s", len(faults), strings.Join(faults[:min(len(faults), 20)], "\n"))
	}
	if c.finished != *eventsFlag || c.kills < 10 || heard.missed == 0 {
		t.Errorf("%d events finished, %d kills, %d late answers: want all of %d, at least ten, some", c.finished, c.kills, heard.missed, *eventsFlag)
	}
	t.Logf("%d events delivered, %d times again; %d kills, %d looks, %d answers, %d late; %v",
		len(c.ledger.delivered), c.ledger.repeated, c.kills, c.looks, heard.applied, heard.missed, time.Since(begun).Round(time.Second))
}

// safeguard is a part of the SQL without which the chaos must find faults.
type safeguard struct {
	function, cut, put string
	size               int // events and aggregates, as a part of all: one in so many
	want               string
}

func safeguards() map[string]safeguard {
	return map[string]safeguard{
		// A row locked by somebody else is passed over, its followers are not.
		"the check after the lock": {"outbox_claim_lanes", "where u.position = u.oldest", "where u.position is not null", 1, "first arrived behind"},
		// What was free when it was picked may have been claimed and committed before it is locked.
		"the second look at the lock": {
			"outbox_claim_lanes", `e.ctid = p.place and (e.id = p.id) is true
        where e.status in ('pending', 'failed', 'processing') and e.available_at <= now() and e.attempts < v_ceiling
          and (p_lost <> 'report' or e.status <> 'processing')`, "e.id = p.id where true", 10, "claimed from a live lease",
		},
		"the token of a settle": {"outbox_settle", " and e.metadata ->> 'claimToken' = s.token\n        for", "\n        for", 10, "the answer was"},
	}
}

// TestWithoutItsSafeguardsTheRailBreaks cuts one safeguard after the other out of the SQL: the same chaos must see it.
func TestWithoutItsSafeguardsTheRailBreaks(t *testing.T) {
	t.Parallel()
	for name, guard := range safeguards() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const rounds = 5
			for round := range rounds {
				begun := time.Now()
				c := newChaos(t, *eventsFlag/guard.size, *aggregatesFlag/guard.size)
				c.cut(guard)
				found := -1
				var faults []string
				c.run(*aggregatesFlag/guard.size, func() bool {
					faults, _ = c.judge()
					found = slices.IndexFunc(faults, func(fault string) bool { return strings.Contains(fault, guard.want) })
					return found >= 0
				})
				if found >= 0 {
					t.Logf("round %d, after %d deliveries, %v: %s", round, len(c.ledger.delivered), time.Since(begun).Round(100*time.Millisecond), faults[found])
					return
				}
			}
			t.Errorf("%d rounds found nothing that says %q", rounds, guard.want)
		})
	}
}

func (c *chaos) cut(guard safeguard) {
	c.Helper()
	var definition string
	if err := c.pool.QueryRow(c.Context(), "select pg_get_functiondef($1::regproc)", guard.function).Scan(&definition); err != nil {
		c.Fatal(err)
	}
	if strings.Count(definition, guard.cut) != 1 {
		c.Fatalf("%s does not say %q once any more: cut in another place", guard.function, guard.cut)
	}
	c.exec(strings.Replace(definition, guard.cut, guard.put, 1))
}
