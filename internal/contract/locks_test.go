package contract

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestLocks checks what the functions do about rows that other sessions hold.
func TestLocks(t *testing.T) {
	t.Parallel()
	runClauses(t, map[string]func(*session){
		"locked rows are skipped, use up no batch and still block": func(s *session) {
			head := s.event("a", 1)
			s.event("a", 1)
			free := s.event("a", 2)
			other := s.another()
			other.do("begin; select 1 from outbox_events where id = '%s' for update", head)
			s.equal("claimed", s.column("select id from outbox_claim_batch(array['a'], null, 1)"), []string{free})
			s.equal("claimed", len(s.claim()), 0)
			other.do("rollback")
			s.equal("claimed", s.claim(), []string{head})
		},
		"a hundred locked rows in front hide nothing": func(s *session) {
			for i := range 120 {
				s.event("a", i)
			}
			other := s.another()
			other.do("begin; select 1 from outbox_events for no key update")
			free := s.event("a", 500)
			s.equal("claimed", s.column("select id from outbox_claim_batch(array['a'], null, 1)"), []string{free})
			other.do("rollback")
		},
		"locked rows of one type let no younger row of another type pass": func(s *session) {
			for i := range 120 {
				s.event("a", i)
			}
			other := s.another()
			other.do("begin; select 1 from outbox_events for no key update")
			want := []string{s.event("a", 500), s.event("b", 501)}
			for _, id := range want {
				s.equal("claimed", s.column("select id from outbox_claim_batch(array['a', 'b'], null, 1)"), []string{id})
			}
			other.do("rollback")
		},
		"locked exhausted rows are skipped and still block": func(s *session) {
			spent := s.event("a", 1, "attempts = 8")
			s.event("a", 1)
			other := s.another()
			other.do("begin; select 1 from outbox_events where id = '%s' for update", spent)
			s.equal("claimed", len(s.claim()), 0)
			s.equal("status", s.field(spent, "status"), "pending")
			other.do("rollback")
			s.equal("claimed", len(s.claim()), 1)
			s.equal("status", s.field(spent, "status"), "discarded")
		},
		"locked exhausted rows do not use up the hundred": func(s *session) {
			for i := range 150 {
				s.event("a", i, "attempts = 8")
			}
			other := s.another()
			other.do("begin; select 1 from outbox_events order by position limit 50 for update")
			s.claim()
			s.equal("discarded", s.one("select count(*) from outbox_events where status = 'discarded'"), 100)
			other.do("rollback")
		},
		"a row settled before the claim reaches it is not claimed": func(s *session) {
			id := s.event("a", 1)
			follower := s.event("a", 1)
			other := s.another()
			other.do("begin; update outbox_events set status = 'processed' where id = '%s'", id)
			s.equal("claimed", len(s.claim()), 0)
			other.do("commit")
			s.equal("claimed", s.claim(), []string{follower})
		},
		"mark_processed waits for the lock, then looks again":    settleWaits("select outbox_mark_processed('%s', 'held')", "t", "f"),
		"mark_failed waits for the lock, then looks again":       settleWaits("select outbox_mark_failed('%s', 'held', 'x')", "failed", "missed"),
		"release waits for the lock, then looks again":           settleWaits("select outbox_release_unprocessed(array['%s']::uuid[], array['held'])", "1", "0"),
		"overlapping releases in opposite orders never deadlock": checkReleases,
		"a release and marks in one transaction do not deadlock with a claim": func(s *session) {
			id := s.leased()
			s.do("begin; select outbox_mark_processed('%s', 'held')", id)
			other := s.another()
			s.equal("claimed", len(other.claim()), 0)
			s.do("commit")
		},
	})
}

// settleWaits holds the row in one session while another settles it: after a rollback the settle works, after
// the row went to another claim it misses.
func settleWaits(call, works, misses string) func(*session) {
	return func(s *session) {
		for _, end := range []string{"rollback", "commit"} {
			id := s.leased()
			holder := s.another()
			holder.do(`begin; update outbox_events set metadata = '{"claimToken": "other"}' where id = '%s'`, id)
			pid := s.one("select pg_backend_pid()")
			var answers []answer
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				answers, err = s.try(fmt.Sprintf(call, id))
			}()
			for holder.one("select wait_event_type is not distinct from 'Lock' from pg_stat_activity where pid = %s", pid) != "t" {
				select {
				case <-done:
					s.t.Fatalf("the settle answered %v, %v without waiting for the lock", answers, err)
				default:
					holder.do("select pg_stat_clear_snapshot(), pg_sleep(0.01)")
				}
			}
			holder.do(end)
			<-done
			if err != nil {
				s.t.Fatalf("settle after %s: %v", end, err)
			}
			s.equal("after "+end, show(answers[0][0][0]), map[string]string{"rollback": works, "commit": misses}[end])
		}
	}
}

func checkReleases(s *session) {
	var ids []string
	for range 300 {
		ids = append(ids, s.leased())
	}
	release := func(ids []string) string {
		return "select outbox_release_unprocessed('{" + strings.Join(ids, ",") + "}'::uuid[], array_fill('held'::text, array[" +
			fmt.Sprint(len(ids)) + "]))"
	}
	backwards := slices.Clone(ids)
	slices.Reverse(backwards)
	others := []*session{s.another(), s.another(), s.another()}
	orders := [][]string{ids, backwards, slices.Concat(ids[150:], ids[:150])}
	for range 40 {
		s.do("update outbox_events set status = 'processing'")
		counts := make([]string, len(others))
		var group sync.WaitGroup
		for i, other := range others {
			group.Go(func() {
				answers, err := other.try(release(orders[i]))
				if err != nil {
					s.t.Errorf("release %d: %v", i, err)
					return
				}
				counts[i] = show(answers[0][0][0])
			})
		}
		group.Wait()
		total := 0
		for _, count := range counts {
			n := 0
			_, _ = fmt.Sscan(count, &n)
			total += n
		}
		if total != 300 {
			s.t.Fatalf("released %v, want 300 in all", counts)
		}
	}
}

// TestConcurrentClaims lets eight workers drain 2,000 events of 500 aggregates: no event is held twice, no
// aggregate has two holders, and each aggregate's events come in order.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()
	runClauses(t, map[string]func(*session){
		"one allowlist for all":                        func(s *session) { drain(s, []string{"a,b"}) },
		"each half foreign to the other, which blocks": func(s *session) { drain(s, []string{"a", "b"}) },
	})
}

func drain(s *session, lists []string) {
	s.do(`insert into outbox_events (aggregate_type, aggregate_id, event_type, idempotency_key, payload)
		select 'order', lpad((i % 500)::text, 32, '0')::uuid, case when (i / 500) % 2 = 0 then 'a' else 'b' end, i::text, '{}'
		from generate_series(0, 1999) i order by i`)
	ledger := &ledger{holders: map[string]string{}, last: map[string]int64{}, done: map[string]bool{}}
	var group sync.WaitGroup
	for worker := range 8 {
		session := s.another()
		group.Go(func() {
			for idle := 0; idle < 1000 && ledger.left(2000); {
				answers, err := session.try("select id, aggregate_id, position, metadata->>'claimToken' from outbox_claim_batch('{" +
					lists[worker%len(lists)] + "}', null, 10)")
				if err != nil {
					s.t.Errorf("claim: %v", err)
					return
				}
				if len(answers[0]) == 0 {
					idle++
				}
				if err := ledger.work(session, answers[0]); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	s.equal("processed", s.one("select count(*) from outbox_events where status = 'processed' and attempts = 1"), 2000)
}

// ledger is the truth about who holds what, kept outside the database.
type ledger struct {
	mu      sync.Mutex
	holders map[string]string // aggregate to event
	last    map[string]int64  // aggregate to the position last begun
	done    map[string]bool
}

func (l *ledger) left(all int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done) < all
}

func (l *ledger) work(session *session, claimed answer) error {
	for _, row := range claimed {
		if err := l.take(show(row[0]), show(row[1]), show(row[2])); err != nil {
			return err
		}
	}
	for i, row := range claimed {
		id, token := show(row[0]), show(row[3])
		l.drop(id, show(row[1]), i%7 != 6)
		call := fmt.Sprintf("select outbox_mark_processed('%s', '%s')::text", id, token)
		want := "true"
		if i%7 == 6 {
			call = fmt.Sprintf("select outbox_release_unprocessed(array['%s']::uuid[], array['%s'])", id, token)
			want = "1"
		}
		answers, err := session.try(call)
		if err != nil {
			return err
		}
		if got := show(answers[0][0][0]); got != want {
			return fmt.Errorf("settle %s: got %s, want %s: somebody else held it", id, got, want)
		}
	}
	return nil
}

func (l *ledger) take(id, aggregate, position string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var at int64
	if _, err := fmt.Sscan(position, &at); err != nil {
		return err
	}
	if other, held := l.holders[aggregate]; held {
		return fmt.Errorf("aggregate %s: %s claimed while %s is held", aggregate, id, other)
	}
	if l.done[id] || at < l.last[aggregate] {
		return fmt.Errorf("aggregate %s: position %d claimed after %d (done before: %v)", aggregate, at, l.last[aggregate], l.done[id])
	}
	l.holders[aggregate], l.last[aggregate] = id, at
	return nil
}

func (l *ledger) drop(id, aggregate string, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holders, aggregate)
	if done {
		l.done[id] = true
	}
}
