package wsconn

import (
	"math"

	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/netpoll"
)

// A budgetShare is what one message that is arriving has taken from Options.Budget.
type budgetShare struct {
	budget *executor.ByteBudget // nil if memory is not bounded
	bytes  int64
}

// release returns all bytes.
func (s *budgetShare) release() {
	if s.budget != nil {
		s.budget.Remove(s.bytes)
	}
}

// ErrNoMemory ends a connection whose message has waited for Options.Budget until Options.MessageTimeout.
var ErrNoMemory = &violation{codeTryAgainLater, "too many incomplete messages"}

// grow makes the buffer of a message larger, and reports false if the rest of the message is to be
// dropped instead. Before the message takes more than BufferBytes, it waits while the budget is
// exceeded, so that the connection is not read, but not longer than until Options.MessageTimeout: the
// clients that use up the budget must have completed their messages by then, or are closed.
//
// It takes all that the message may need at once: messages that take parts of the budget could wait for
// each other. Shorter messages are not counted, because what one read returns has arrived already:
// incomplete messages must not keep a complete one from being handled.
func (c *Conn) grow(m *Message, limit func([]byte) int64, share *budgetShare) (bool, error) {
	longest := limit(m.Bytes)
	if int64(len(m.Bytes)) >= longest {
		return false, nil
	}
	next := netpoll.NextCap(cap(m.Bytes))
	if share.budget != nil && next > c.opts.BufferBytes && int64(next) > share.bytes {
		ok, err := c.reserve(share, c.capFor(m, longest))
		if err != nil || !ok {
			return false, err
		}
	}
	m.Buffer = m.Grow()
	return true, nil
}

// capFor returns the capacity up to which the buffer of a message may grow. Its first longest bytes are
// kept.
func (c *Conn) capFor(m *Message, longest int64) int64 {
	longest = min(longest, c.opts.MaxMessageBytes)
	if f := &c.frames; f.last && !f.deflated {
		longest = min(longest, int64(len(m.Bytes))+int64(min(f.left, math.MaxInt32)))
	}
	n := netpoll.NextCap(cap(m.Bytes))
	for int64(n) < longest {
		n = netpoll.NextCap(n)
	}
	return int64(n)
}

// reserve enlarges the share of a message to n bytes. It reports false if the connection is closing, so
// that messages are dropped.
func (c *Conn) reserve(share *budgetShare, n int64) (bool, error) {
	for !share.budget.TryAdd(n - share.bytes) {
		if c.closing.Load() {
			return false, nil
		}
		if err := c.awaitBudget(share.budget); err != nil {
			return false, err
		}
	}
	share.bytes = n
	return true, nil
}

// awaitBudget waits until there may be room in the budget, or the connection is closing.
func (c *Conn) awaitBudget(b *executor.ByteBudget) error {
	if err := c.armMessageTimeout(); err != nil {
		return err
	}
	expired, stop := after(c.opts.Engine.start.Add(c.sock.messageBy))
	defer stop()
	p := patience{done: b.Available(), expired: expired}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing.Load() && c.awaitProgressLocked(p) == ErrTimeout { //nolint:errorlint // it is not wrapped
		return ErrNoMemory
	}
	return nil
}
