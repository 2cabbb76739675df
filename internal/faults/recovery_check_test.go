//go:build unix

package faults_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// This file checks the record of a topic. All checks take linear time, apart from sorting.
//
// An epoch that follows another one continues its offsets, and clients count the publications of both
// in the new epoch. So every position is first reduced to the epoch that assigned it. Epochs that follow
// each other form a line. A position behind the end of its epoch is dead: its publication is lost,
// and the offset is used again.

// The invariants, as counted by a verdict.
const (
	onePayload    = "I1: a position has two publications"
	nothingMissed = "I2: an acknowledged publication is missing where a client claims continuity"
	onceEach      = "I3: a position is delivered twice, or an offset decreases"
	noGap         = "I4: an offset is skipped without a notice"
	oneOrder      = "I5: clients or publishers disagree on the order"
	onlySent      = "I6: a delivered publication was never sent, is incomplete, or was not stored"
	storedOnce    = "I7: an idempotency key is stored twice"
	exactNotices  = "I8: a notice covers something that is not lost"
	liveAgain     = "I9: a client has not received everything within 5 s"
	samePresence  = "I10: the views of presence differ from the clients"
	nothingGrows  = "I12: goroutines, or keys without an expiry, are left"
)

// A verdict is the result of a check.
type verdict struct {
	violations map[string][]string // by invariant
	counts     counts
	resets     []string // descriptions
}

// counts are what a run has exercised.
type counts struct {
	Stored, NotStored, Unknown int // attempts
	Delivered                  int
	Returns, Recovered         int // subscriptions with a position
	Resets                     int // notices of an unknown loss, and returns that were not recovered
	MostResets                 int // of one client
	Losses, Lost               int // notices of lost offsets, and these offsets
	Ended                      int // notices of ended epochs
	FalseEnded                 int // of these, without a publication that is known to be lost
	Dead                       int // acknowledged publications that a failover has lost
}

func (c *counts) add(o counts) {
	c.Stored += o.Stored
	c.NotStored += o.NotStored
	c.Unknown += o.Unknown
	c.Delivered += o.Delivered
	c.Returns += o.Returns
	c.Recovered += o.Recovered
	c.Resets += o.Resets
	c.MostResets = max(c.MostResets, o.MostResets)
	c.Losses += o.Losses
	c.Lost += o.Lost
	c.Ended += o.Ended
	c.FalseEnded += o.FalseEnded
	c.Dead += o.Dead
}

// A checker checks one topic.
type checker struct {
	*topicRecord
	verdict verdict

	links     map[string]broker.Position // by epoch: where the previous one ended
	ends      map[string]uint64          // the same by the previous epoch
	main      map[string]bool            // the epochs that lead to the current one
	at        map[broker.Position]storyID
	positions map[storyID][]broker.Position
	retains   map[broker.Position]bool // by the history at the end
	claims    map[string][]claim       // by client
	received  map[string]map[storyID]bool
	sequences [][]delivery // of all clients
	ended     []broker.Position
	stored    []storing // by time
}

// A claim is an interval of offsets of a line of epochs, after from, of which a client has received
// everything.
type claim struct {
	line     string
	from, to uint64
}

// checkTopic checks the record, which must be complete.
func checkTopic(r *topicRecord) *verdict {
	c := &checker{
		topicRecord: r, verdict: verdict{violations: map[string][]string{}},
		links: map[string]broker.Position{}, ends: map[string]uint64{}, main: map[string]bool{},
		at: map[broker.Position]storyID{}, positions: map[storyID][]broker.Position{}, retains: map[broker.Position]bool{},
		claims: map[string][]claim{}, received: map[string]map[storyID]bool{},
	}
	c.linkEpochs()
	for _, e := range r.final {
		c.assign(c.reduce(e.position), e.story, "the history")
		c.retains[c.reduce(e.position)] = true
		if p := c.reduce(e.position); c.isDead(p) {
			c.violate(exactNotices, "the history has %v, which is said to be lost", p)
		}
	}
	c.checkAttempts()
	c.sortStored()
	for client, steps := range r.chains {
		c.checkChain(client, steps)
	}
	c.checkStories()
	c.checkClaims()
	c.checkOrder()
	for _, end := range c.ended {
		if !c.losesAfter(end) {
			c.verdict.counts.FalseEnded++
		}
	}
	return &c.verdict
}

func (c *checker) violate(invariant, format string, args ...any) {
	c.verdict.violations[invariant] = append(c.verdict.violations[invariant], c.name+": "+fmt.Sprintf(format, args...))
}

// linkEpochs finds out which epochs follow each other: from notices, and from the history.
func (c *checker) linkEpochs() {
	for client, steps := range c.chains {
		for _, s := range steps {
			if s.ended == nil {
				continue
			}
			if known, ok := c.links[s.position.Epoch]; ok && known != *s.ended {
				c.violate(exactNotices, "%s: epoch %s follows %v and %v", client, s.position.Epoch, known, *s.ended)
			}
			c.links[s.position.Epoch] = *s.ended
		}
	}
	for i := 1; i < len(c.final); i++ {
		before, after := c.final[i-1].position, c.final[i].position
		if _, ok := c.links[after.Epoch]; !ok && before.Epoch != after.Epoch {
			c.links[after.Epoch] = before
		}
	}
	for _, previous := range c.links {
		c.ends[previous.Epoch] = previous.Offset
	}
	for epoch, more := c.top.Epoch, true; more; {
		c.main[epoch] = true
		var previous broker.Position
		if previous, more = c.links[epoch]; more {
			c.ends[previous.Epoch] = previous.Offset
			epoch = previous.Epoch
		}
	}
}

// reduce returns a position in the epoch that has assigned it.
func (c *checker) reduce(p broker.Position) broker.Position {
	for previous, ok := c.links[p.Epoch]; ok && p.Offset <= previous.Offset; previous, ok = c.links[p.Epoch] {
		p.Epoch = previous.Epoch
	}
	return p
}

// line returns the first of the epochs that follow each other. Two epochs follow the same one if a
// server was promoted that had received nothing of the first of them: then only the epochs that
// lead to the current one are a line, and others are lines of their own.
func (c *checker) line(epoch string) string {
	isMain := c.main[epoch]
	for previous, ok := c.links[epoch]; ok && c.main[previous.Epoch] == isMain; previous, ok = c.links[epoch] {
		epoch = previous.Epoch
	}
	return epoch
}

func (c *checker) isDead(p broker.Position) bool {
	end, ok := c.ends[p.Epoch]
	return ok && p.Offset > end
}

// assign records that a position has a story.
func (c *checker) assign(p broker.Position, id storyID, source string) {
	switch known, ok := c.at[p]; {
	case !ok:
		c.at[p] = id
		c.positions[id] = append(c.positions[id], p)
	case known != id:
		c.violate(onePayload, "%v has %v, and %v in %s", p, known, id, source)
	}
}

func (c *checker) checkAttempts() {
	for id, tries := range c.attempts {
		for _, try := range tries {
			switch try.outcome {
			case stored:
				c.verdict.counts.Stored++
				p := c.reduce(try.position)
				c.assign(p, id, "the answer to "+id.publisher)
				if c.isDead(p) {
					c.verdict.counts.Dead++
				}
			case notStored:
				c.verdict.counts.NotStored++
			case unknown:
				c.verdict.counts.Unknown++
			}
		}
	}
}

// checkStories checks every story that has a position, and that each has only one which is not dead.
func (c *checker) checkStories() {
	for id, positions := range c.positions {
		if tries := c.attempts[id]; !slices.ContainsFunc(tries, func(a attempt) bool { return a.outcome != notStored }) {
			c.violate(onlySent, "%v at %v was tried %d times", id, positions[0], len(tries))
		}
		lines := map[string]broker.Position{}
		for _, p := range positions {
			if c.isDead(p) {
				continue
			}
			line := c.line(p.Epoch)
			if other, ok := lines[line]; ok {
				c.violate(storedOnce, "%v at %v and %v", id, other, p)
			}
			lines[line] = p
		}
	}
}

// checkClaims checks that clients have received all that was acknowledged where they claim it, and
// that they have reached the end.
func (c *checker) checkClaims() {
	type place struct {
		line   string
		offset uint64
	}
	acknowledged := map[place]storyID{}
	for id, tries := range c.attempts {
		for _, try := range tries {
			if p := c.reduce(try.position); try.outcome == stored && !c.isDead(p) {
				acknowledged[place{c.line(p.Epoch), p.Offset}] = id
			}
		}
	}
	for client, claims := range c.claims {
		for _, cl := range claims {
			for offset := cl.from + 1; offset <= cl.to; offset++ {
				if id, ok := acknowledged[place{cl.line, offset}]; ok && !c.received[client][id] {
					c.violate(nothingMissed, "%s: %v at %d", client, id, offset)
				}
			}
		}
	}
}

// losesAfter reports whether a publication behind the end of an epoch is known.
func (c *checker) losesAfter(end broker.Position) bool {
	_, ok := c.at[broker.Position{Epoch: end.Epoch, Offset: end.Offset + 1}]
	return ok
}

// report returns the violations as lines, at most some of each invariant.
func (v *verdict) report() (lines []string) {
	const most = 5
	for invariant, found := range v.violations {
		slices.Sort(found)
		lines = append(lines, fmt.Sprintf("%s: %d times", invariant, len(found)))
		lines = append(lines, found[:min(len(found), most)]...)
	}
	return lines
}

// merge adds the verdict of another topic.
func (v *verdict) merge(o *verdict) {
	for invariant, found := range o.violations {
		v.violations[invariant] = append(v.violations[invariant], found...)
	}
	v.counts.add(o.counts)
	v.resets = append(v.resets, o.resets...)
}

// liveWithin is how long after the end of faults and publishers clients may lack something.
const liveWithin = 5 * time.Second
