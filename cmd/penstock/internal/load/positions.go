package load

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// positions recognizes publications by their offsets on a topic with a history. The server says at
// which position the topic is at the end of the warm-up, and at the end. Each publication in between
// is expected on each connection, even if another client has published it.
type positions struct {
	*run

	mu       sync.Mutex
	from, to position
	begun    bool
	unknown  string
}

func (p *positions) begin(ctx context.Context, conns []*conn) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	from, ok := positionOf(ctx, conns)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from, p.begun = from, ok
}

// positionOf asks one connection after the other for the position of the topic: a connection may be
// lost, or its server may reject the question because of a limit.
func positionOf(ctx context.Context, conns []*conn) (position, bool) {
	for {
		for _, c := range conns {
			if p, err := c.subscribe(ctx, c.Topic); err == nil && p.Epoch != "" {
				return p, true
			}
			if !sleepUntil(ctx, time.Now().Add(pollInterval)) {
				return position{}, false
			}
		}
	}
}

func (p *positions) accept(message, bool) {}

func (p *positions) receive(c *conn, e *envelope, _ []byte, _ time.Time) {
	switch {
	case e.Type == "$ws:position":
		p.move(c, e.Payload)
	case e.Meta.Topic == p.Topic && e.Meta.Offset > 0:
		c.receiving.Lock()
		defer c.receiving.Unlock()
		c.offsets.receive(e.Meta.Offset)
	}
}

// move handles a position that moves without a publication.
func (p *positions) move(c *conn, payload []byte) {
	var moved struct {
		Topic  string
		Offset int64
		Lost   *struct{ From, To int64 }
		Ended  *position
		Reset  bool
	}
	if json.Unmarshal(payload, &moved) != nil || moved.Topic != p.Topic {
		return
	}
	if moved.Ended != nil || moved.Reset {
		p.mu.Lock()
		p.unknown = "the history of the topic was reset during the load"
		p.mu.Unlock()
	}
	c.receiving.Lock()
	defer c.receiving.Unlock()
	c.offsets.move(moved.Offset, moved.Lost != nil)
}

// end asks for the last position and waits until all connections have reached it.
func (p *positions) end(ctx context.Context, conns []*conn) *Reach {
	to, ok := positionOf(ctx, conns)
	p.mu.Lock()
	p.to = to
	switch {
	case p.unknown != "":
	case !p.begun || !ok:
		p.unknown = "no connection could ask for the position of the topic"
	case p.from.Epoch != to.Epoch:
		p.unknown = "the history of the topic was replaced during the load"
	}
	unknown := p.unknown
	p.mu.Unlock()
	if unknown != "" {
		return &Reach{Rule: "positions", Unknown: unknown}
	}
	next := 0
	waitFor(ctx, func() bool {
		for next < len(conns) && conns[next].hasReached(to.Offset) {
			next++
		}
		return next == len(conns)
	})
	return p.report(conns)
}

// hasReached reports whether the connection has the position, or has ended.
func (c *conn) hasReached(offset int64) bool {
	select {
	case <-c.closed:
		return true
	default:
	}
	c.receiving.Lock()
	defer c.receiving.Unlock()
	return c.offsets.last >= offset
}

func (p *positions) report(conns []*conn) *Reach {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &Reach{Rule: "positions", Unknown: p.unknown}
	for _, c := range conns {
		c.receiving.Lock()
		out.Expected += p.to.Offset - p.from.Offset - c.offsets.own.within(p.from.Offset, p.to.Offset)
		out.Received += c.offsets.received.within(p.from.Offset, p.to.Offset)
		out.Duplicates += c.offsets.duplicates
		c.receiving.Unlock()
	}
	return out
}

// offsets are those that one connection has received.
type offsets struct {
	last       int64  // the highest that is known
	received   ranges // publications
	own        ranges // publications that are not sent to the connection, because it has made them
	duplicates int64
}

func (o *offsets) receive(offset int64) {
	if !o.received.add(offset, offset) {
		o.duplicates++
	}
	o.last = max(o.last, offset)
}

// move is called when the position moves without a publication.
func (o *offsets) move(to int64, lost bool) {
	if !lost && to > o.last {
		o.own.add(o.last+1, to)
	}
	o.last = max(o.last, to)
}

// ranges are disjoint ranges of offsets, in ascending order.
type ranges [][2]int64

// add adds a range. It returns false, and adds nothing, unless the range is above all others:
// publications arrive in order.
func (r *ranges) add(from, to int64) bool {
	last := len(*r) - 1
	switch {
	case last >= 0 && from <= (*r)[last][1]:
		return false
	case last >= 0 && from == (*r)[last][1]+1:
		(*r)[last][1] = to
	default:
		*r = append(*r, [2]int64{from, to})
	}
	return true
}

// within returns how many offsets are above from, and at most to.
func (r ranges) within(from, to int64) (n int64) {
	for _, one := range r {
		n += max(min(one[1], to)-max(one[0], from+1)+1, 0)
	}
	return n
}
