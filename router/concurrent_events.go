package router

// A signal wakes one goroutine. It has room for one value, so that it may be sent before the
// goroutine waits.
type signal chan struct{}

// startEvent waits while as many concurrent events as Limits.Concurrency are being handled. The
// event that waits still has its turn, so it is the only one.
func (c *Conn) startEvent() {
	if int64(c.ownExtra().events.Add(1)) > int64(c.router.opts.Limits.Concurrency) {
		<-c.eventEnded()
	}
}

// endEvent is called once a concurrent event has been handled.
func (c *Conn) endEvent() {
	if int64(c.ownExtra().events.Add(-1)) == int64(c.router.opts.Limits.Concurrency) {
		c.eventEnded() <- struct{}{}
	}
}

// eventEnded returns the signal for the event that waits.
func (c *Conn) eventEnded() signal {
	extras := c.ownExtra()
	if ended := extras.eventEnded.Load(); ended != nil {
		return *ended
	}
	ended := make(signal, 1)
	if extras.eventEnded.CompareAndSwap(nil, &ended) {
		return ended
	}
	return *extras.eventEnded.Load()
}
