package router

import (
	"net/http"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/handshake"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// maxUpgradedRefusals bounds the refused connections that exist at the same time. Each has a
// goroutine, a socket and up to 20 kB of memory until the client closes it, and no limit of
// connections counts it.
const maxUpgradedRefusals = 1024

// refuseAfterUpgrade upgrades a refused request and closes the connection with the code and the
// reason of the error. It reports whether the request has been answered; if not, nothing has been
// written. A request that is not a valid handshake is answered as such.
func (r *Router) refuseAfterUpgrade(w http.ResponseWriter, req *http.Request, payload *protocol.ErrorPayload) (answered bool) {
	if r.upgradedRefusals.Add(1) > maxUpgradedRefusals {
		r.upgradedRefusals.Add(-1)
		return false
	}
	var ws *wsconn.Conn
	defer func() {
		if ws == nil { // even if the ResponseWriter has panicked
			r.upgradedRefusals.Add(-1)
		}
	}()
	_, subprotocol := r.selectFormat(req, TransportWebSocket)
	ws, err := wsconn.Accept(w, req, subprotocol, &r.transport, ignoreTransport{})
	if err != nil {
		return errors.Is(err, wsconn.ErrAnswered) || errors.Is(err, wsconn.ErrDisconnected)
	}
	ws.Close(int(refusalStatus(payload.Code)), wire.CloseReason(payload))
	go r.awaitClosed(ws)
	return true
}

// awaitClosed drops what the client sends until the connection is closed, at the latest after
// maxCloseTime.
func (r *Router) awaitClosed(ws *wsconn.Conn) {
	defer r.upgradedRefusals.Add(-1)
	defer ws.Release()
	for {
		msg, err := ws.Read(func([]byte) int64 { return 0 })
		if err != nil {
			return
		}
		if msg.Buffer != nil {
			msg.Release()
		}
	}
}

// refusalStatus maps the code of an error to the code of a close frame: 4000 plus the HTTP
// status.
func refusalStatus(code errors.Code) StatusCode { return StatusCode(4000 + handshake.Status(code)) }

// ignoreTransport is the wsconn.Handler of a refused connection.
type ignoreTransport struct{}

// Serve is never called: awaitClosed does not park the connection.
func (ignoreTransport) Serve() bool { panic("unreachable") }

// OnClosed does nothing.
func (ignoreTransport) OnClosed() {}

// OnOverflow does nothing.
func (ignoreTransport) OnOverflow(wsconn.Overflow) {}

// OnBackpressure does nothing.
func (ignoreTransport) OnBackpressure(int, int) {}

// OnWrite does nothing.
func (ignoreTransport) OnWrite(wsconn.Write) {}
