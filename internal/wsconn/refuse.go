package wsconn

import (
	"net/http"
	"sync/atomic"

	"github.com/penstock-go/penstock/errors"
)

// maxRefusals bounds the refused connections that exist at the same time. Each has a
// goroutine, a socket and up to 20 kB of memory until the client closes it, and no limit of
// connections counts it.
const maxRefusals = 1024

// Refusals are connections that are opened only to tell their clients in a close frame why they are refused. The zero
// value has none.
type Refusals struct{ open atomic.Int64 }

// Refuse upgrades a request and closes the connection. It reports whether the request has been answered; if not, nothing
// has been written. A request that is not a valid handshake is answered as such.
func (rs *Refusals) Refuse(w http.ResponseWriter, req *http.Request, subprotocol string, opts *Options, code int, reason string) (answered bool) {
	var c *Conn
	defer func() {
		if c == nil { // even if the ResponseWriter has panicked
			rs.open.Add(-1)
		}
	}()
	if rs.open.Add(1) > maxRefusals {
		return false
	}
	silent := *opts
	silent.OnWrite = nil // as the other methods of ignore
	c, err := Accept(w, req, subprotocol, &silent, ignore{})
	if err != nil {
		return errors.Is(err, ErrAnswered) || errors.Is(err, ErrDisconnected)
	}
	c.Close(code, reason)
	go rs.awaitClosed(c)
	return true
}

// awaitClosed drops what the client sends until the connection is closed, at the latest after
// Options.CloseTimeout.
func (rs *Refusals) awaitClosed(c *Conn) {
	defer rs.open.Add(-1)
	defer c.Release()
	for {
		msg, err := c.Read(func([]byte) int64 { return 0 })
		if err != nil {
			return
		}
		if msg.Buffer != nil {
			msg.Release()
		}
	}
}

// ignore is the Handler of a refused connection.
type ignore struct{}

func (ignore) Serve() bool             { panic("unreachable") } // awaitClosed does not park the connection
func (ignore) OnClosed()               {}
func (ignore) OnOverflow(Overflow)     {}
func (ignore) OnBackpressure(int, int) {}
