//go:build !unix

package wsconn

import "net"

// A wire is not needed where a system call cannot be tried.
type wire struct{}

func newWire(net.Conn, int) *wire { return nil }

func (*wire) read() (*Buffer, error) { panic("unreachable") }

func (*wire) write([]byte) (int, error) { panic("unreachable") }
