package sequencer

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/rules"
)

// A Cursor is a place in a log, whose owner reads the log from there and follows it. It is a state machine: its methods
// are what happens, and return what to do. The table in doc.go has its states, and [Log.Run] runs it. The lock of its
// owner guards it. The zero Cursor is before the oldest publication.
type Cursor struct {
	at      broker.Position // of the last publication that was handed over
	arrived broker.Position // of the last one that has arrived since the read began
	phase   cursorPhase
	backoff rules.Backoff
	err     error // why it is lost or refused
}

type cursorPhase uint8

const (
	behind cursorPhase = iota
	reading
	outdated
	waiting
	live
	lost
	refused
)

// next begins a read, unless there is nothing to read.
func (c *Cursor) next() (after uint64, read bool) {
	if c.phase != behind && c.phase != waiting {
		return 0, false
	}
	c.phase, c.arrived = reading, broker.Position{}
	return c.at.Offset, true
}

// page ends a read, and returns the publications to be handed over.
func (c *Cursor) page(page broker.Page) []broker.Publication {
	c.backoff.Reset()
	if c.phase == outdated {
		c.phase = behind
		return nil
	}
	if c.err = c.follows(page); c.err != nil {
		c.phase = lost
		return nil
	}
	switch n := len(page.Publications); {
	case n > 0:
		c.at.Offset = page.Publications[n-1].Position.Offset
	case c.at == broker.Position{}:
		c.at.Offset = page.Position.Offset
	}
	c.at.Epoch, c.phase = page.Position.Epoch, behind
	if c.at == page.Position && (c.arrived == broker.Position{} || c.isOld(c.arrived)) {
		c.phase = live
	}
	return page.Publications
}

// follows returns an error unless a page has all that was published after the position.
func (c *Cursor) follows(page broker.Page) error {
	switch at := c.at; {
	case at == broker.Position{}:
		return nil
	case at.Epoch != page.Position.Epoch && (at.Epoch != page.Previous.Epoch || at.Offset > page.Previous.Offset):
		return errors.Errorf(errors.FailedPrecondition, "the epoch of position %v has ended, and messages may be lost; begin again", at)
	case at.Offset > page.Position.Offset:
		return errors.Errorf(errors.InvalidArgument, "position %v is beyond the current one, %v", at, page.Position)
	case at.Offset == page.Position.Offset:
		return nil
	case len(page.Publications) == 0 || page.Publications[0].Position.Offset > at.Offset+1:
		return errors.Errorf(errors.FailedPrecondition, "the history does not have the messages after position %v any more; begin again", at)
	}
	return nil
}

// failed ends a read without a page, and returns how long to wait before the next one.
func (c *Cursor) failed(err error) time.Duration {
	if code := errors.CodeOf(err); code == errors.InvalidArgument || code == errors.FailedPrecondition {
		c.phase, c.err = refused, err
		return 0
	}
	c.phase = waiting
	return c.backoff.Next()
}

// Published handles a publication of the log, and reports whether it is to be handed over. Otherwise it is old, or a read
// returns it.
func (c *Cursor) Published(at broker.Position) bool {
	if c.phase == live && at.Epoch == c.at.Epoch && at.Offset == c.at.Offset+1 {
		c.at = at
		return true
	}
	c.arrive(at)
	return false
}

// arrive is Published for an owner that reads what is published.
func (c *Cursor) arrive(at broker.Position) {
	c.arrived = at
	if c.phase == live && !c.isOld(at) {
		c.phase = behind
	}
}

func (c *Cursor) isOld(at broker.Position) bool {
	return at.Epoch == c.at.Epoch && at.Offset <= c.at.Offset
}

// lose notes that the log may have lost publications.
func (c *Cursor) lose() {
	switch c.phase {
	case live:
		c.phase = behind
	case reading:
		c.phase = outdated
	}
}

// Begin goes to the beginning of the log.
func (c *Cursor) Begin() {
	c.lose()
	if c.at = (broker.Position{}); c.phase != outdated {
		c.phase = behind
	}
}

// At returns the position of the last publication that was handed over, or the one at which reading has begun.
func (c *Cursor) At() broker.Position { return c.at }

// IsLive reports whether everything that was stored and has arrived was handed over.
func (c *Cursor) IsLive() bool { return c.phase == live }

// IsLost reports whether what follows the position is not stored any more.
func (c *Cursor) IsLost() bool { return c.phase == lost }

// A Log is what a Cursor reads.
type Log struct {
	Histories broker.Histories
	Topic     string
	Retention broker.Retention
	Timeout   time.Duration // of a call
}

// Run reads until c is live or handOver returns false. While the store cannot be reached, it waits. lock guards c, and
// handOver is called with it held. The error is why c is lost or refused, or the cause of ctx.
func (l *Log) Run(ctx context.Context, c *Cursor, lock sync.Locker, handOver func(broker.Page) (more bool)) error {
	for more := true; more; {
		lock.Lock()
		after, read := c.next()
		err := c.err
		lock.Unlock()
		if !read {
			return err
		}
		page, err := l.read(ctx, after)
		lock.Lock()
		var wait time.Duration
		if err != nil {
			wait = c.failed(err)
		} else {
			page.Publications = c.page(page)
			more = handOver(page)
		}
		lock.Unlock()
		if wait > 0 && rules.Sleep(ctx, wait) != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (l *Log) read(ctx context.Context, after uint64) (broker.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	return l.Histories.Read(ctx, broker.Query{Topic: l.Topic, Retention: l.Retention, After: after, Limit: pageSize})
}
