//go:build unix

package faults_test

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A chain is the state of one client in one topic while its steps are checked.
type chain struct {
	*checker
	client string
	last   broker.Position // handed over
	seen   map[broker.Position]bool
	claim  claim
	resets int

	sequence []delivery // since the last reset to another epoch
}

// checkChain follows the steps of a client as the protocol requires.
func (c *checker) checkChain(client string, steps []step) {
	ch := &chain{checker: c, client: client, seen: map[broker.Position]bool{}}
	c.received[client] = map[storyID]bool{}
	for i := range steps {
		switch s := &steps[i]; s.kind {
		case subscribed:
			ch.subscribed(s)
		case delivered:
			ch.delivered(s)
		case moved:
			ch.moved(s)
		}
	}
	ch.endClaim()
	ch.endSequence()
	c.verdict.counts.MostResets = max(c.verdict.counts.MostResets, ch.resets)
	if len(steps) == 0 {
		return
	}
	if ch.last.Offset != c.top.Offset || c.reduce(ch.last) != c.reduce(c.top) {
		c.violate(liveAgain, "%s ends at %v of %v", client, ch.last, c.top)
	} else if late := steps[len(steps)-1].at - c.quiet; late > int64(liveWithin)*liveFactor {
		c.violate(liveAgain, "%s ends %d ms late", client, late/1e6)
	}
}

// liveFactor allows for the load of other tests.
const liveFactor = 4

func (ch *chain) subscribed(s *step) {
	n := &ch.verdict.counts
	if s.since != (broker.Position{}) {
		n.Returns++
		if s.since != ch.last {
			ch.violate(noGap, "%s presents %v at %v", ch.client, s.since, ch.last)
		}
	}
	switch {
	case s.since == (broker.Position{}):
		ch.jump(s.position)
	case !s.recovered:
		ch.reset(s)
	case s.ended != nil:
		n.Recovered++
		ch.changeEpoch(s)
	default:
		n.Recovered++
		if s.position != ch.last {
			ch.continues(s.position)
		}
	}
}

// continues reports a position that should be the last one.
func (ch *chain) continues(p broker.Position) {
	invariant := noGap
	if p.Epoch == ch.last.Epoch && p.Offset < ch.last.Offset {
		invariant = onceEach
	}
	ch.violate(invariant, "%s continues at %v after %v", ch.client, p, ch.last)
	ch.jump(p)
}

func (ch *chain) delivered(s *step) {
	ch.verdict.counts.Delivered++
	switch next := ch.last.Offset + 1; {
	case s.position.Offset > next:
		ch.violate(noGap, "%s: %d follows %v", ch.client, s.position.Offset, ch.last)
		ch.jump(broker.Position{Epoch: ch.last.Epoch, Offset: s.position.Offset - 1})
	case s.position.Offset < next:
		ch.violate(onceEach, "%s: %d follows %v", ch.client, s.position.Offset, ch.last)
		return
	}
	ch.last.Offset = s.position.Offset
	p := ch.reduce(ch.last)
	if ch.seen[p] {
		ch.violate(onceEach, "%s: %v again", ch.client, p)
	}
	ch.seen[p] = true
	if s.corrupt {
		ch.violate(onlySent, "%s: %v at %v is incomplete", ch.client, s.story, p)
		return
	}
	ch.received[ch.client][s.story] = true
	ch.sequence = append(ch.sequence, delivery{p.Epoch, s.story})
	ch.assign(p, s.story, "what "+ch.client+" received")
}

func (ch *chain) moved(s *step) {
	switch {
	case s.reset:
		ch.reset(s)
	case s.ended != nil:
		ch.changeEpoch(s)
	case s.lost != nil:
		ch.lose(s)
	case s.position.Epoch != ch.last.Epoch || s.position.Offset != ch.last.Offset+1:
		ch.violate(noGap, "%s is moved from %v to %v", ch.client, ch.last, s.position)
		ch.jump(s.position)
	}
}

// reset begins again after an unknown loss. In another epoch, the client's new state may precede what
// it has received: it has followed a new master, and then a node that still follows the old one.
func (ch *chain) reset(s *step) {
	ch.verdict.resets = append(ch.verdict.resets, fmt.Sprintf("%s: %s at %v continues at %v", time.Unix(0, s.at).Format("15:04:05.000"), ch.client+" in "+ch.name, ch.last, s.position))
	if s.position.Epoch != ch.last.Epoch {
		ch.seen = map[broker.Position]bool{}
		ch.endSequence()
	}
	ch.verdict.counts.Resets++
	ch.resets++
	ch.jump(s.position)
}

// changeEpoch continues in an epoch that follows the last one, before what was used again.
func (ch *chain) changeEpoch(s *step) {
	ch.verdict.counts.Ended++
	ch.ended = append(ch.ended, *s.ended)
	want := broker.Position{Epoch: s.position.Epoch, Offset: min(ch.last.Offset, s.ended.Offset)}
	switch {
	case s.ended.Epoch != ch.last.Epoch:
		ch.violate(exactNotices, "%s: the end of %s at %v", ch.client, s.ended.Epoch, ch.last)
	case s.position != want:
		ch.continues(s.position)
	}
	ch.jump(s.position)
}

// lose moves behind lost publications, which must be exactly those that are missing.
func (ch *chain) lose(s *step) {
	n := &ch.verdict.counts
	n.Losses++
	switch {
	case s.position.Epoch != ch.last.Epoch || s.lost.From > ch.last.Offset+1:
		ch.violate(noGap, "%s: the loss of %v after %v", ch.client, *s.lost, ch.last)
	case s.lost.From <= ch.last.Offset, s.lost.To < s.lost.From, s.position.Offset != s.lost.To:
		ch.violate(exactNotices, "%s: the loss of %v at %v after %v", ch.client, *s.lost, s.position, ch.last)
	default:
		n.Lost += int(s.lost.To - s.lost.From + 1)
	}
	for offset := s.lost.From; offset <= s.lost.To; offset++ {
		if p := ch.reduce(broker.Position{Epoch: s.position.Epoch, Offset: offset}); ch.retains[p] {
			ch.violate(exactNotices, "%s: the loss of %v, which the history has", ch.client, p)
			break
		}
	}
	if newest := ch.newestAt(s.at); !ch.trimmed && s.lost.To+uint64(ch.retained) > newest {
		ch.violate(exactNotices, "%s: the loss of %v when %d was the newest of %d", ch.client, *s.lost, newest, ch.retained)
	}
	ch.jump(s.position)
}

// jump continues at another position, without a claim on what is between.
func (ch *chain) jump(p broker.Position) {
	ch.endClaim()
	ch.last = p
	ch.claim = claim{line: ch.line(p.Epoch), from: p.Offset}
}

// endClaim ends the claim at the last offset, or where the epoch has ended: what follows that is lost, and
// its offsets are used again.
func (ch *chain) endClaim() {
	at := ch.last.Offset
	if end, ok := ch.ends[ch.last.Epoch]; ok {
		at = min(at, end)
	}
	if ch.claim.to = at; at > ch.claim.from {
		ch.claims[ch.client] = append(ch.claims[ch.client], ch.claim)
	}
}

func (ch *chain) endSequence() {
	ch.sequences = append(ch.sequences, ch.sequence)
	ch.sequence = nil
}
