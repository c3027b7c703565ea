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
	late               int // percentage of insertions that put off the lane's first row
}

type openTransaction struct {
	transaction
	rows []row
}

// cycle is a reader going through the queue, claim by claim, from its start to its end.
type cycle struct {
	req   outbox.ClaimRequest // types and cursor
	begun bool
	// must are the lanes that were free when the cycle began, by their oldest row; so are mustLose those lost, and
	// mustWait those with rows behind a leased one. What nobody touches since, the cycle has to take or to report.
	must, mustLose, mustWait map[outbox.Aggregate]string
	lost                     []outbox.Aggregate
	since                    int // the step at which it last began without a cursor
}

// step is one thing that happens; its seed decides what.
func (h *history) step(seed uint64) error {
	d := newDice(seed)
	h.model.steps++
	at := d.IntN(100)
	if d.chance(h.shape.late) { // one reader, again and again, and what frees the rows that it has seen blocked
		at = pick(d, 0, 74, 80)
		return h.then(d, at, 0)
	}
	return h.then(d, at, d.IntN(len(h.cycles)))
}

func (h *history) then(d dice, at, reader int) error {
	var err error
	switch {
	case at < 34:
		err = h.claim(d, &h.cycles[reader])
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
				delete(c.mustLose, r.aggregate)
				delete(c.mustWait, r.aggregate)
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
	switch {
	case c.req.Cursor != "" && d.chance(60) && (!c.begun || d.chance(10)):
		c.begun, c.req.Again = false, true
	case !c.begun, d.chance(10):
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
		req.Recover, req.Cursor, req.Again, req.Lanes = true, "", false, c.lost
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
	h.model.steps++
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
		h.beginCycle(c, before)
	}
	return got, h.turn(c, before, got)
}

// trust is how long a cursor's word may be taken for rows that it has seen blocked, though somebody frees them meanwhile.
const trust = 30 * second

func (h *history) beginCycle(c *cycle, before map[outbox.Aggregate]*lane) {
	c.begun = true
	if !c.req.Again {
		c.since = h.model.steps
	}
	c.must, c.mustLose, c.mustWait = map[outbox.Aggregate]string{}, map[outbox.Aggregate]string{}, map[outbox.Aggregate]string{}
	for of, l := range before {
		changed := h.model.changed[of]
		switch {
		case c.req.Again && changed.step > c.since && h.model.now < changed.at+trust:
		case len(l.free) > 0:
			c.must[of] = l.free[0].id
		case l.lost != nil:
			c.mustLose[of] = l.lost.id
		case l.leased != nil && l.waits:
			c.mustWait[of] = l.leased.id
		}
	}
}

// turn is what a claim means for its reader's cycle. At its end nothing may be left out.
func (h *history) turn(c *cycle, before map[outbox.Aggregate]*lane, got outbox.Claim) error {
	still := func(must map[outbox.Aggregate]string, now func(*lane) *row) {
		maps.DeleteFunc(must, func(of outbox.Aggregate, id string) bool {
			l := before[of]
			return l == nil || now(l) == nil || now(l).id != id || slices.Contains(got.Lost, of) || slices.Contains(got.Leased, of)
		})
	}
	still(c.must, (*lane).head)
	still(c.mustLose, func(l *lane) *row { return l.lost })
	still(c.mustWait, func(l *lane) *row {
		if !l.waits {
			return nil
		}
		return l.leased
	})
	for _, e := range got.Events {
		delete(c.must, e.Aggregate())
	}
	c.lost = append(c.lost, got.Lost...)
	c.req.Cursor, c.req.Again = got.Cursor, false
	if !got.End {
		return h.compare(c)
	}
	if len(c.must)+len(c.mustLose)+len(c.mustWait) > 0 {
		return fmt.Errorf("the queue was read from its start to its end, and lanes were left out: free %v, lost %v, leased %v",
			c.must, c.mustLose, c.mustWait)
	}
	c.begun = false
	return h.compare(nil)
}

// settle writes outcomes of several claims, of some twice, of some under old tokens.
func (h *history) settle(d dice) error {
	return h.settleAll(d.settlements(h), d.backoff())
}

func (h *history) settleAll(batch []outbox.Settlement, backoff outbox.Backoff) error {
	h.note("settle %+v %+v", batch, backoff)
	h.operations += len(batch)
	h.model.steps++
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
	m.settlement.Uncharged = false // the contract knows no such thing
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
// left that is free. A claim may end without an event and without having come to the end, but not for ever.
func (h *history) drain(d dice) error {
	c := &cycle{}
	base := outbox.ClaimRequest{EventTypes: eventTypes()[:h.shape.types], MaxAttempts: 20}
	d.sizes(&base)
	h.note("drain")
	found, again, claims := false, false, 20*len(h.model.rows)+20
	for range claims {
		if !c.begun {
			if again = again && d.chance(50); again {
				c.req.Again = true
			} else {
				c.req.Cursor, c.req.Again = "", false
			}
		}
		req := base
		req.Cursor, req.Again = c.req.Cursor, c.req.Again
		if len(c.lost) > 0 {
			req.Recover, req.Lanes, req.Cursor, req.Again = true, c.lost, "", false
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
		if !found && !again && len(c.lost) == 0 {
			return h.nothingFree(callerOf(base))
		}
		found, again = false, found
	}
	return fmt.Errorf("the queue of %d rows is not drained after %d claims", len(h.model.rows), claims)
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
