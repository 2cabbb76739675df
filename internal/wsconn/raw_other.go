//go:build !unix

package wsconn

import "net"

// A rawReader is not needed where a read cannot be tried.
type rawReader struct{}

func newRawReader(net.Conn, int) *rawReader { return nil }

func (*rawReader) read() (*Buffer, error) { panic("unreachable") }
