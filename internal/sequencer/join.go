package sequencer

import (
	"context"
	"slices"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/rules"
)

// A Joined says how a subscriber continues.
type Joined struct {
	// Recovered is true if Publications are exactly what the subscriber has missed. Otherwise there
	// are none, and the subscriber must load its state.
	Recovered    bool
	Publications []broker.Publication
	Position     broker.Position // everything after it will be delivered

	// Last is true if Publications are the latest ones instead, fewer if the store has no more.
	Last bool

	// Rest is set if the subscriber begins with the current state. Publications are then those
	// that were stored since its first part was read.
	Rest *StateRest

	// Ended is set if the epoch of the subscriber's position has ended meanwhile: publications of
	// that epoch with higher offsets, if there were any, are lost.
	Ended *broker.Position
}

// joinAttempts bounds how often a Join begins again because a loss or too many publications came
// between reading the store and activating the subscriber.
const joinAttempts = 3

// An outcome is the result of an attempt to add a subscriber.
type outcome int

const (
	again         outcome = iota // another attempt is needed
	joined                       // activate was called
	unrecoverable                // no attempt will succeed
)

// Join adds a subscriber that has received everything up to since, or that begins now if since is
// the zero Position. It reads what was missed with from, which may be nil if since is zero, and then calls
// activate exactly once, with the Sequencer's lock held: activate must register the subscriber, so that
// nothing is delivered twice or left out. While the store cannot be read, Join waits. It returns an error,
// and does not call activate, only if ctx is done or the Sequencer is closed.
func (s *Sequencer) Join(ctx context.Context, since broker.Position, from *CatchupTopic, activate func(Joined)) error {
	if result, err := s.rejoin(ctx, since, from, activate); result == joined || err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	activate(Joined{Recovered: since.Epoch == "", Position: s.last})
	return nil
}

// JoinLast is [Sequencer.Join] for a subscriber that needs the latest publications, at most limit, if it cannot receive
// what it has missed, or has no position. It returns an UNAVAILABLE error, and has not called activate, if the topic changed
// too much in several attempts.
func (s *Sequencer) JoinLast(ctx context.Context, since broker.Position, from *CatchupTopic, limit int, activate func(Joined)) error {
	return s.rejoinOr(ctx, since, from, activate, func() (outcome, error) { return s.tryJoinLast(ctx, since.Epoch == "", limit, activate) })
}

// rejoinOr adds a subscriber, by attempts of try if it has no position, or cannot receive what it has missed.
func (s *Sequencer) rejoinOr(ctx context.Context, since broker.Position, from *CatchupTopic, activate func(Joined), try func() (outcome, error)) error {
	if result, err := s.rejoin(ctx, since, from, activate); result == joined || err != nil {
		return err
	}
	result, err := s.attempt(ctx, try)
	if err == nil && result == again {
		return errUnsettled
	}
	return err
}

// tryJoinLast is one attempt of JoinLast.
func (s *Sequencer) tryJoinLast(ctx context.Context, first bool, limit int, activate func(Joined)) (outcome, error) {
	j := new(joining)
	s.listen(j)
	defer s.unlisten(j)
	page, err := s.reader.histories.Read(ctx, broker.Query{Topic: s.topic, Retention: s.retention, Limit: limit, Backward: true})
	if err != nil {
		return again, err
	}
	if err := s.awaitPosition(ctx, page.Position); err != nil {
		return again, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := Joined{Recovered: first, Last: true, Publications: page.Publications}
	before := page.Position.Offset - uint64(len(page.Publications))
	if j.full || j.loss || s.last.Epoch != page.Position.Epoch || !s.merge(&begin, before, j.received) {
		return again, nil
	}
	begin.Publications = begin.Publications[max(len(begin.Publications)-limit, 0):]
	begin.Position = s.last
	activate(begin)
	return joined, nil
}

// rejoin adds a subscriber, unless it has no position, or cannot receive what it has missed.
func (s *Sequencer) rejoin(ctx context.Context, since broker.Position, from *CatchupTopic, activate func(Joined)) (outcome, error) {
	if err := s.AwaitAttached(ctx); err != nil || since.Epoch == "" {
		return unrecoverable, err
	}
	// The subscriber may come from a node that is ahead of this one.
	caughtUp := func(compared bool) bool {
		return compared || s.last.Epoch != since.Epoch || s.last.Offset >= since.Offset
	}
	if err := s.await(ctx, caughtUp); err != nil {
		return again, err
	}
	return s.attempt(ctx, func() (outcome, error) { return s.tryJoin(ctx, since, from, activate) })
}

// attempt calls try until it needs no other attempt, at most joinAttempts times. Calls that need
// another one because the store is away do not count.
func (s *Sequencer) attempt(ctx context.Context, try func() (outcome, error)) (outcome, error) {
	var backoff rules.Backoff
	for attempt := 0; attempt < joinAttempts; {
		result, err := try()
		switch {
		case result != again:
			return result, err
		case ctx.Err() != nil:
			return again, context.Cause(ctx)
		case s.isClosed():
			return again, ErrClosed
		case err != nil:
			s.sleep(ctx, backoff.Next())
		default:
			attempt++
			if err := s.await(ctx, func(compared bool) bool { return compared }); err != nil {
				return again, err
			}
		}
	}
	return again, nil
}

// tryJoin is one attempt of Join.
func (s *Sequencer) tryJoin(ctx context.Context, since broker.Position, from *CatchupTopic, activate func(Joined)) (outcome, error) {
	j := new(joining)
	s.listen(j)
	defer s.unlisten(j)
	missed, err := from.read(ctx, s, since)
	if err != nil {
		return again, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	result := Joined{Recovered: true, Publications: missed.publications, Ended: missed.ended}
	switch {
	case !missed.recoverable:
		return unrecoverable, nil
	case j.full || j.loss || missed.current.Epoch != s.last.Epoch || !s.merge(&result, missed.after, j.received):
		return again, nil // this node may not know yet that an epoch has ended
	case len(result.Publications) > from.limit:
		return unrecoverable, nil
	}
	result.Position = s.last
	if !missed.kept { // or it would stay longer than recentTime
		s.keepRecent(missed.after, result.Publications)
	}
	activate(result)
	return joined, nil
}

// merge adds to what was read what this Sequencer has handed over since the subscriber was
// registered, and removes what it will hand over later. It reports false if there is a gap.
func (s *Sequencer) merge(result *Joined, after uint64, received []broker.Publication) bool {
	last := after + uint64(len(result.Publications))
	if s.last.Offset < last { // this node has not received all of it
		if s.last.Offset < after {
			return false
		}
		result.Publications = result.Publications[:s.last.Offset-after]
		return true
	}
	for _, p := range received {
		if p.Position.Offset == last+1 {
			result.Publications = append(result.Publications, p)
			last++
		}
	}
	return last == s.last.Offset
}

// A joining is a subscriber that waits to be activated.
type joining struct {
	received []broker.Publication
	full     bool // too many were received
	loss     bool // a loss was reported
	newEpoch bool // by an epoch that ended
}

func (j *joining) deliverLocked(p broker.Publication) {
	if len(j.received) >= maxReceived {
		j.full, j.received = true, nil
	}
	if !j.full {
		p.Packet = slices.Clone(p.Packet)
		j.received = append(j.received, p)
	}
}

func (j *joining) loseLocked(l Loss) {
	j.loss = true
	j.newEpoch = j.newEpoch || l.endsEpoch()
}

// CatchUp waits until all that was stored before the call has been handed over, or is lost.
func (s *Sequencer) CatchUp(ctx context.Context) error {
	return s.await(ctx, func(compared bool) bool { return compared })
}

// await waits until a condition holds, which it checks with the lock held after every page that is
// read and every publication. compared is true if the store has been read up to its current position
// since await was called.
func (s *Sequencer) await(ctx context.Context, holds func(compared bool) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.begun
	if !holds(false) {
		s.read()
	}
	for !holds(s.compared > before) {
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		case <-s.closed.Done():
		}
		s.mu.Lock()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.isClosed():
			return ErrClosed
		}
	}
	return nil
}
