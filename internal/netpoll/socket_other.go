//go:build !linux || 386 || s390x

package netpoll

import (
	"net"
	"syscall"
)

// A Socket does not exist on this system: NewSocket returns nil.
type Socket struct{ conn syscall.RawConn }

// NewSocket returns nil.
func NewSocket(net.Conn, int) *Socket { return nil }

// Read is never called.
func (*Socket) Read(bool) (*Buffer, error) { panic("unreachable") }

// Emptied is never called.
func (*Socket) Emptied(*Buffer) bool { panic("unreachable") }

// Write is never called.
func (*Socket) Write([]byte) (int, error) { panic("unreachable") }
