package main

import (
	"context"
	"strconv"
	"time"
)

const (
	perSecond = "events/s"
	slowWork  = 20 * time.Millisecond
)

// drainNoop drains a backlog by this project's worker and by its peers.
func (b *bench) drainNoop(ctx context.Context) error {
	ours, err := b.backlog(ctx, b.events)
	if err != nil {
		return err
	}
	contenders := []contender{b.drainer("drain_noop", ours, drain{expected: b.events, profile: b.profile})}
	if len(b.workers) == 0 {
		found, err := medians(ctx, b.rounds, contenders)
		if err == nil {
			b.add(figure{Name: "drain_noop", Value: found["drain_noop"], Unit: perSecond})
		}
		return err
	}
	for _, p := range []struct {
		name  string
		batch int
	}{{"peer_claim_1_ack_1", 1}, {"peer_claim_100_ack_1", 100}} {
		contenders = append(contenders, contender{p.name, func(ctx context.Context) (speed float64, err error) {
			err = b.use(ctx, ours, func(db *database) error {
				done, err := drainPlain(ctx, db, p.batch, b.peerTime)
				speed = done.perSecond()
				return err
			})
			return speed, err
		}})
	}
	river, err := b.riverBacklog(ctx, b.events)
	if err != nil {
		return err
	}
	for _, workers := range b.workers {
		contenders = append(contenders, b.riverDrainer("peer_river_"+strconv.Itoa(workers), river, riverDrain{b.events, workers, 0}))
	}
	found, err := medians(ctx, b.rounds, contenders)
	if err != nil {
		return err
	}
	best := 0.0
	for _, c := range contenders[1:] {
		b.add(figure{Name: c.name, Value: found[c.name], Unit: perSecond})
	}
	for _, workers := range b.workers {
		best = max(best, found["peer_river_"+strconv.Itoa(workers)])
	}
	b.add(figure{Name: "peer_river_best", Value: best, Unit: perSecond})
	speed := found["drain_noop"]
	b.compare(figure{Name: "drain_noop", Value: speed, Unit: perSecond}, "peer_river_best", atLeast(1.3))
	b.compare(figure{Name: "drain_noop_to_claim_1_ack_1", Value: speed, Unit: perSecond}, "peer_claim_1_ack_1", atLeast(25))
	b.compare(figure{Name: "drain_noop_to_claim_100_ack_1", Value: speed, Unit: perSecond}, "peer_claim_100_ack_1", atLeast(8))
	return nil
}

// drain20ms drains with handlers that wait as long as a delivery may take, beside River with as many workers.
func (b *bench) drain20ms(ctx context.Context) error {
	n := max(b.events*3/10, 1)
	ours, err := b.backlog(ctx, n)
	if err != nil {
		return err
	}
	contenders := []contender{b.drainer("drain_20ms", ours, drain{expected: n, work: slowWork, limit: 2 * b.passTime})}
	if len(b.workers) > 0 {
		river, err := b.riverBacklog(ctx, n)
		if err != nil {
			return err
		}
		contenders = append(contenders, b.riverDrainer("peer_river_20ms", river, riverDrain{n, b.concurrency, slowWork}))
	}
	found, err := medians(ctx, b.rounds, contenders)
	if err != nil {
		return err
	}
	b.add(figure{Name: "ideal_20ms", Value: float64(b.concurrency) / slowWork.Seconds(), Unit: perSecond})
	speed := found["drain_20ms"]
	b.compare(figure{Name: "drain_20ms", Value: speed, Unit: perSecond}, "ideal_20ms", atLeast(0.9))
	if len(b.workers) > 0 {
		b.add(figure{Name: "peer_river_20ms", Value: found["peer_river_20ms"], Unit: perSecond})
		b.compare(figure{Name: "drain_20ms_to_river", Value: speed, Unit: perSecond}, "peer_river_20ms", atLeast(1.8))
	}
	return nil
}

// drainHot drains one aggregate.
func (b *bench) drainHot(ctx context.Context) error {
	n := max(b.events/10, 1)
	hot, err := b.rows(ctx, fill(n, "0, 'order.placed', 'pending', '0 s', 0"))
	if err != nil {
		return err
	}
	found, err := medians(ctx, b.rounds, []contender{b.drainer("drain_hot", hot, drain{expected: n, limit: b.passTime})})
	if err != nil {
		return err
	}
	b.goal(figure{Name: "drain_hot", Value: found["drain_hot"], Unit: perSecond}, atLeast(3000))
	return nil
}
