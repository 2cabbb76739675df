package router

import (
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/member"
	"github.com/penstock-go/penstock/internal/wire"
)

// This file ends connections that handle what was admitted, and nothing else.

// The values of Conn.draining, the reasons why a connection handles no further messages.
const (
	notDraining uint32 = iota
	drainingForRestart
	drainingSuperseded
)

// errDraining refuses messages and requests during Shutdown.
var errDraining = &errors.Error{Code: errors.Unavailable, Message: "server is restarting"}

// supersededWait bounds how long a connection whose session another connection has resumed stays
// open until its calls are answered.
const supersededWait = 5 * time.Second

// drain refuses further messages, ends the streams, and closes the connection when the admitted
// messages have been handled. receive increments active before it reads draining, and drain stores
// draining before it reads active, so one of them sees the other.
func (c *Conn) drain() {
	c.draining.CompareAndSwap(notDraining, drainingForRestart)
	c.endStreams()
	c.closeIfDrained()
}

// drainSuperseded is drain for a connection whose session another connection has resumed. It ends
// the subscriptions, which the other connection has, and lets the streams continue, but closes the
// connection after supersededWait in any case.
func (c *Conn) drainSuperseded() {
	c.draining.CompareAndSwap(notDraining, drainingSuperseded)
	c.leaveTopics()
	if !c.closeIfDrained() {
		time.AfterFunc(supersededWait, c.closeSuperseded)
	}
}

// drainError returns the error that refuses messages of a connection that is drained, or nil.
func (c *Conn) drainError() *errors.Error {
	switch c.draining.Load() {
	case drainingForRestart:
		return errDraining
	case drainingSuperseded:
		return member.ErrSuperseded
	}
	return nil
}

// closeIfDrained closes a connection that is drained if only its reader is active.
func (c *Conn) closeIfDrained() bool {
	if c.active.Load() == 1 {
		c.closeAfterDrain()
		return true
	}
	return false
}

// closeAfterDrain closes a connection that is drained, when its admitted messages have been handled.
func (c *Conn) closeAfterDrain() {
	if c.draining.Load() == drainingSuperseded {
		c.closeSuperseded()
	} else {
		c.Close(StatusServiceRestart, c.router.reconnectReason())
	}
}

func (c *Conn) closeSuperseded() {
	payload := failure.Payload(member.ErrSuperseded)
	c.Close(StatusSuperseded, wire.CloseReason(&payload))
}
