//go:build !simulatedpoll

package routertest

import "net"

func newPipe() (client, server net.Conn) { return net.Pipe() }
