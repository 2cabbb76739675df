//go:build simulatedpoll

package routertest

import (
	"net"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// newPipe returns a pipe that the event loops of the router accept.
func newPipe() (client, server net.Conn) { return netpoll.Pipe(0) }
