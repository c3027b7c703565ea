package outboxtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// pruneCases: what retention deletes, where a store offers that.
func pruneCases() []testCase {
	return []testCase{
		{"prune/processed", "processed rows go when their age since processed_at is over, and not before", checkPruneProcessed},
		{"prune/discarded", "discarded rows go when their age since metadata.discardedAt is over, and not before", checkPruneDiscarded},
		{"prune/unfinished", "an unfinished row never goes, whatever its times and its metadata say", checkPruneUnfinished},
		{"prune/defaults", "zero keeps processed rows for 30 days and discarded ones for 90", checkPruneDefaults},
		{"prune/never", "a negative age keeps rows of that kind, and of no other", checkPruneNever},
		{"prune/at_once", "the shortest age leaves no finished row", checkPruneAtOnce},
		{"prune/limit", "of many rows the oldest of each kind go first, processed ones before discarded ones", checkPruneLimit},
		{"prune/key_is_free", "with a row goes its idempotency key", checkPruneKeyIsFree},
		{"prune/unreadable_time", "a discarded row that does not say when goes by the later of its created_at and available_at", checkPruneUnreadable},
		{"prune/young_row", "no row goes before its age since created_at is over", checkPruneYoungRow},
		{"prune/redriven", "a discarded row that was processed before goes when both ages are over", checkPruneRedriven},
		{"prune/together", "several that prune at once delete each row once, and count it once", checkPruneTogether},
		{"prune/any_rows", "whatever the rows, just those go whose time is over", checkPruneAnyRows},
	}
}

const day = 24 * time.Hour

// prunerOf calls do when the store prunes.
func prunerOf(s *suite, do func(p outbox.Pruner)) {
	if p, ok := s.Store.(outbox.Pruner); ok {
		do(p)
	}
}

// prune wants that many rows to go.
func (s *suite) prune(p outbox.Pruner, retention outbox.Retention, limit, want int) {
	s.Helper()
	got, err := p.Prune(s.Context(), retention, limit)
	if err != nil || got != want {
		s.Fatalf("Prune(%+v, %d) = %d, %v, want %d", retention, limit, got, err, want)
	}
}

// wantLeft wants just these rows of all that the case inserted, separated by spaces, to be there.
func (s *suite) wantLeft(want string) {
	s.Helper()
	var left []string
	for key, id := range s.ids {
		if s.Exists(id) {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	if got := strings.Join(left, " "); got != want {
		s.Errorf("left are %q, want %q", got, want)
	}
}

// insertProcessed and insertDiscarded add a row that ended that long ago, and began a year before.
func (s *suite) insertProcessed(key string, age time.Duration) {
	at := s.Now().Add(-age)
	s.insertRow(key, Row{Status: StatusProcessed, ProcessedAt: at, CreatedAt: at.Add(-365 * day), AvailableAt: at})
}

func (s *suite) insertDiscarded(key string, age time.Duration) {
	at := s.Now().Add(-age)
	s.insertRow(key, Row{Status: StatusDiscarded, Metadata: discardedAt(at), CreatedAt: at.Add(-365 * day), AvailableAt: at.Add(-365 * day)})
}

func discardedAt(at time.Time) []byte { return fmt.Appendf(nil, `{"discardedAt": %s}`, timestamp(at)) }

func checkPruneProcessed(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		s.insertProcessed("old", 5*day+time.Minute)
		s.insertProcessed("young", 5*day-time.Hour)
		s.prune(p, outbox.Retention{Processed: 5 * day, Discarded: day}, 0, 1)
		s.wantLeft("young")
		s.prune(p, outbox.Retention{Processed: 5 * day, Discarded: day}, 0, 0)
	})
}

func checkPruneDiscarded(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		s.insertDiscarded("young", 5*day-time.Hour)
		s.insertDiscarded("old", 5*day+time.Minute)
		s.prune(p, outbox.Retention{Processed: day, Discarded: 5 * day}, 0, 1)
		s.wantLeft("young")
		s.prune(p, outbox.Retention{Processed: day, Discarded: 5 * day}, 0, 0)
	})
}

func checkPruneUnfinished(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		at := s.Now().Add(-1000 * day)
		for _, status := range []string{StatusPending, StatusProcessing, StatusFailed} {
			plain := Row{Status: status, CreatedAt: at, AvailableAt: at, Attempts: 3}
			s.insertRow(status, plain)
			plain.ProcessedAt = at
			s.insertRow(status+"_processed_before", plain)
			plain.ProcessedAt, plain.Metadata = time.Time{}, discardedAt(at)
			s.insertRow(status+"_discarded_before", plain)
		}
		s.prune(p, outbox.Retention{Processed: outbox.PruneAtOnce, Discarded: outbox.PruneAtOnce}, 0, 0)
		if got := len(s.claim(outbox.ClaimRequest{EventTypes: []string{typeMine}})); got == 0 {
			s.Errorf("nothing is left to be claimed")
		}
	})
}

func checkPruneDefaults(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		s.insertProcessed("processed_29", 29*day)
		s.insertProcessed("processed_31", 31*day)
		s.insertDiscarded("discarded_89", 89*day)
		s.insertDiscarded("discarded_91", 91*day)
		s.prune(p, outbox.Retention{}, 0, 2)
		s.wantLeft("discarded_89 processed_29")
	})
}

func checkPruneNever(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		s.insertProcessed("processed", 5000*day)
		s.insertDiscarded("discarded", 5000*day)
		s.prune(p, outbox.Retention{Processed: outbox.KeepForever, Discarded: outbox.KeepForever}, 0, 0)
		s.prune(p, outbox.Retention{Processed: outbox.KeepForever, Discarded: day}, 0, 1)
		s.wantLeft("processed")
		s.insertDiscarded("discarded/2", 5000*day)
		s.prune(p, outbox.Retention{Processed: day, Discarded: outbox.KeepForever}, 0, 1)
		s.wantLeft("discarded/2")
	})
}

func checkPruneAtOnce(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		s.insert("processed", "discarded")
		events := s.claim(request())
		batch := make([]outbox.Settlement, 0, 2)
		for _, event := range events {
			outcome := outbox.Processed
			if event.IdempotencyKey == "discarded" {
				outcome = outbox.Discarded
			}
			batch = append(batch, settlement(event, outcome))
		}
		s.wantAnswers(batch, outbox.AnswerProcessed, outbox.AnswerDiscarded)
		s.prune(p, outbox.Retention{}, 0, 0)
		s.prune(p, outbox.Retention{Processed: outbox.PruneAtOnce, Discarded: outbox.PruneAtOnce}, 0, 2)
		s.wantLeft("")
	})
}

func checkPruneLimit(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		for _, days := range []int{3, 5, 2, 6, 4} {
			s.insertProcessed(fmt.Sprintf("p%d", days), time.Duration(days)*day)
		}
		s.insertDiscarded("d9", 9*day)
		s.insertDiscarded("d8", 8*day)
		retention := outbox.Retention{Processed: day, Discarded: day}
		s.prune(p, retention, 2, 2)
		s.wantLeft("d8 d9 p2 p3 p4")
		s.prune(p, retention, -1, 1) // clamped
		s.wantLeft("d8 d9 p2 p3")
		s.prune(p, retention, 3, 3)
		s.wantLeft("d8")
		s.prune(p, retention, 1_000_000, 1)
	})
}

func checkPruneKeyIsFree(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		s.insertProcessed("a/1", 40*day)
		last := s.row("a/1").Position
		s.insertProcessed("a/2", day)
		s.prune(p, outbox.Retention{}, 0, 1)
		s.insert("a/1") // a producer that comes back a month later
		if got := s.claimOne("a/1"); got.Position <= last {
			s.Errorf("position %d of the second a/1 is not behind %d, the first one's", got.Position, last)
		}
	})
}

func checkPruneUnreadable(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		now := s.Now()
		for i, metadata := range []string{
			`{}`, `[]`, `"discardedAt"`, `{"discardedAt": null}`, `{"discardedAt": 5}`, `{"discardedAt": ""}`, `{"discardedAt": "tomorrow"}`,
			`{"discardedAt": "infinity"}`, `{"discardedAt": "2020-02-31T00:00:00+00:00"}`, `{"discardedAt": "2020-01-01"}`,
			`{"discardedAt": {"at": "2020-01-01T00:00:00Z"}}`, `{"discardedAt": "2020-01-01T00:00:00"}`,
		} {
			row := Row{Status: StatusDiscarded, Metadata: []byte(metadata), CreatedAt: now.Add(-20 * day), AvailableAt: now.Add(-11 * day)}
			s.insertRow(fmt.Sprintf("old%d", i), row)
			row.AvailableAt = now.Add(-9 * day)
			s.insertRow(fmt.Sprintf("young%d", i), row)
		}
		retention := outbox.Retention{Processed: outbox.KeepForever, Discarded: 10 * day}
		s.prune(p, retention, 0, 12)
		s.wantLeft("young0 young1 young10 young11 young2 young3 young4 young5 young6 young7 young8 young9")
		s.insertRow("utc", Row{
			Status: StatusDiscarded, CreatedAt: now.Add(-20 * day), AvailableAt: now.Add(day),
			Metadata: fmt.Appendf(nil, `{"discardedAt": %q}`, now.Add(-11*day).UTC().Format(time.RFC3339)),
		})
		s.prune(p, retention, 0, 1)
	})
}

func checkPruneYoungRow(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		past := s.Now().Add(-50 * day)
		s.insertRow("processed", Row{Status: StatusProcessed, ProcessedAt: past, AvailableAt: past})
		s.insertRow("discarded", Row{Status: StatusDiscarded, Metadata: discardedAt(past), AvailableAt: past})
		s.prune(p, outbox.Retention{Processed: 40 * day, Discarded: 40 * day}, 0, 0)
	})
}

func checkPruneRedriven(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		now := s.Now()
		row := Row{
			Status: StatusDiscarded, Metadata: discardedAt(now.Add(-5 * day)), ProcessedAt: now.Add(-7 * day),
			CreatedAt: now.Add(-9 * day), AvailableAt: now.Add(-9 * day),
		}
		s.insertRow("x", row)
		s.prune(p, outbox.Retention{Processed: 8 * day, Discarded: 4 * day}, 0, 0)
		s.prune(p, outbox.Retention{Processed: 6 * day, Discarded: 6 * day}, 0, 0)
		s.prune(p, outbox.Retention{Processed: outbox.KeepForever, Discarded: 4 * day}, 0, 0)
		s.prune(p, outbox.Retention{Processed: 6 * day, Discarded: 4 * day}, 0, 1)
	})
}

func checkPruneTogether(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		const rows = 100
		for i := range rows {
			s.insertProcessed(fmt.Sprintf("p%d", i), 50*day)
		}
		s.insertProcessed("young", day)
		var sum, failures atomic.Int64
		together(func(int) {
			for range rows { // what others have locked is skipped: none found is not yet the end
				n, err := p.Prune(s.Context(), outbox.Retention{}, 7)
				if err != nil {
					failures.Add(1)
					return
				}
				if sum.Add(int64(n)) >= rows {
					return
				}
			}
		})
		if sum.Load() != rows || failures.Load() != 0 {
			s.Errorf("%d rows are counted and %d calls failed, want %d and none", sum.Load(), failures.Load(), rows)
		}
		s.wantLeft("young")
	})
}

// checkPruneAnyRows says once more, and simply, what goes. Ages are whole days, and cuts lie between.
func checkPruneAnyRows(s *suite) {
	prunerOf(s, func(p outbox.Pruner) {
		random := rand.New(rand.NewPCG(1, 2))
		now, half := s.Now(), 12*time.Hour
		retention := outbox.Retention{Processed: 20*day + half, Discarded: 30*day + half}
		statuses := []string{StatusPending, StatusProcessing, StatusFailed, StatusProcessed, StatusDiscarded}
		goes, rows := map[string]bool{}, map[string]Row{}
		for i := range 200 {
			key := fmt.Sprintf("r%d", i)
			at := func() time.Time { return now.Add(-time.Duration(random.IntN(50)) * day) }
			row := Row{Status: statuses[random.IntN(len(statuses))], CreatedAt: at(), AvailableAt: at()}
			kept, end := retention.Discarded, row.AvailableAt
			if row.CreatedAt.After(end) {
				end = row.CreatedAt
			}
			if random.IntN(2) == 0 {
				end = at()
				row.Metadata = discardedAt(end)
			}
			switch {
			case row.Status == StatusProcessed:
				row.ProcessedAt = at()
				kept, end = retention.Processed, row.ProcessedAt
			case row.unfinished() && random.IntN(3) == 0:
				row.ProcessedAt = at()
			}
			goes[key] = !row.unfinished() && now.Sub(end) > kept && now.Sub(row.CreatedAt) > kept
			rows[key] = row
			s.insertRow(key, row)
		}
		for range 200 {
			n, err := p.Prune(s.Context(), retention, 17)
			if err != nil {
				s.Fatalf("Prune: %v", err)
			}
			if n == 0 {
				break
			}
		}
		for key, id := range s.ids {
			if got := !s.Exists(id); got != goes[key] {
				s.Errorf("%s is gone: %t, want %t; it is %s, created %v", key, got, goes[key], describe(rows[key]), rows[key].CreatedAt)
			}
		}
	})
}
