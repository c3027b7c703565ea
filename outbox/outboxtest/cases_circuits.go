package outboxtest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/openlup/outbox-dispatch/outbox"
)

// circuitCases: what workers tell each other of destinations that are out, where a store offers that.
func circuitCases() []testCase {
	return []testCase{
		{"circuits/closed", "a destination that nobody complained of is closed", checkCircuitsClosed},
		{"circuits/a_failure_opens", "one failure opens a circuit, and no other one", checkCircuitsFailureOpens},
		{"circuits/times", "a circuit stays open 30 s, twice as long each time, up to 5 min", checkCircuitsTimes},
		{"circuits/wait", "a destination may ask for a longer time, up to an hour", checkCircuitsWait},
		{"circuits/one_outage_counts_once", "workers that report the same outage don't add up", checkCircuitsOneOutageCountsOnce},
		{"circuits/one_probe", "of an open circuit whose time is over one worker probes", checkCircuitsOneProbe},
		{"circuits/a_lost_probe_is_replaced", "when a probe's lease is over somebody else probes", checkCircuitsLostProbe},
		{"circuits/a_success_closes", "a success closes, and the next outage begins at 30 s", checkCircuitsSuccessCloses},
		{"circuits/held", "a circuit that is held stays open, is never probed, and no success closes it", checkCircuitsHeld},
		{"circuits/five_retries_open", "five different events retried in a row open a circuit, over several reports", checkCircuitsFiveRetries},
		{"circuits/a_success_forgets_retries", "a success between makes retries start over", checkCircuitsSuccessForgets},
	}
}

// circuitsOf calls do when the store has circuits.
func circuitsOf(s *suite, do func(c outbox.Circuits)) {
	if c, ok := s.Store.(outbox.Circuits); ok {
		do(c)
	}
}

func (s *suite) report(c outbox.Circuits, report outbox.CircuitReport) outbox.Circuit {
	s.Helper()
	report.Destination = orDefault(report.Destination, "crm")
	circuit, err := c.Report(s.Context(), report)
	if err != nil {
		s.Fatalf("Report(%+v): %v", report, err)
	}
	if circuit.Destination != report.Destination {
		s.Errorf("the report on %s was answered with %s", report.Destination, circuit.Destination)
	}
	return circuit
}

// load returns the circuit of crm; the zero one when it is closed.
func (s *suite) load(c outbox.Circuits) outbox.Circuit {
	s.Helper()
	circuits, err := c.Load(s.Context(), []string{"crm", "erp"}, time.Minute)
	if err != nil {
		s.Fatalf("Load: %v", err)
	}
	var crm outbox.Circuit
	for _, circuit := range circuits {
		if circuit.Destination != "crm" {
			s.Errorf("loaded %+v, want crm alone", circuit)
			continue
		}
		crm = circuit
	}
	return crm
}

// wantOpen wants a circuit to be open for that long, give or take the seconds that a test may last.
func (s *suite) wantOpen(circuit outbox.Circuit, wait time.Duration) {
	s.Helper()
	if !circuit.Open || circuit.Probe || circuit.Wait > wait || circuit.Wait < wait-10*time.Second {
		s.Errorf("the circuit is %+v, want it open for %v", circuit, wait)
	}
}

func checkCircuitsClosed(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		if got := s.load(c); got.Open || got.Probe || len(got.Retried) > 0 {
			s.Errorf("the circuit is %+v, want it closed", got)
		}
		if got := s.report(c, outbox.CircuitReport{Success: true}); got.Open {
			s.Errorf("the circuit is %+v after a success, want it closed", got)
		}
	})
}

func checkCircuitsFailureOpens(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		s.wantOpen(s.report(c, outbox.CircuitReport{Failure: true, Error: "503"}), 30*time.Second)
		s.wantOpen(s.load(c), 30*time.Second)
	})
}

func checkCircuitsTimes(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		for i, want := range []int{30, 60, 120, 240, 300, 300} {
			wait := time.Duration(want) * time.Second
			s.wantOpen(s.report(c, outbox.CircuitReport{Failure: true}), wait)
			s.AgeCircuits(wait)
			if got := s.load(c); !got.Probe || got.Openings != i+1 {
				s.Fatalf("the circuit is %+v after %v, want a probe after %d openings", got, wait, i+1)
			}
		}
	})
}

func checkCircuitsWait(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		s.wantOpen(s.report(c, outbox.CircuitReport{Failure: true, Wait: 10 * time.Minute}), 10*time.Minute)
		s.wantOpen(s.report(c, outbox.CircuitReport{Failure: true, Wait: time.Minute}), 10*time.Minute)
		s.wantOpen(s.report(c, outbox.CircuitReport{Failure: true, Wait: 24 * time.Hour}), time.Hour)
	})
}

func checkCircuitsOneOutageCountsOnce(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		for range 5 {
			s.wantOpen(s.report(c, outbox.CircuitReport{Failure: true}), 30*time.Second)
		}
	})
}

func checkCircuitsOneProbe(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		s.report(c, outbox.CircuitReport{Failure: true})
		s.AgeCircuits(31 * time.Second)
		var probes, failures atomic.Int64
		together(func(int) {
			circuits, err := c.Load(s.Context(), []string{"crm"}, time.Minute)
			if err != nil || len(circuits) != 1 || circuits[0].Probe == circuits[0].Open {
				failures.Add(1)
			} else if circuits[0].Probe {
				probes.Add(1)
			}
		})
		if probes.Load() != 1 || failures.Load() != 0 {
			s.Errorf("%d of %d loads may probe, %d failed, want one and none", probes.Load(), claimers, failures.Load())
		}
	})
}

func checkCircuitsLostProbe(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		s.report(c, outbox.CircuitReport{Failure: true})
		s.AgeCircuits(31 * time.Second)
		if got := s.load(c); !got.Probe {
			s.Fatalf("the circuit is %+v, want a probe", got)
		}
		s.wantOpen(s.load(c), time.Minute)
		s.AgeCircuits(61 * time.Second)
		if got := s.load(c); !got.Probe {
			s.Errorf("the circuit is %+v after the probe's lease, want another probe", got)
		}
	})
}

func checkCircuitsSuccessCloses(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		for range 3 {
			s.report(c, outbox.CircuitReport{Failure: true})
			s.AgeCircuits(5 * time.Minute)
		}
		if got := s.report(c, outbox.CircuitReport{Success: true}); got.Open {
			s.Errorf("the circuit is %+v after a success, want it closed", got)
		}
		if got := s.load(c); got.Open || got.Probe {
			s.Errorf("the circuit is %+v after a success, want it closed", got)
		}
		s.wantOpen(s.report(c, outbox.CircuitReport{Failure: true}), 30*time.Second)
	})
}

func checkCircuitsHeld(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		if got := s.report(c, outbox.CircuitReport{Hold: true, Error: "410"}); !got.Open || got.Wait >= 0 {
			s.Errorf("the circuit is %+v, want it open for ever", got)
		}
		s.report(c, outbox.CircuitReport{Success: true})
		s.AgeCircuits(time.Hour)
		if got := s.load(c); !got.Open || got.Probe || got.Wait >= 0 {
			s.Errorf("the circuit is %+v, want it open for ever, without a probe", got)
		}
	})
}

func checkCircuitsFiveRetries(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		ids := make([]string, retriesToOpen)
		for i := range ids {
			ids[i] = newUUID()
		}
		for _, some := range [][]string{ids[:2], ids[1:3], ids[:1], ids[2:4]} {
			if got := s.report(c, outbox.CircuitReport{Retried: some, Error: "refused"}); got.Open {
				s.Fatalf("the circuit is open after retries of %d events, want it closed", len(some))
			}
		}
		retried := s.load(c).Retried
		slices.Sort(retried)
		if want := slices.Sorted(slices.Values(ids[:4])); !slices.Equal(retried, want) {
			s.Errorf("retried are %q, want %q", retried, want)
		}
		s.wantOpen(s.report(c, outbox.CircuitReport{Retried: ids[4:]}), 30*time.Second)
	})
}

func checkCircuitsSuccessForgets(s *suite) {
	circuitsOf(s, func(c outbox.Circuits) {
		for range 3 {
			for range retriesToOpen - 1 {
				if got := s.report(c, outbox.CircuitReport{Retried: []string{newUUID()}}); got.Open {
					s.Fatalf("the circuit is open, want it closed after fewer than five retries in a row")
				}
			}
			s.report(c, outbox.CircuitReport{Success: true})
		}
		if got := s.load(c); len(got.Retried) > 0 {
			s.Errorf("retried are %q after a success, want none", got.Retried)
		}
	})
}
