package proof_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/openlup/outbox-dispatch/outbox"
)

// target is the store under test, and the hands that a history needs on its data. Optional ones are nil where the store
// has nothing of the kind.
type target struct {
	claim   func(req outbox.ClaimRequest) (outbox.Claim, error)
	settle  func(batch []outbox.Settlement, backoff outbox.Backoff) ([]outbox.Answer, error)
	insert  func(rows []row) ([]row, error) // one transaction; answers the rows with their ids and positions
	rows    func(all bool) ([]row, error)   // in order of position; those that changed since it was last called will do
	change  func(to row) error              // an operator's UPDATE of status, attempts and available_at
	setNow  func(now micros) error
	declare func(eventType string) error // dormant

	remove func(id string) error                     // optional
	begin  func() (transaction, error)               // optional: a producer's transaction beside others
	mark   func(m mark) (answer string, err error)   // optional: the contract's one-row functions
	claim1 func(c claim1) (map[string]string, error) // optional: the contract's claim; id to token
}

// transaction is a producer's that is not committed yet.
type transaction struct {
	insert func(rows []row) ([]row, error)
	end    func(commit bool) error
}

// claim1 are the arguments of outbox_claim_batch.
type claim1 struct {
	types, known               []string
	batch, visibility, ceiling int
}

// mark is a call of outbox_mark_processed, outbox_mark_failed or outbox_release_unprocessed.
type mark struct {
	settlement outbox.Settlement
	backoff    outbox.Backoff
}

// history is a target and the model, side by side, through one random history.
type history struct {
	target target
	model  *model
	shape  shape
	cycles [3]cycle
	held   []outbox.Settlement // id and token of every claim so far, stale ones too
	open   []openTransaction
	last   int // number of the last row made
	// lookAtAll says that not every change shows as a row written later than what was read.
	lookAtAll bool
	// operations are the claims, the outcomes written, the rows inserted, and what else was done.
	operations int
	script     *[]string // what was done, for a report; nil: nobody reads it
}

// shape is what the rows of a history are drawn from.
type shape struct {
	lanes, types, rows int
}

type openTransaction struct {
	transaction
	rows []row
}

// cycle is a reader going through the queue, claim by claim, from its start to its end.
type cycle struct {
	req   outbox.ClaimRequest // types and cursor
	begun bool
	// must and mustReport are the lanes that were free or lost when the cycle began, and that nobody touched since, by
	// their oldest row: the cycle has to take the one and report the other before its end.
	must, mustReport map[outbox.Aggregate]string
	lost             []outbox.Aggregate
}

// step is one thing that happens; its seed decides what.
func (h *history) step(seed uint64) error {
	d := newDice(seed)
	var err error
	switch at := d.IntN(100); {
	case at < 34:
		err = h.claim(d, &h.cycles[d.IntN(len(h.cycles))])
	case at < 58:
		err = h.settle(d)
	case at < 74:
		err = h.insert(d)
	case at < 80:
		err = h.advance(d)
	case at < 86:
		err = h.change(d)
	case at < 88:
		err = h.remove(d)
	case at < 89:
		err = h.declare(d)
	case at < 93:
		err = h.overlap(d)
	case at < 97:
		err = h.markOne(d)
	default:
		err = h.claimOne(d)
	}
	if err != nil {
		return err
	}
	return h.compare(nil)
}

// compare looks at the rows, and lets the readers forget lanes that were touched; own is whose claim it was.
func (h *history) compare(own *cycle) error {
	if err := h.differ(false); err != nil {
		return err
	}
	for i := range h.cycles {
		for r := range h.model.touched {
			if c := &h.cycles[i]; c != own {
				delete(c.must, r.aggregate)
				delete(c.mustReport, r.aggregate)
			}
		}
	}
	clear(h.model.touched)
	return nil
}

// differ fails when rows, all or those just written, are not as in the model.
func (h *history) differ(all bool) error {
	all = all || h.lookAtAll
	got, err := h.target.rows(all)
	if err != nil {
		return err
	}
	h.lookAtAll = false
	if faults := h.model.differ(got, all); faults != "" {
		return fmt.Errorf("rows differ:\n%s", faults)
	}
	return nil
}

func (h *history) note(format string, args ...any) {
	if h.script != nil {
		*h.script = append(*h.script, fmt.Sprintf(format, args...))
	}
}

// claim is one claim of a reader: the next of its cycle, or of one lost row.
func (h *history) claim(d dice, c *cycle) error {
	if !c.begun || d.chance(12) {
		*c = cycle{req: d.caller(h.shape), lost: c.lost}
	}
	if d.chance(8) && len(c.req.EventTypes) > 1 { // a circuit opens, or time gets short
		c.req.HeldTypes = append(slices.Clone(c.req.HeldTypes), c.req.EventTypes[0])
		c.req.EventTypes = c.req.EventTypes[1:]
	}
	req := c.req
	d.sizes(&req)
	if d.chance(20) {
		req.Lanes = d.aggregates(h.shape)
	}
	if d.chance(15) {
		req.Recover, req.Cursor, req.Lanes = true, "", c.lost
		if d.chance(30) {
			req.Lanes = d.aggregates(h.shape)
		}
	}
	_, err := h.claimAs(c, req)
	return err
}

// claimAs makes one claim and judges it, and the reader's cycle with it.
func (h *history) claimAs(c *cycle, req outbox.ClaimRequest) (outbox.Claim, error) {
	h.operations++
	got, err := h.target.claim(req)
	if h.script != nil {
		h.note("claim %+v\n  -> %s, end %t, lost %v, cursor %s", req, events(got), got.End, got.Lost, got.Cursor)
	}
	if err != nil {
		return got, err
	}
	before, err := h.model.claim(req, got)
	if err != nil {
		return got, err
	}
	for _, e := range got.Events {
		h.held = append(h.held, outbox.Settlement{EventID: e.ID, ClaimToken: h.model.find(e.ID).meta.Token})
	}
	if req.Recover {
		return got, h.compare(nil)
	}
	if !c.begun {
		c.begun, c.must, c.mustReport = true, map[outbox.Aggregate]string{}, map[outbox.Aggregate]string{}
		for of, l := range before {
			if len(l.free) > 0 {
				c.must[of] = l.free[0].id
			} else if l.lost != nil {
				c.mustReport[of] = l.lost.id
			}
		}
	}
	return got, h.turn(c, before, got)
}

// turn is what a claim means for its reader's cycle. At its end nothing may be left out.
func (h *history) turn(c *cycle, before map[outbox.Aggregate]*lane, got outbox.Claim) error {
	maps.DeleteFunc(c.must, func(of outbox.Aggregate, id string) bool {
		l := before[of]
		return l == nil || len(l.free) == 0 || l.free[0].id != id
	})
	maps.DeleteFunc(c.mustReport, func(of outbox.Aggregate, id string) bool {
		l := before[of]
		return l == nil || l.lost == nil || l.lost.id != id || slices.Contains(got.Lost, of)
	})
	for _, e := range got.Events {
		delete(c.must, e.Aggregate())
	}
	c.lost = append(c.lost, got.Lost...)
	c.req.Cursor = got.Cursor
	if !got.End {
		return h.compare(c)
	}
	if len(c.must) > 0 || len(c.mustReport) > 0 {
		return fmt.Errorf("the queue was read from its start to its end, and rows were left out: free %v, lost %v", c.must, c.mustReport)
	}
	c.begun, c.req.Cursor = false, ""
	return h.compare(nil)
}

// settle writes outcomes of several claims, of some twice, of some under old tokens.
func (h *history) settle(d dice) error {
	return h.settleAll(d.settlements(h), d.backoff())
}

func (h *history) settleAll(batch []outbox.Settlement, backoff outbox.Backoff) error {
	h.note("settle %+v %+v", batch, backoff)
	h.operations += len(batch)
	got, err := h.target.settle(batch, backoff)
	if err != nil {
		return err
	}
	want := make([]outbox.Answer, 0, len(batch))
	for _, s := range batch {
		want = append(want, h.model.settle(s, backoff))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("settle %+v\n got %v\nwant %v", batch, got, want)
	}
	return nil
}

func (h *history) markOne(d dice) error {
	if h.target.mark == nil {
		return nil
	}
	m := mark{settlement: d.settlement(h), backoff: d.backoff()}
	if d.chance(50) {
		m.settlement.Outcome = outbox.Processed
	}
	h.note("contract: %+v", m)
	h.operations++
	got, err := h.target.mark(m)
	if err != nil {
		return err
	}
	if want := h.model.settle(m.settlement, m.backoff); got != string(want) {
		return fmt.Errorf("contract: %+v\n got %v\nwant %v", m, got, want)
	}
	return nil
}

func (h *history) claimOne(d dice) error {
	if h.target.claim1 == nil {
		return nil
	}
	req := d.caller(h.shape)
	d.sizes(&req)
	args := claim1{
		types: req.EventTypes, known: req.KnownTypes, batch: clamped(req.BatchSize, 25, 1, 100),
		visibility: clamped(int(req.Visibility.Seconds()), 300, 300, 3600), ceiling: clamped(req.MaxAttempts, 8, 1, 20),
	}
	h.operations++
	got, err := h.target.claim1(args)
	h.note("contract: claim %+v\n  -> %v", args, got)
	if err != nil {
		return err
	}
	err = h.model.claimOne(caller{types: args.types, known: args.known, ceiling: args.ceiling}, args.batch, args.visibility, got)
	for id, token := range got {
		h.held = append(h.held, outbox.Settlement{EventID: id, ClaimToken: token})
	}
	return err
}

// drain reads the queue to its end, settles what it gets and begins again, until nothing comes any more. Then no row may be
// left that is free. A queue of n rows takes at most so many claims: one for each row, and one for the end of each cycle.
func (h *history) drain(d dice) error {
	c := &cycle{}
	base := outbox.ClaimRequest{EventTypes: eventTypes()[:h.shape.types], MaxAttempts: 20}
	d.sizes(&base)
	h.note("drain")
	found := false
	for range 3*len(h.model.rows) + 10 {
		req := base
		req.Cursor = c.req.Cursor
		if len(c.lost) > 0 {
			req.Recover, req.Lanes, req.Cursor = true, c.lost, ""
		}
		got, err := h.claimAs(c, req)
		if err != nil {
			return err
		}
		if req.Recover && len(got.Events) == 0 {
			c.lost = nil
		}
		if err := h.finish(got.Events); err != nil {
			return err
		}
		found = found || len(got.Events) > 0
		if c.begun || req.Recover {
			continue
		}
		if !found && len(c.lost) == 0 {
			return h.nothingFree(callerOf(base))
		}
		found = false
	}
	return fmt.Errorf("the queue of %d rows is not drained after three times as many claims", len(h.model.rows))
}

func (h *history) finish(events []outbox.Event) error {
	if len(events) == 0 {
		return nil
	}
	batch := make([]outbox.Settlement, 0, len(events))
	for _, e := range events {
		batch = append(batch, outbox.Settlement{EventID: e.ID, ClaimToken: h.model.find(e.ID).meta.Token, Outcome: outbox.Processed})
	}
	return h.settleAll(batch, outbox.Backoff{})
}

func (h *history) nothingFree(c caller) error {
	if err := h.differ(true); err != nil {
		return err
	}
	for of, l := range h.model.lanes(c, true) {
		if len(l.free) > 0 {
			return fmt.Errorf("the queue is drained, and %s of %s is free", l.free[0].id, of.ID)
		}
	}
	return nil
}

func events(claim outbox.Claim) string {
	texts := make([]string, 0, len(claim.Events))
	for _, e := range claim.Events {
		texts = append(texts, fmt.Sprintf("%s of %s", e.ID, e.AggregateID))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
