//go:build !unix

package wsconn

import (
	"net"
	"syscall"
)

// A wire is not needed where a system call cannot be tried.
type wire struct{ conn syscall.RawConn }

func newWire(net.Conn, int) *wire { return nil }

func (*wire) read(bool) (*Buffer, error) { panic("unreachable") }

func (*wire) drained(*Buffer) bool { panic("unreachable") }

func (*wire) write([]byte) (int, error) { panic("unreachable") }
