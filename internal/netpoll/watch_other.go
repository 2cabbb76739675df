//go:build !linux || 386 || s390x || simulatedpoll

package netpoll

import (
	"net"

	"github.com/penstock-go/penstock/errors"
)

// Watch returns an error.
func (*Poller) Watch(*net.TCPConn, Waiter, *Socket) error { return errors.ErrUnsupported }

// Unwatch is never called.
func (*Socket) Unwatch(*net.TCPConn) { panic("unreachable") }

// Readable is never called.
func (*Socket) Readable() (bool, error) { panic("unreachable") }

// Writable is never called.
func (*Socket) Writable() bool { panic("unreachable") }
