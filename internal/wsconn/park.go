package wsconn

import "time"

// Whose turn it is to read: Park gives it up, and whoever learns that there is something to
// read takes it.
const (
	turnTaken  = iota
	turnMissed // taken, and since then something may have come
	turnFree
)

// Park gives up reading until there is something to read. Then it has again called, which must
// not block, and after which reading goes on. It reports false if it has not given up, because
// there is something to read, or because a connection of this kind waits in Read.
func (c *Conn) Park(again func()) bool {
	s := &c.sock
	if !c.polled {
		return false
	}
	c.again = again
	for {
		if c.takeControls(); s.ahead() {
			return false
		}
		if !s.drained {
			filled, err := s.tryFill()
			if err != nil {
				return false
			}
			if filled {
				continue
			}
		}
		s.drained = false
		if c.turn.CompareAndSwap(turnTaken, turnFree) {
			return true
		}
		c.turn.Store(turnTaken)
	}
}

// takeControls takes the pings and pongs that are ahead. The library would take them, too, and
// then wait for the message behind them.
func (c *Conn) takeControls() {
	for c.sock.readAhead() {
		payload := simpleControl(c.sock.unread)
		if payload < 0 {
			return
		}
		if c.sock.wrong = c.sock.frames.countControl(); c.sock.wrong != nil {
			return
		}
		c.seen(time.Now())
		frame := c.sock.unread[:2+keyBytes+payload]
		if frame[0] == finPing {
			c.pong(frame[2+keyBytes:], [keyBytes]byte(frame[2:]))
		}
		c.sock.skip(len(frame))
	}
}

func (c *Conn) pong(masked []byte, key [keyBytes]byte) {
	payload := make([]byte, len(masked))
	unmask(payload, masked, key)
	c.queuePong(payload)
}

// readable says that there is something to read, or nothing ever again.
func (c *Conn) readable(over bool) {
	if over {
		c.sock.over.Store(true)
	}
	if c.turn.Swap(turnMissed) == turnFree {
		c.turn.Store(turnTaken) // whatever is missed now is read nevertheless
		c.again()
	}
}
