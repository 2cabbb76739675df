//go:build (!linux || 386 || s390x) && !simulatedpoll

package netpoll

import (
	"net"

	"github.com/penstock-go/penstock/errors"
)

// A Poller does nothing on this system: every connection waits on its own goroutine.
type Poller struct{}

// NewPoller returns a poller.
func NewPoller() *Poller { return new(Poller) }

// Loops returns 1.
func (*Poller) Loops() int { return 1 }

// A Turn is always the zero Turn.
type Turn struct{}

func (Turn) Owned() bool { return false }

// Attach returns an error.
func (*Poller) Attach(net.Conn, Waiter, *Socket) error { return errors.ErrUnsupported }
