package outboxtest

import (
	"fmt"
	"time"
)

// orderCases: order inside an aggregate.
func orderCases() []testCase {
	return []testCase{
		{"order/one_row_per_aggregate", "a claim never holds two rows of which one must wait for the other", checkOrderOneRowPerAggregate},
		{"order/aggregates_need_both_names", "aggregates of different types may share an id", checkOrderAggregatesNeedBothNames},
		{"order/unfinished_rows_block", "an older row blocks until it is finished, due or not", checkOrderUnfinishedRowsBlock},
		{"order/finished_rows_free", "a processed or discarded row holds nobody back", checkOrderFinishedRowsFree},
		{"order/only_older_rows_block", "a younger row never blocks", checkOrderOnlyOlderRowsBlock},
		{"order/own_types_block_each_other", "all types of a caller share one order", checkOrderOwnTypesBlockEachOther},
		{"order/unknown_types_block", "a type that nobody is known to consume must not be overtaken", checkOrderUnknownTypesBlock},
		{"order/known_types_do_not_block", "types of other workers are in nobody's way", checkOrderKnownTypesDoNotBlock},
		{"order/blank_known_types_mean_nothing", "a blank among the known types must not lift the barrier", checkOrderBlankKnownTypesMeanNothing},
		{"order/dormant_types_do_not_block", "a dormant type has no consumer on purpose", checkOrderDormantTypesDoNotBlock},
		{"order/dormant_lifts_nothing_else", "a caller that claims a dormant type claims it in order", checkOrderDormantLiftsNothingElse},
		{"order/blocked_rows_leave_the_batch_free", "rows that must wait do not use up the batch", checkOrderBlockedRowsLeaveTheBatchFree},
	}
}

func checkOrderOneRowPerAggregate(s *suite) {
	s.insert("a/1", "a/2", "b/1", "a/3", "b/2")
	s.wantClaim(request(), "a/1 b/1")
	s.wantClaim(request(), "")
}

func checkOrderAggregatesNeedBothNames(s *suite) {
	s.insertRow("a/1", Row{AggregateType: "order"})
	s.insertRow("a/2", Row{AggregateType: "customer"})
	s.insertRow("a/3", Row{AggregateType: "order"})
	s.wantClaim(request(), "a/1 a/2")
}

func checkOrderUnfinishedRowsBlock(s *suite) {
	later := s.Now().Add(time.Hour)
	s.insertRow("future/1", Row{AvailableAt: later})
	s.insertRow("failed/1", Row{AvailableAt: later, Status: StatusFailed, Attempts: 1})
	s.insertRow("leased/1", Row{AvailableAt: later, Status: StatusProcessing, Attempts: 1})
	s.insert("future/2", "failed/2", "leased/2", "free/1")
	s.wantClaim(request(), "free/1")
}

func checkOrderFinishedRowsFree(s *suite) {
	s.insertRow("a/1", Row{Status: StatusProcessed})
	s.insertRow("b/1", Row{Status: StatusDiscarded})
	s.insert("a/2", "b/2")
	s.wantClaim(request(), "a/2 b/2")
}

func checkOrderOnlyOlderRowsBlock(s *suite) {
	s.insert("a/1")
	s.insertRow("a/2", Row{Type: typeOther, CreatedAt: s.Now().Add(-time.Hour)})
	s.wantClaim(request(), "a/1")
}

func checkOrderOwnTypesBlockEachOther(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insert("a/2")
	s.wantClaim(request(typeMine, typeOther), "a/1")
}

func checkOrderUnknownTypesBlock(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insert("a/2", "b/1")
	s.wantClaim(request(), "b/1")
}

func checkOrderKnownTypesDoNotBlock(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insertRow("b/1", Row{Type: "suite.third"})
	s.insert("a/2", "b/2")
	req := request()
	req.KnownTypes = []string{typeOther, typeMine}
	s.wantClaim(req, "a/2")
}

func checkOrderBlankKnownTypesMeanNothing(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insert("a/2")
	req := request()
	req.KnownTypes = []string{"", " ", typeOther + " "}
	s.wantClaim(req, "")
}

func checkOrderDormantTypesDoNotBlock(s *suite) {
	s.insertRow("a/1", Row{Type: typeOther})
	s.insertRow("b/1", Row{Type: "suite.third"})
	s.insert("a/2", "b/2")
	s.DeclareDormant(typeOther)
	s.wantClaim(request(), "a/2")
}

func checkOrderDormantLiftsNothingElse(s *suite) {
	s.insertRow("a/1", Row{AvailableAt: s.Now().Add(time.Hour)})
	s.insert("a/2", "b/1", "b/2")
	s.DeclareDormant(typeMine)
	s.wantClaim(request(), "b/1")
}

func checkOrderBlockedRowsLeaveTheBatchFree(s *suite) {
	s.insertRow("hot/0", Row{AvailableAt: s.Now().Add(time.Hour)})
	for i := range 150 {
		s.insert(fmt.Sprintf("hot/%d", i+1))
	}
	s.insert("a/1", "b/1", "c/1")
	req := request()
	req.BatchSize = 2
	s.wantClaim(req, "a/1 b/1")
}
