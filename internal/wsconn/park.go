package wsconn

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
	if !c.polled || s.ahead() {
		return false
	}
	c.again = again
	for {
		if !s.drained && s.tryFill() {
			return false
		}
		s.drained = false
		if c.turn.CompareAndSwap(turnTaken, turnFree) {
			return true
		}
		c.turn.Store(turnTaken)
	}
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
