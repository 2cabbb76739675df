package load

import (
	"strconv"
	"time"
)

// answer counts an answer to a message.
func (c *conn) answer(e *envelope, now time.Time) {
	c.mu.Lock()
	m, ok := c.pending[e.Meta.CorrelationID]
	delete(c.pending, e.Meta.CorrelationID)
	if c.empty != nil && ok && len(c.pending) == 0 {
		close(c.empty)
	}
	c.mu.Unlock()
	failed := e.Type == "RPC_ERROR"
	switch {
	case !ok && failed && c.Event:
		c.retract(e)
	case !ok:
	case failed:
		c.count(m.due, func(r *Report, s *step) { s.rejected++; r.reject(e.rejection()) })
	default:
		if c.reach != nil {
			c.reach.accept(m, true)
		}
		c.count(m.due, func(r *Report, s *step) {
			r.Answered++
			s.answered++
			c.latencies.add(now.Sub(m.due))
			s.latencies.add(now.Sub(m.due))
			c.recent.add(now.Sub(m.due))
		})
	}
}

// retract counts an event that was acknowledged as rejected: its handler has failed.
func (c *conn) retract(e *envelope) {
	number, err := strconv.ParseInt(e.Meta.CorrelationID, 10, 64)
	if err != nil {
		return
	}
	m := message{number, c.dueOf(number)}
	if c.reach != nil {
		c.reach.accept(m, false)
	}
	c.count(m.due, func(r *Report, s *step) {
		r.Answered--
		s.answered--
		s.rejected++
		r.reject(e.rejection())
	})
}

func (r *Report) reject(why rejection) {
	r.Rejected[string(why.Code)]++
	r.RetryAfter = max(r.RetryAfter, time.Duration(why.RetryAfterMs)*time.Millisecond)
}
